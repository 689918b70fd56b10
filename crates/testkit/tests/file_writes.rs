//! Pages of files that are stored to: what reaches the file and when, and what goes on while writes are under way, fail, or
//! never end.
#![deny(unsafe_code)]

mod common;

use common::objects::{bytes, content, map, orders, whole};
use common::storage::{Writes, storage};
use common::*;
use softfault::policy::folio::FolioOrders;
use softfault::{
    Access, CpuId, Errno, Event, FaultDone, MapFlags, MigrateRefusal, MlockFlags, MsyncError, MsyncFlags, Pin, Term,
    WriteBackError, WriteError,
};
use softfault_host::Running;
use softfault_testkit::random::Random;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

const ALL: std::ops::Range<u64> = 0..u64::MAX;
const BASE_ORDERS: FolioOrders = FolioOrders::BASE;

fn store(w: &World<'_>, page: u64, byte: u8) {
    w.space.write(BASE + page * PAGE, &[byte]).unwrap();
}

/// By mappings, the handle and pins: all of it is in the file afterwards, and nothing is written twice.
#[test]
fn stores_reach_the_file() {
    in_each_setup(1, 16 << 20, |w| {
        for sizes in [BASE_ORDERS, orders(0, 3), orders(2, 2)] {
            let (storage, object) = storage(w, 16 * PAGE, sizes);
            map(w.space, BASE, 16, &object, 0);
            let child = w.space.fork().unwrap();
            store(w, 0, 2);
            child.write(BASE + 5 * PAGE, &[3]).unwrap();
            object.write(6 * PAGE + 7, &[4]).unwrap();
            let pin = w.space.pin_page_mut(BASE + 8 * PAGE, Term::Short).unwrap();
            pin.write(9, &[5]);
            // A page that is not in memory is zero in the storage by then.
            object.read(9 * PAGE, &mut [0]);
            object.zero(9 * PAGE..9 * PAGE + 1).unwrap();
            assert_eq!(object.write_back(ALL), Ok(()));
            let zeroed = (9 * PAGE, 0);
            let stored = [(0, 2), (5 * PAGE, 3), (6 * PAGE + 7, 4), (8 * PAGE + 9, 5), zeroed, (1, 1), (15 * PAGE, 1)];
            stored.iter().for_each(|(at, byte)| assert_eq!(storage.byte(*at), *byte, "at {at}"));
            check(w.vm, &[w.space, &child]);
            assert!(!storage.log().is_empty());
            assert_eq!((object.write_back(ALL), storage.log()), (Ok(()), vec![]), "all of it is clean");
            // The holder of a pin may have stored since.
            pin.write(9, &[6]);
            drop(pin);
            assert_eq!((object.write_back(ALL), storage.byte(8 * PAGE + 9)), (Ok(()), 6));
            child.write(BASE + 5 * PAGE, &[7]).unwrap();
            store(w, 0, 8);
            assert_eq!((storage.byte(0), object.write_back(1..16)), (2, Ok(())));
            assert_eq!((object.write_back(0..1), storage.byte(0), storage.byte(5 * PAGE)), (Ok(()), 8, 7));
            w.space.munmap(BASE, 16 * PAGE).unwrap();
        }
        let plain = w.vm.new_shared_object(PAGE).unwrap();
        plain.write(0, &[1]).unwrap();
        assert_eq!(plain.write_back(ALL), Ok(()), "nothing is to be written");
    });
}

/// A pin that gives up its right to write may have stored until then, and not afterwards.
#[test]
fn a_pin_that_gives_up_its_right_has_stored() {
    in_each_setup(1, 16 << 20, |w| {
        let (storage, object) = storage(w, PAGE, BASE_ORDERS);
        map(w.space, BASE, 1, &object, 0);
        for term in [Term::Short, Term::Long] {
            let pin = w.space.pin_page_mut(BASE, term).unwrap();
            assert_eq!(object.write_back(ALL), Ok(()));
            let byte = storage.byte(0) + 1;
            pin.write(0, &[byte]);
            let pin = Pin::from(pin);
            assert_eq!((object.write_back(ALL), storage.byte(0)), (Ok(()), byte));
            storage.log();
            drop(pin);
            assert_eq!((object.write_back(ALL), storage.log()), (Ok(()), vec![]));
        }
        w.space.munmap(BASE, PAGE).unwrap();
    });
}

/// The first store to a clean page faults, of each mapping, also after reads; others do not.
#[test]
fn the_first_store_makes_a_page_dirty() {
    in_each_setup(1, 16 << 20, |w| {
        let (_storage, object) = storage(w, 32 * PAGE, BASE_ORDERS);
        map(w.space, BASE, 32, &object, 0);
        for page in 0..32 {
            assert!(w.space.handle_fault(BASE + page * PAGE, Access::Read).is_ok());
            assert!(!object.object_page_state(page).unwrap().dirty);
        }
        let nr = || w.vm.event(Event::FileFirstStore);
        for round in 0..3 {
            assert_eq!(w.space.handle_fault(BASE + 3 * PAGE, Access::Write), Ok(FaultDone::Widened));
            assert!(object.object_page_state(3).unwrap().dirty && !object.object_page_state(4).unwrap().dirty);
            assert_eq!(w.space.handle_fault(BASE + 3 * PAGE, Access::Write), Ok(FaultDone::Spurious));
            assert_eq!(nr(), round + 1);
            check(w.vm, &[w.space]);
            object.write_back(ALL).unwrap();
            assert!(!object.object_page_state(3).unwrap().dirty);
        }
        w.space.madvise(BASE, 32 * PAGE, softfault::Advice::DontNeed).unwrap();
        assert!(!object.object_page_state(3).unwrap().dirty, "no entry was dirty any more");
        assert_eq!(w.space.handle_fault(BASE + 3 * PAGE, Access::Write), Ok(FaultDone::Shared));
        assert!(object.object_page_state(3).unwrap().dirty);
        // Rights that come back do not include stores to what is clean.
        w.space.handle_fault(BASE + 5 * PAGE, Access::Read).unwrap();
        w.space.mprotect(BASE, 32 * PAGE, READ).unwrap();
        w.space.mprotect(BASE, 32 * PAGE, RW).unwrap();
        w.space.handle_fault(BASE + 5 * PAGE, Access::Read).unwrap();
        assert!(!object.object_page_state(5).unwrap().dirty);
        check(w.vm, &[w.space]);
    });
}

/// Bytes behind the size, which a mapping can store to, are not written; nor is what is behind a smaller size.
#[test]
fn nothing_behind_the_size_is_written() {
    in_each_setup(1, 16 << 20, |w| {
        let (storage, object) = storage(w, 4 * PAGE, orders(0, 2));
        map(w.space, BASE, 4, &object, 0);
        (0..4).for_each(|page| store(w, page, 2));
        object.set_size_bytes(PAGE + 10);
        storage.truncate(PAGE + 10);
        w.space.write(BASE + PAGE + 9, &[3; 5]).unwrap();
        object.write_back(ALL).unwrap();
        assert!(storage.log().iter().all(|(page, len)| page * PAGE + len <= PAGE + 10));
        assert_eq!((storage.byte(0), storage.byte(PAGE), storage.byte(PAGE + 9)), (2, 2, 3));
    });
}

/// An error is told once, no matter which call asks; the pages are dirty still, and are written when that works again.
#[test]
fn an_error_is_told_once() {
    in_each_setup(1, 16 << 20, |w| {
        let (storage, object) = storage(w, 4 * PAGE, BASE_ORDERS);
        map(w.space, BASE, 4, &object, 0);
        store(w, 1, 2);
        store(w, 2, 2);
        storage.set(Writes::Fail);
        assert_eq!(object.write_back(1..2), Err(WriteBackError::NotWritten));
        assert_eq!((object.write_back(0..1), w.vm.event(Event::FileWriteFailed)), (Ok(()), 1));
        assert!(object.object_page_state(1).unwrap().dirty);
        check(w.vm, &[w.space]);
        storage.set(Writes::End);
        assert_eq!((object.write_back(ALL), storage.byte(PAGE), storage.byte(2 * PAGE)), (Ok(()), 2, 2));
        assert_eq!(WriteBackError::NotWritten.errno(), Errno::EIO);
    });
}

/// Reads, stores and more writes go on while a write is under way; what is stored then is written once more.
#[test]
fn a_store_while_its_page_is_written_is_written_later() {
    in_each_setup(3, 16 << 20, |w| {
        let (storage, object) = storage(w, 8 * PAGE, orders(0, 2));
        map(w.space, BASE, 8, &object, 0);
        store(w, 1, 2);
        storage.set(Writes::Stay);
        let write_back = |cpu| {
            let _cpu = w.vm.machine().bind(CpuId(cpu)).unwrap();
            object.write_back(ALL)
        };
        thread::scope(|scope| {
            let first = scope.spawn(|| write_back(1));
            wait_until(|| storage.nr_kept() == 1);
            assert_eq!(bytes(w.space, BASE + PAGE), [2]);
            store(w, 1, 3);
            let second = scope.spawn(|| write_back(2));
            wait_until(|| w.vm.event(Event::Waited) > 1);
            assert_eq!(storage.nr_kept(), 1, "one write of a folio at a time");
            storage.set(Writes::End);
            let write = storage.take();
            w.vm.written(write, Ok(())).unwrap();
            assert_eq!((first.join().unwrap(), second.join().unwrap()), (Ok(()), Ok(())));
        });
        assert_eq!(storage.byte(PAGE), 3);
        assert!(!object.object_page_state(1).unwrap().dirty);
    });
}

/// A call that takes pages out, moves them, or ends their object does not wait; the frames come back with the end of the write.
#[test]
fn writes_that_never_end_harm_nobody_else() {
    in_each_setup(2, 16 << 20, |w| {
        type Remove<'a> = &'a dyn Fn(&common::objects::Object<'_>);
        let removals: [Remove<'_>; 4] = [
            &|object| object.discard(0..4),
            &|object| object.set_size_bytes(0),
            &|object| object.discard(1..2),
            &|object| object.zero(PAGE..2 * PAGE).unwrap(),
        ];
        // The frames that the space keeps of its first mapping.
        let (_storage, other) = storage(w, PAGE, BASE_ORDERS);
        map(w.space, BASE, 1, &other, 0);
        w.space.munmap(BASE, PAGE).unwrap();
        for (i, remove) in removals.into_iter().enumerate() {
            let nr_free = w.vm.vmstat().nr_free_pages;
            let (storage, object) = storage(w, 4 * PAGE, orders(2, 2));
            map(w.space, BASE, 4, &object, 0);
            store(w, 1, 2);
            storage.set(Writes::Stay);
            thread::scope(|scope| {
                let write_back = scope.spawn(|| {
                    let _cpu = w.vm.machine().bind(CpuId(1)).unwrap();
                    object.write_back(ALL)
                });
                wait_until(|| storage.nr_kept() == 1);
                let pfn = common::objects::faulted_frame(w.space, BASE);
                assert_eq!(w.vm.migrate_frame(pfn), Err(MigrateRefusal::UnderWrite));
                assert!(w.vm.poison_frame(pfn).is_err());
                w.space.write(BASE + 2 * PAGE, &[3]).unwrap();
                let pin = w.space.pin_page_mut(BASE, Term::Long).unwrap();
                remove(&object);
                if i < 3 {
                    assert_eq!(object.read(PAGE, &mut [0]), usize::from(i != 1));
                }
                drop(pin);
                if i < 2 {
                    // It is not this object's write any more.
                    assert_eq!(write_back.join().unwrap(), Ok(()));
                    storage.end_one(w.vm, Ok(()));
                } else {
                    storage.end_one(w.vm, Ok(()));
                    storage.set(Writes::End);
                    assert_eq!(write_back.join().unwrap(), Ok(()));
                }
            });
            check(w.vm, &[w.space]);
            w.space.munmap(BASE, 4 * PAGE).unwrap();
            drop(object);
            assert_eq!(w.vm.vmstat().nr_free_pages, nr_free, "{i}");
        }
    });
}

#[test]
fn an_object_ends_after_its_last_write() {
    in_each_setup(2, 16 << 20, |w| {
        let nr_free = w.vm.vmstat().nr_free_pages;
        let (storage, object) = storage(w, 4 * PAGE, orders(0, 2));
        object.write(0, &[2]).unwrap();
        storage.set(Writes::Stay);
        thread::scope(|scope| {
            let write_back = scope.spawn(|| {
                let _cpu = w.vm.machine().bind(CpuId(1)).unwrap();
                object.write_back(ALL)
            });
            wait_until(|| storage.nr_kept() == 1);
            let write = storage.take();
            storage.set(Writes::End);
            assert_eq!(w.vm.written(write, Err(WriteError)), Ok(()));
            assert_eq!(write_back.join().unwrap(), Err(WriteBackError::NotWritten));
        });
        drop(object);
        assert_eq!(w.vm.vmstat().nr_free_pages, nr_free);
    });
}

/// Three CPUs store while another writes back, discards other pages and reads: in the end the file has all that the object
/// has.
#[test]
fn no_store_is_lost() {
    in_setup(Setup::PLAIN, 4, 16 << 20, |w| {
        for sizes in [BASE_ORDERS, orders(0, 3)] {
            let nr_pages = 64;
            let (storage, object) = storage(w, nr_pages * PAGE, sizes);
            map(w.space, BASE, nr_pages, &object, 0);
            let store = |cpu: u64| {
                move |running: &Running<'_>, stop: &AtomicBool| {
                    let mut random = Random::new(cpu);
                    while !stop.load(SeqCst) {
                        let at = random.below(nr_pages) * PAGE + cpu * 64;
                        running.store(BASE + at, &[random.below(256) as u8]).unwrap();
                    }
                }
            };
            w.race(&[&store(1), &store(2), &store(3)], |_| {
                let (before, mut nr) = (w.vm.event(Event::FileFirstStore), 0);
                while w.vm.event(Event::FileFirstStore) < before + 200 {
                    object.write_back(nr % 8 * 8..nr % 8 * 8 + 24).unwrap();
                    nr += 1;
                }
            });
            object.write_back(ALL).unwrap();
            for at in (0..nr_pages).flat_map(|page| (1..4).map(move |cpu| page * PAGE + cpu * 64)) {
                assert_eq!(content(&object, at), [storage.byte(at)], "at {at}");
            }
            w.space.munmap(BASE, nr_pages * PAGE).unwrap();
        }
    });
}

/// msync(2): what is mapped of the range is written, also where a page is not mapped; nothing else is.
#[test]
fn msync_writes_the_files_of_a_range() {
    in_each_setup(1, 16 << 20, |w| {
        let (storage, object) = storage(w, 16 * PAGE, BASE_ORDERS);
        map(w.space, BASE, 4, &object, 0);
        map(w.space, BASE + 8 * PAGE, 4, &object, 8);
        let sync = |first: u64, nr: u64, flags| w.space.msync(BASE + first * PAGE, nr * PAGE - 1, flags);
        [1, 2, 9].iter().for_each(|page| store(w, *page, 7));
        assert_eq!((sync(0, 2, MsyncFlags::ASYNC), storage.log()), (Ok(()), vec![]));
        assert_eq!((sync(0, 2, MsyncFlags::SYNC), storage.log()), (Ok(()), vec![(1, PAGE)]));
        assert_eq!((sync(2, 8, MsyncFlags::SYNC), storage.log().len()), (Err(MsyncError::NotMapped), 2));
        assert_eq!(sync(10, 8, MsyncFlags::SYNC), Err(MsyncError::NotMapped), "a hole at the end");
        assert_eq!([1, 2, 9].map(|page| storage.byte(page * PAGE)), [7; 3]);
        // A private mapping does not speak for the file.
        let part = whole(&object).with_offset_bytes(12 * PAGE);
        w.space.mmap_object(BASE + 12 * PAGE, PAGE, RW, MapFlags::PRIVATE | FIXED, part).unwrap();
        object.write(12 * PAGE + 1, &[6]).unwrap();
        store(w, 12, 7);
        assert_eq!((sync(12, 1, MsyncFlags::SYNC), storage.log(), storage.byte(12 * PAGE)), (Ok(()), vec![], 1));
        storage.set(Writes::Fail);
        store(w, 1, 8);
        assert_eq!(sync(0, 4, MsyncFlags::SYNC), Err(MsyncError::NotWritten));
        storage.set(Writes::End);
        assert_eq!((sync(0, 4, MsyncFlags::SYNC), storage.byte(PAGE)), (Ok(()), 8));
        let errno = |addr, len, flags| w.space.msync(addr, len, MsyncFlags::from_linux(flags)).map_err(|e| e.errno());
        assert_eq!(errno(BASE, PAGE, 5), Err(Errno::EINVAL));
        assert_eq!(errno(BASE, PAGE, 8), Err(Errno::EINVAL));
        assert_eq!(errno(BASE + 1, PAGE, 4), Err(Errno::EINVAL));
        assert_eq!(errno(BASE, u64::MAX, 4), Ok(()), "as on Linux, the length wraps to none");
        assert_eq!(errno(BASE, u64::MAX - PAGE, 4), Err(Errno::ENOMEM));
        w.space.mlock(BASE, PAGE, MlockFlags::empty()).unwrap();
        assert_eq!(errno(BASE, PAGE, 2), Err(Errno::EBUSY));
        assert_eq!(errno(BASE, 0, 2), Ok(()));
    });
}

/// A program stores to a file four times as large as memory: nobody is refused, and the file has all of it.
#[test]
fn a_file_larger_than_memory_is_stored_to() {
    const ARENA_PAGES: u64 = 4096;
    for sizes in [BASE_ORDERS, orders(0, 4)] {
        in_setup(Setup::PLAIN, 1, ARENA_PAGES * PAGE, |w| {
            let nr_pages = 4 * ARENA_PAGES;
            let (storage, object) = storage(w, nr_pages * PAGE, sizes);
            map(w.space, BASE, nr_pages, &object, 0);
            (0..nr_pages).for_each(|page| store(w, page, page as u8 | 1));
            assert_eq!((w.vm.event(Event::RefusedOutOfFrames), w.vm.event(Event::RefusedNotRead)), (0, 0));
            assert_eq!(object.write_back(ALL), Ok(()));
            (0..nr_pages).for_each(|page| assert_eq!(storage.byte(page * PAGE), page as u8 | 1, "page {page}"));
        });
    }
}

/// Writes that never end, or fail, refuse an allocation, and lose nothing.
#[test]
fn where_nothing_can_be_written_an_allocation_is_refused() {
    const ARENA_PAGES: u64 = 2048;
    in_setup(Setup::PLAIN, 1, ARENA_PAGES * PAGE, |w| {
        let (storage, object) = storage(w, 2 * ARENA_PAGES * PAGE, BASE_ORDERS);
        map(w.space, BASE, 2 * ARENA_PAGES, &object, 0);
        for writes in [Writes::Fail, Writes::Stay] {
            storage.set(writes);
            let refused = (0..2 * ARENA_PAGES).find(|page| w.space.write(BASE + page * PAGE, &[7]).is_err()).unwrap();
            assert!(refused > ARENA_PAGES / 2, "page {refused}");
            (0..refused).for_each(|page| assert_eq!(bytes(w.space, BASE + page * PAGE), [7], "page {page}"));
        }
        storage.set(Writes::End);
        (0..storage.nr_kept()).for_each(|_| storage.end_one(w.vm, Ok(())));
        (0..2 * ARENA_PAGES).for_each(|page| store(w, page, 9));
        let _failed = object.write_back(ALL);
        assert_eq!(object.write_back(ALL), Ok(()));
        (0..2 * ARENA_PAGES).for_each(|page| assert_eq!(storage.byte(page * PAGE), 9, "page {page}"));
    });
}
