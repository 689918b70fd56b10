//! Holes that programs make in what they have mapped (`MADV_REMOVE`): in memory, and in files whose storage takes part.
#![deny(unsafe_code)]

mod common;

use common::objects::{EXTRA, bytes, content, map, object, orders, whole};
use common::storage::{Writes, storage};
use common::*;
use softfault::policy::folio::FolioOrders;
use softfault::{Access, Advice, CpuId, Event, HoleRefused, MadviseError, MapFlags, MlockFlags};
use std::sync::Barrier;
use std::thread;

const BASE_ORDERS: FolioOrders = FolioOrders::BASE;
const ALL: std::ops::Range<u64> = 0..u64::MAX;

fn remove(space: &Space<'_>, at: u64, nr_pages: u64) -> Result<(), MadviseError> {
    space.madvise(at, nr_pages * PAGE, Advice::Remove)
}

/// In memory: zero for all that map it, but for private copies; the handle agrees, and the size stays.
#[test]
fn a_hole_is_zero_for_everybody() {
    in_each_setup(1, 16 << 20, |w| {
        for sizes in [BASE_ORDERS, orders(0, 3), orders(2, 2)] {
            let object = object(w, 16, sizes);
            (0..16).for_each(|page| object.write(page * PAGE, &[page as u8 + 1]).unwrap());
            map(w.space, BASE, 8, &object, 4);
            w.space.mmap_object(EXTRA, 16 * PAGE, RW, MapFlags::PRIVATE | FIXED, whole(&object)).unwrap();
            w.space.write(EXTRA + 6 * PAGE, &[0xc1]).unwrap();
            let child = w.space.fork().unwrap();
            (0..8).for_each(|page| assert_eq!(bytes(&child, BASE + page * PAGE), [page as u8 + 5]));
            let before = w.vm.event(Event::ObjectHole);
            assert_eq!(remove(w.space, BASE + PAGE, 3), Ok(()));
            assert_eq!(w.vm.event(Event::ObjectHole) - before, 3);
            for page in 0..16 {
                let expected = if (5..8).contains(&page) { 0 } else { page as u8 + 1 };
                assert_eq!(content(&object, page * PAGE), [expected], "{sizes:?}, page {page}");
                if (4..12).contains(&page) {
                    assert_eq!(bytes(&child, BASE + (page - 4) * PAGE), [expected], "{sizes:?}, page {page}");
                }
                let private = if page == 6 { 0xc1 } else { expected };
                assert_eq!(bytes(w.space, EXTRA + page * PAGE), [private], "{sizes:?}, page {page}");
            }
            assert_eq!(object.size_bytes(), 16 * PAGE);
            // Beyond the size there is nothing to remove.
            map(w.space, BASE, 8, &object, 14);
            assert_eq!((remove(w.space, BASE + 2 * PAGE, 6), object.size_bytes()), (Ok(()), 16 * PAGE));
            check(w.vm, &[w.space, &child]);
            w.space.munmap(BASE, 8 * PAGE).unwrap();
            w.space.munmap(EXTRA, 16 * PAGE).unwrap();
        }
        let at = w.space.mmap(0, 4 * PAGE, RW, SHARED).unwrap();
        w.space.write(at, &[1]).unwrap();
        assert_eq!((remove(w.space, at, 4), bytes(w.space, at)), (Ok(()), [0]), "memory without a handle, too");
        w.space.munmap(at, 4 * PAGE).unwrap();
    });
}

/// As on Linux, VMA by VMA: those before the one that refuses have their holes.
#[test]
fn what_has_no_holes_is_refused() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        let object = object(w, 8, BASE_ORDERS);
        let fill = || (0..8).for_each(|page| object.write(page * PAGE, &[1]).unwrap());
        let holes = || (0..8).filter(|page| content(&object, page * PAGE) == [0]).collect::<Vec<u64>>();
        let refused = |errno| move |result: Result<(), MadviseError>| assert_eq!(result, Err(errno));
        let part = |may_write| whole(&object).with_may_write(may_write);
        let second = BASE + 4 * PAGE;
        let map_second = |flags, may_write| w.space.mmap_object(second, 4 * PAGE, READ, flags | FIXED, part(may_write));
        map(w.space, BASE, 4, &object, 0);
        fill();

        map_second(MapFlags::PRIVATE, true).unwrap();
        refused(MadviseError::NotShared)(remove(w.space, BASE + 3 * PAGE, 2));
        assert_eq!(holes(), [3]);
        map_second(MapFlags::SHARED, false).unwrap();
        refused(MadviseError::NotShared)(remove(w.space, BASE + 2 * PAGE, 3));
        assert_eq!(holes(), [2, 3]);
        // Read-only, but it may become writable.
        map_second(MapFlags::SHARED, true).unwrap();
        assert_eq!((remove(w.space, second, 1), holes()), (Ok(()), vec![0, 2, 3]));

        fill();
        w.map(second, 4, RW);
        refused(MadviseError::WrongMapping)(remove(w.space, BASE, 8));
        assert_eq!(holes(), [0, 1, 2, 3]);
        fill();
        w.space.munmap(second, 4 * PAGE).unwrap();
        refused(MadviseError::NotMapped)(remove(w.space, BASE + 3 * PAGE, 2));
        map(w.space, second + PAGE, 1, &object, 7);
        refused(MadviseError::NotMapped)(remove(w.space, BASE + 3 * PAGE, 3));
        assert_eq!(holes(), [3, 7], "what lies behind a gap is treated");
        fill();
        w.space.mlock(BASE + PAGE, PAGE, MlockFlags::empty()).unwrap();
        refused(MadviseError::WrongMapping)(remove(w.space, BASE, 4));
        assert_eq!(holes(), [0]);
        let explicit = w.vm.new_explicit_object(4 * PAGE, BASE_ORDERS).unwrap();
        explicit.install(0, &[1]).unwrap();
        map(w.space, BASE, 4, &explicit, 0);
        refused(MadviseError::NoHoles)(remove(w.space, BASE, 4));
        assert_eq!(bytes(w.space, BASE), [1]);
    });
}

/// The storage has the hole as well, clean or dirty; a file that refuses keeps its pages.
#[test]
fn a_hole_is_in_the_storage() {
    in_each_setup(1, 16 << 20, |w| {
        for sizes in [BASE_ORDERS, orders(0, 3)] {
            let (storage, object) = storage(w, 16 * PAGE, sizes);
            map(w.space, BASE, 8, &object, 8);
            for (refusal, error) in [
                (HoleRefused::Unsupported, MadviseError::NoHoles),
                (HoleRefused::Sealed, MadviseError::Sealed),
                (HoleRefused::NotWritten, MadviseError::NotWritten),
            ] {
                *storage.hole.lock().unwrap() = Err(refusal);
                let before = w.vm.event(Event::ObjectHole);
                assert_eq!((remove(w.space, BASE, 2), bytes(w.space, BASE)), (Err(error), [1]));
                assert_eq!((w.vm.event(Event::ObjectHole), storage.byte(8 * PAGE)), (before, 1));
            }
            *storage.hole.lock().unwrap() = Ok(());
            w.space.write(BASE + PAGE, &[2]).unwrap();
            assert_eq!(remove(w.space, BASE + PAGE, 2), Ok(()));
            object.write_back(ALL).unwrap();
            for page in 0..16 {
                let expected = if (9..11).contains(&page) { 0 } else { 1 };
                assert_eq!(
                    (storage.byte(page * PAGE), content(&object, page * PAGE)),
                    (expected, [expected]),
                    "{page}"
                );
            }
            w.space.munmap(BASE, 8 * PAGE).unwrap();
        }
    });
}

/// Whoever reads the page while the hole is made may see the old bytes, but not afterwards.
#[test]
fn a_read_that_comes_between_is_taken_out() {
    in_each_setup(2, 16 << 20, |w| {
        let (storage, object) = storage(w, 4 * PAGE, BASE_ORDERS);
        map(w.space, BASE, 4, &object, 0);
        let (asked, done) = (&*Box::leak(Box::new(Barrier::new(2))), &*Box::leak(Box::new(Barrier::new(2))));
        *storage.before_hole.lock().unwrap() = Some(Box::new(move || {
            asked.wait();
            done.wait();
        }));
        thread::scope(|scope| {
            scope.spawn(|| {
                let _cpu = w.vm.machine().bind(CpuId(1)).unwrap();
                asked.wait();
                w.space.handle_fault(BASE + PAGE, Access::Read).unwrap();
                done.wait();
            });
            assert_eq!(remove(w.space, BASE + PAGE, 1), Ok(()));
        });
        assert_eq!((bytes(w.space, BASE + PAGE), storage.byte(PAGE)), ([0], 0));
    });
}

/// A write that was under way when the hole was made ends later, and does not bring the old bytes back; the hole does not
/// wait for it.
#[test]
fn a_late_write_leaves_the_hole_alone() {
    in_each_setup(2, 16 << 20, |w| {
        let (storage, object) = storage(w, 4 * PAGE, BASE_ORDERS);
        map(w.space, BASE, 4, &object, 0);
        w.space.write(BASE + PAGE, &[2]).unwrap();
        storage.set(Writes::Stay);
        thread::scope(|scope| {
            let write_back = scope.spawn(|| {
                let _cpu = w.vm.machine().bind(CpuId(1)).unwrap();
                object.write_back(ALL)
            });
            wait_until(|| storage.nr_kept() == 1);
            assert_eq!(remove(w.space, BASE + PAGE, 1), Ok(()));
            assert_eq!(write_back.join().unwrap(), Ok(()), "it is not this object's write any more");
        });
        storage.end_one(w.vm, Ok(()));
        assert_eq!((bytes(w.space, BASE + PAGE), storage.byte(PAGE)), ([0], 0));
    });
}

/// Three CPUs store to and read a file in which another makes holes and writes back: in the end the storage has what the
/// object has.
#[test]
fn holes_against_stores_and_writes() {
    in_setup(Setup::PLAIN, 4, 16 << 20, |w| {
        let (storage, object) = storage(w, 32 * PAGE, orders(0, 2));
        map(w.space, BASE, 32, &object, 0);
        let actor = |cpu: u64| {
            move |running: &softfault_host::Running<'_>, stop: &std::sync::atomic::AtomicBool| {
                let mut random = softfault_testkit::random::Random::new(cpu);
                while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                    let at = BASE + random.below(32) * PAGE + cpu * 64;
                    running.store(at, &[random.below(256) as u8]).unwrap();
                }
            }
        };
        w.race(&[&actor(1), &actor(2), &actor(3)], |_| {
            for i in 0..100 {
                assert_eq!(remove(w.space, BASE + i % 29 * PAGE, 3), Ok(()));
                object.write_back(i % 8 * 4..i % 8 * 4 + 12).unwrap();
            }
        });
        object.write_back(ALL).unwrap();
        for at in (0..32).flat_map(|page| (1..4).map(move |cpu| page * PAGE + cpu * 64)) {
            assert_eq!(content(&object, at), [storage.byte(at)], "at {at}");
        }
    });
}
