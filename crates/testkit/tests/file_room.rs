//! Room in the storage of a file, and frames while its pages are read and written: what is asked for, and what is refused.
#![deny(unsafe_code)]

mod common;

use common::files::{Reads, file};
use common::objects::{EXTRA, Object, content, map, orders, touch};
use common::storage::{Storage, Writes, storage};
use common::*;
use softfault::policy::folio::FolioOrders;
use softfault::{Access, Advice, CpuId, Errno, Event, FaultError, ObjectWriteError, StorageId, Term, WriteError};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

const ALL: std::ops::Range<u64> = 0..u64::MAX;
const BASE_ORDERS: FolioOrders = FolioOrders::BASE;

fn store(w: &World<'_>, page: u64, byte: u8) {
    w.space.write(BASE + page * PAGE, &[byte]).unwrap();
}

/// SIGBUS or ENOSPC where the machine has no room; what is dirty, or private, is stored to all the same.
#[test]
fn a_file_without_room_refuses_the_store() {
    in_each_setup(1, 16 << 20, |w| {
        for is_mapped in [false, true] {
            let (storage, object) = storage(w, 8 * PAGE, BASE_ORDERS);
            map(w.space, BASE, 8, &object, 0);
            store(w, 2, 2);
            storage.set_full_from(2);
            if is_mapped {
                w.space.handle_fault(BASE + 4 * PAGE, Access::Read).unwrap();
            }
            let before = w.vm.event(Event::RefusedNoRoom);
            assert_eq!(touch(w.space, BASE + 4 * PAGE), Err(FaultError::NoRoom));
            assert_eq!(w.vm.event(Event::RefusedNoRoom), before + 1);
            assert_eq!(object.write(3 * PAGE, &[1]), Err(ObjectWriteError::NoRoom));
            assert_eq!(object.write(3 * PAGE, &[1]).unwrap_err().errno(), Errno::ENOSPC);
            store(w, 2, 3);
            store(w, 1, 3);
            assert!(!object.object_page_state(4).unwrap().dirty);
            w.space.mmap_object(EXTRA, PAGE, RW, PRIVATE | FIXED, common::objects::whole(&object)).unwrap();
            w.space.write(EXTRA, &[9]).unwrap();
            storage.set_full_from(u64::MAX);
            store(w, 4, 4);
            assert_eq!((object.write_back(ALL), storage.byte(4 * PAGE), storage.byte(0)), (Ok(()), 4, 1));
            w.space.munmap(BASE, 8 * PAGE).unwrap();
        }
    });
}

/// A folio is written as a whole, so there must be room for all of its pages, up to the size.
#[test]
fn room_is_for_the_folio() {
    in_each_setup(1, 16 << 20, |w| {
        let (storage, object) = storage(w, 8 * PAGE, orders(2, 2));
        map(w.space, BASE, 8, &object, 0);
        storage.set_full_from(5);
        for is_mapped in [false, true] {
            if is_mapped {
                w.space.handle_fault(BASE + 4 * PAGE, Access::Read).unwrap();
            }
            assert_eq!(touch(w.space, BASE + 4 * PAGE), Err(FaultError::NoRoom));
            assert_eq!(object.write(4 * PAGE, &[1]), Err(ObjectWriteError::NoRoom));
            assert_eq!(object.write(3 * PAGE, &[1; 2 * PAGE as usize]), Err(ObjectWriteError::NoRoom));
            if is_mapped {
                assert_eq!(object.zero(4 * PAGE..4 * PAGE + 1), Err(ObjectWriteError::NoRoom));
            }
            (0..8).for_each(|page| assert!(!object.object_page_state(page).is_some_and(|state| state.dirty)));
        }
        object.set_size_bytes(5 * PAGE);
        // The pages behind it were zeroed.
        assert_eq!(object.write_back(ALL), Ok(()));
        store(w, 4, 2);
        assert_eq!(object.write(3 * PAGE + 1, &[3]), Ok(()));
        assert_eq!(object.write_back(ALL), Ok(()));
        assert_eq!((storage.byte(4 * PAGE), storage.byte(3 * PAGE + 1)), (2, 3));
    });
}

/// The room of a dirty folio is there, whichever page of it is stored to and however. A write of several pages that needs more is
/// refused, and changes none of them.
#[test]
fn a_dirty_folio_needs_no_more_room() {
    in_each_setup(1, 16 << 20, |w| {
        for sizes in [BASE_ORDERS, orders(2, 2)] {
            let (storage, object) = storage(w, 12 * PAGE, sizes);
            map(w.space, BASE, 12, &object, 0);
            store(w, 5, 2);
            storage.set_full_from(0);
            let dirty = if sizes == BASE_ORDERS { 5..6 } else { 4..8 };
            for page in dirty.clone() {
                store(w, page, 3);
                assert_eq!(object.write(page * PAGE + 1, &[4]), Ok(()), "page {page}");
                assert_eq!(object.zero(page * PAGE + 2..page * PAGE + 3), Ok(()), "page {page}");
                assert_eq!(content::<3>(&object, page * PAGE), [3, 4, 0], "page {page}");
            }
            let before = content::<{ 12 * PAGE as usize }>(&object, 0);
            for at in [dirty.start * PAGE - 1, (dirty.end - 1) * PAGE + 1] {
                assert_eq!(object.write(at, &[9; 2 * PAGE as usize]), Err(ObjectWriteError::NoRoom), "at {at}");
            }
            assert!(content::<{ 12 * PAGE as usize }>(&object, 0) == before, "a write that was refused");
            assert_eq!((object.write_back(ALL), storage.byte(5 * PAGE), storage.byte(5 * PAGE + 1)), (Ok(()), 3, 4));
            assert_eq!(object.write(5 * PAGE, &[5]), Err(ObjectWriteError::NoRoom), "the folio is clean");
            w.space.munmap(BASE, 12 * PAGE).unwrap();
        }
    });
}

/// The file grows while the machine is asked for room: it is asked again, for the pages that the folio has now.
#[test]
fn room_for_a_part_of_a_folio_is_not_enough() {
    in_setup(Setup::PLAIN, 2, 16 << 20, |w| {
        let (storage, object) = storage(w, PAGE, orders(1, 1));
        map(w.space, BASE, 1, &object, 0);
        w.space.handle_fault(BASE, Access::Read).unwrap();
        let (asked, done) = (&*Box::leak(Box::new(Barrier::new(2))), &*Box::leak(Box::new(Barrier::new(2))));
        *storage.before_room.lock().unwrap() = Some(Box::new(move || {
            asked.wait();
            done.wait();
        }));
        storage.set_full_from(1);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _cpu = w.vm.machine().bind(CpuId(1)).unwrap();
                asked.wait();
                // The zeroes behind the old end are dirty.
                object.set_size_bytes(2 * PAGE);
                object.write_back(ALL).unwrap();
                done.wait();
            });
            assert!(w.space.handle_fault(BASE, Access::Write).is_err());
        });
        storage.set_full_from(2);
        assert!(w.space.handle_fault(BASE, Access::Write).is_ok());
    });
}

/// While a store waits for the machine's answer another one makes the folio dirty, with the last room that there is.
#[test]
fn the_room_of_another_store_is_enough() {
    in_each_setup(2, 16 << 20, |w| {
        type Store<'a> = &'a dyn Fn(&Object<'_>);
        let stores: [Store<'_>; 4] = [
            &|_| store(w, 1, 3),
            &|object| object.write(PAGE, &[3]).unwrap(),
            &|object| object.zero(PAGE..PAGE + 1).unwrap(),
            &|_| drop(w.space.pin_page_mut(BASE + PAGE, Term::Short).unwrap()),
        ];
        for (i, another) in stores.into_iter().enumerate() {
            let (storage, object) = storage(w, 4 * PAGE, BASE_ORDERS);
            map(w.space, BASE, 4, &object, 0);
            w.space.handle_fault(BASE + PAGE, Access::Read).unwrap();
            let (asked, done) = (&*Box::leak(Box::new(Barrier::new(2))), &*Box::leak(Box::new(Barrier::new(2))));
            *storage.before_room.lock().unwrap() = Some(Box::new(move || {
                asked.wait();
                done.wait();
            }));
            thread::scope(|scope| {
                scope.spawn(|| {
                    let _cpu = w.vm.machine().bind(CpuId(1)).unwrap();
                    asked.wait();
                    object.write(PAGE + 1, &[2]).unwrap();
                    storage.set_full_from(0);
                    done.wait();
                });
                another(&object);
            });
            assert_eq!(content::<2>(&object, PAGE), [[3, 2], [3, 2], [0, 2], [1, 2]][i]);
            assert_eq!(object.write(2 * PAGE, &[1]), Err(ObjectWriteError::NoRoom));
            w.space.munmap(BASE, 4 * PAGE).unwrap();
        }
    });
}

/// Of dirty pages that are far apart, many are written before an allocation is refused.
#[test]
fn dirty_pages_far_apart_are_written_together() {
    in_setup(Setup::PLAIN, 1, 1024 * PAGE, |w| {
        let files: Vec<_> = (0..200).map(|_| storage(w, PAGE, BASE_ORDERS)).collect();
        for (i, (_, object)) in files.iter().enumerate() {
            map(w.space, BASE + i as u64 * PAGE, 1, object, 0);
            store(w, i as u64, 7);
        }
        assert_eq!(w.vm.event(Event::FileWritten), 0);
        let refused = (0..1024).find(|page| {
            w.space.mmap(EXTRA + page * PAGE, PAGE, RW, PRIVATE | FIXED).unwrap();
            w.space.write(EXTRA + page * PAGE, &[1]).unwrap();
            w.vm.event(Event::FileWritten) > 0
        });
        assert!(refused.is_some());
        assert!(w.vm.event(Event::FileWritten) >= 64, "{}", w.vm.event(Event::FileWritten));
        assert_eq!(w.vm.event(Event::RefusedOutOfFrames), 0);
    });
}

/// Pages in transit cannot be dropped. Advice leaves frames to others, also after some reads have ended.
#[test]
fn advice_does_not_put_all_memory_in_transit() {
    in_setup(Setup::PLAIN, 1, 4096 * PAGE, |w| {
        let (file, object) = file(w, 8192 * PAGE, BASE_ORDERS);
        file.set(Reads::Stay);
        map(w.space, BASE, 8192, &object, 0);
        for _ in 0..2 {
            w.space.madvise(BASE, 8192 * PAGE, Advice::WillNeed).unwrap();
            assert!((256..1024).contains(&file.nr_kept()), "{}", file.nr_kept());
            (100..file.nr_kept()).for_each(|_| file.end_one(w.vm, Ok(())));
        }
        // Pages that a program touches are read.
        let nr_kept = file.nr_kept();
        w.space.mmap(EXTRA, 8 * PAGE, RW, PRIVATE | FIXED).unwrap();
        (0..8).for_each(|page| w.space.write(EXTRA + page * PAGE, &[1]).unwrap());
        (0..nr_kept).for_each(|_| file.end_one(w.vm, Ok(())));
    });
}

/// A page that has left the file is not dirty any more, and nothing of it is lost.
#[test]
fn a_failed_write_of_what_has_left_is_no_error() {
    in_each_setup(1, 16 << 20, |w| {
        for has_left in [false, true] {
            let (storage, object) = storage(w, 4 * PAGE, BASE_ORDERS);
            map(w.space, BASE, 4, &object, 0);
            store(w, 1, 2);
            storage.set(Writes::Stay);
            w.space.madvise(BASE, 4 * PAGE, Advice::PageOut).unwrap();
            assert_eq!(storage.nr_kept(), 1);
            if has_left {
                object.discard(1..2);
            }
            storage.end_one(w.vm, Err(WriteError));
            storage.set(Writes::End);
            assert_eq!(object.write_back(ALL).is_ok(), has_left);
            w.space.munmap(BASE, 4 * PAGE).unwrap();
        }
    });
}

const ARENA_PAGES: u64 = 2048;
const BLOCKED: u64 = BASE + (1 << 30);

/// In the end writes are answered, also if the test fails.
struct Answered<'a>(&'a Storage);

impl Drop for Answered<'_> {
    fn drop(&mut self) {
        self.0.set(Writes::End);
    }
}

/// Memory is half a program's own, and half dirty pages of a file. CPU 1 stores to more of them, is refused and writes: that
/// call lasts for as long as `meanwhile`.
fn while_a_write_blocks(w: &World<'_>, blocked: &Storage, meanwhile: impl FnOnce()) {
    w.space.mmap(EXTRA, ARENA_PAGES * PAGE, RW, PRIVATE | FIXED).unwrap();
    (0..ARENA_PAGES / 2).for_each(|page| w.space.write(EXTRA + page * PAGE, &[1]).unwrap());
    blocked.set(Writes::Block);
    thread::scope(|scope| {
        let answered = Answered(blocked);
        let stores = scope.spawn(|| {
            let _cpu = w.vm.machine().bind(CpuId(1)).unwrap();
            (0..ARENA_PAGES).all(|page| w.space.write(BLOCKED + page * PAGE, &[7]).is_ok())
        });
        wait_until(|| blocked.nr_blocked() == 1);
        meanwhile();
        drop(answered);
        assert!(stores.join().unwrap(), "it waits, and is not refused");
    });
}

/// Takes what is left of memory.
fn is_refused(w: &World<'_>) -> bool {
    (ARENA_PAGES / 2..ARENA_PAGES).any(|page| w.space.write(EXTRA + page * PAGE, &[1]).is_err())
}

/// Others drop clean pages and write to other files. If there is nothing else, they are refused.
#[test]
fn a_write_that_blocks_for_ever_stops_nobody_else() {
    in_setup(Setup::PLAIN, 2, ARENA_PAGES * PAGE, |w| {
        let (blocked, its) = storage(w, ARENA_PAGES * PAGE, BASE_ORDERS);
        let (other, object) = storage(w, 4 * ARENA_PAGES * PAGE, BASE_ORDERS);
        map(w.space, BLOCKED, ARENA_PAGES, &its, 0);
        map(w.space, BASE, 4 * ARENA_PAGES, &object, 0);
        while_a_write_blocks(w, &blocked, || {
            assert!(is_refused(w));
            w.space.munmap(EXTRA, ARENA_PAGES * PAGE).unwrap();
            let nr_refused = w.vm.event(Event::RefusedOutOfFrames);
            (0..4 * ARENA_PAGES).for_each(|page| store(w, page, page as u8 | 1));
            assert_eq!(object.write_back(ALL), Ok(()));
            (0..4 * ARENA_PAGES).for_each(|page| {
                assert_eq!(common::objects::bytes(w.space, BASE + page * PAGE), [page as u8 | 1]);
                assert_eq!(other.byte(page * PAGE), page as u8 | 1);
            });
            assert_eq!((w.vm.event(Event::RefusedOutOfFrames), blocked.nr_blocked()), (nr_refused, 1));
        });
        assert_eq!(its.write_back(ALL), Ok(()));
        (0..ARENA_PAGES).for_each(|page| assert_eq!(blocked.byte(page * PAGE), 7, "page {page}"));
    });
}

/// One caller waits for the device. No other one calls it, for any of its files.
#[test]
fn a_device_that_does_not_answer_keeps_one_caller() {
    in_setup(Setup::PLAIN, 2, ARENA_PAGES * PAGE, |w| {
        let (blocked, its) = storage(w, ARENA_PAGES * PAGE, BASE_ORDERS);
        let (beside, object) = storage(w, ARENA_PAGES * PAGE, BASE_ORDERS);
        [&blocked, &beside].iter().for_each(|file| file.device.set(StorageId(77)).unwrap());
        map(w.space, BLOCKED, ARENA_PAGES, &its, 0);
        map(w.space, BASE, ARENA_PAGES, &object, 0);
        while_a_write_blocks(w, &blocked, || {
            w.space.munmap(EXTRA, ARENA_PAGES * PAGE).unwrap();
            beside.set(Writes::Block);
            let _answered = Answered(&beside);
            let refused = (0..ARENA_PAGES).find(|page| w.space.write(BASE + page * PAGE, &[9]).is_err());
            assert!(refused.is_some_and(|page| page > ARENA_PAGES / 4), "{refused:?}");
            assert_eq!((beside.nr_blocked(), beside.log()), (0, vec![]));
        });
        (0..ARENA_PAGES).for_each(|page| store(w, page, 9));
        assert_eq!(object.write_back(ALL), Ok(()));
    });
}

/// A caller that finds nothing else waits for the answer that another one gets, and is not refused.
#[test]
fn a_caller_waits_for_the_write_of_another() {
    in_setup(Setup::PLAIN, 2, ARENA_PAGES * PAGE, |w| {
        let (blocked, its) = storage(w, ARENA_PAGES * PAGE, BASE_ORDERS);
        map(w.space, BLOCKED, ARENA_PAGES, &its, 0);
        let (nr_left, answers) = (std::sync::Arc::new(AtomicU64::new(u64::MAX)), blocked.clone());
        let hook = nr_left.clone();
        let wait = move || {
            if hook.fetch_sub(1, SeqCst) == 0 {
                answers.set(Writes::End);
            }
        };
        assert!(w.vm.machine().on_wait(Box::new(wait)).is_ok());
        while_a_write_blocks(w, &blocked, || {
            nr_left.store(1000, SeqCst);
            let mut pages = ARENA_PAGES / 2..ARENA_PAGES / 2 + 128;
            assert!(pages.all(|page| w.space.write(EXTRA + page * PAGE, &[1]).is_ok()));
            assert!(nr_left.load(SeqCst) > 1000, "it did not wait");
        });
    });
}
