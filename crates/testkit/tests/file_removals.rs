//! A removal has returned: the machine is in no call of `write_back` for what it took out, and none begins.
#![deny(unsafe_code)]

mod common;

use common::objects::{EXTRA, Object, bytes, content, faulted_frame};
use common::plain::{Call, EndsKept, GoesOn, NEW, OLD, Plain, REMOVALS, REMOVED, REMOVED_BYTES, plain};
use common::*;
use softfault::{Advice, CpuId, Event, MigrateRefusal, MsyncFlags};
use std::ops::Range;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

const ALL: Range<u64> = 0..u64::MAX;
const ARENA_PAGES: u64 = 1024;

/// While the writer is in the call for page 0, page 1 is removed, stored to, and written: acknowledged. The old bytes come
/// neither then nor later.
fn removals_beside(write: impl Fn(&Space<'_>, &Plain, &Object<'_>) + Sync) {
    for remove in REMOVALS {
        in_setup(Setup::PLAIN, 2, ARENA_PAGES * PAGE, |w| {
            let ballast = w.space.mmap(EXTRA, 64 * PAGE, RW, PRIVATE | FIXED).unwrap();
            (0..64).for_each(|page| w.space.write(ballast + page * PAGE, &[1]).unwrap());
            let (space, (storage, object)) = (w.space, plain(w, 0));
            thread::scope(|scope| {
                let _goes_on = GoesOn(&storage);
                let writer = scope.spawn(|| {
                    let _cpu = w.vm.machine().bind(CpuId(1)).unwrap();
                    write(space, &storage, &object);
                });
                wait_until(|| storage.is_in_call.load(SeqCst));
                // Frames for the store, if the writer needs all of them.
                w.space.munmap(ballast, 64 * PAGE).unwrap();
                remove(space, &storage, &object);
                storage.has_removed.store(true, SeqCst);
                assert_eq!(content(&object, REMOVED * PAGE), [0], "the old bytes are gone");
                w.space.write(BASE + REMOVED * PAGE, &[NEW]).unwrap();
                assert_eq!(object.write_back(REMOVED..REMOVED + 1), Ok(()));
                assert_eq!(storage.byte(REMOVED), NEW);
                storage.may_go_on.store(true, SeqCst);
                writer.join().unwrap();
            });
            let calls = storage.calls.lock().unwrap();
            let is_late = |call: &Call| call.page == REMOVED && call.byte == OLD && call.is_late;
            assert!(!calls.iter().any(is_late), "{calls:?}");
            // The clean page goes, and comes back from the file.
            w.space.madvise(BASE, 4 * PAGE, Advice::PageOut).unwrap();
            assert_eq!((storage.byte(0), storage.byte(REMOVED)), (OLD, NEW));
            assert_eq!(bytes(w.space, BASE + REMOVED * PAGE), [NEW]);
            check(w.vm, &[w.space]);
        });
    }
}

#[test]
fn removals_beside_write_back() {
    removals_beside(|_, _, object| assert_eq!(object.write_back(ALL), Ok(())));
}

#[test]
fn removals_beside_msync() {
    removals_beside(|space, _, _| assert_eq!(space.msync(BASE, 4 * PAGE, MsyncFlags::SYNC), Ok(())));
}

#[test]
fn removals_beside_paging_out() {
    removals_beside(|space, _, _| assert_eq!(space.madvise(BASE, 4 * PAGE, Advice::PageOut), Ok(())));
}

/// The caller is refused frames, and writes the file for that.
#[test]
fn removals_beside_a_refusal() {
    removals_beside(|space, storage, _| {
        let own = space.mmap(0, ARENA_PAGES * PAGE, RW, PRIVATE).unwrap();
        let stored = (0..ARENA_PAGES).find(|page| {
            space.write(own + page * PAGE, &[1]).unwrap();
            storage.is_in_call.load(SeqCst)
        });
        assert!(stored.is_some(), "nothing was written");
        space.munmap(own, ARENA_PAGES * PAGE).unwrap();
    });
}

/// A removal waits for the call that writes its page, with nothing held, and returns after it. A storage that answers each call
/// when its bytes are stored therefore has no late write.
#[test]
fn a_removal_waits_for_the_call_that_writes_its_page() {
    for remove in REMOVALS {
        in_setup(Setup::PLAIN, 3, 16 << 20, |w| {
            let (space, (storage, object)) = (w.space, plain(w, REMOVED));
            let on_cpu = |cpu| w.vm.machine().bind(CpuId(cpu)).unwrap();
            thread::scope(|scope| {
                let _goes_on = GoesOn(&storage);
                let writer = scope.spawn(|| {
                    let _cpu = on_cpu(1);
                    object.write_back(ALL)
                });
                wait_until(|| storage.is_in_call.load(SeqCst));
                let remover = scope.spawn(|| {
                    let _cpu = on_cpu(2);
                    remove(space, &storage, &object);
                    storage.has_removed.store(true, SeqCst);
                });
                wait_until(|| w.vm.event(Event::Waited) > 0);
                assert!(!storage.has_removed.load(SeqCst));
                // The remover does not hold `resize`, and the page has gone.
                object.discard(3..4);
                assert_eq!(object.nr_resident_pages(), 1);
                w.space.write(BASE, &[OLD]).unwrap();
                check_later(w);
                assert!(!storage.has_removed.load(SeqCst));
                storage.may_go_on.store(true, SeqCst);
                assert_eq!(writer.join().unwrap(), Ok(()));
                remover.join().unwrap();
            });
            // Whatever the call has brought is changed now; nothing comes after it.
            storage.zero(REMOVED_BYTES);
            w.space.write(BASE + REMOVED * PAGE, &[NEW]).unwrap();
            assert_eq!((object.write_back(ALL), storage.byte(0), storage.byte(REMOVED)), (Ok(()), OLD, NEW));
            check(w.vm, &[w.space]);
        });
    }
}

/// While a removal waits for the call that writes its page, the page is stored to and written: the machine is asked after that call,
/// or its old bytes would come last.
#[test]
fn a_store_while_a_removal_waits_stays() {
    for remove in &REMOVALS[1..] {
        in_setup(Setup::PLAIN, 4, 16 << 20, |w| {
            let (space, (storage, object)) = (w.space, plain(w, REMOVED));
            let on_cpu = |cpu| w.vm.machine().bind(CpuId(cpu)).unwrap();
            let nr_waits = || w.vm.event(Event::Waited);
            thread::scope(|scope| {
                let _goes_on = GoesOn(&storage);
                scope.spawn(|| {
                    let _cpu = on_cpu(1);
                    object.write_back(ALL).unwrap();
                });
                wait_until(|| storage.is_in_call.load(SeqCst));
                storage.slow_page.store(u64::MAX, SeqCst);
                scope.spawn(|| {
                    let _cpu = on_cpu(2);
                    remove(space, &storage, &object);
                });
                wait_until(|| nr_waits() > 0);
                w.space.write(BASE + REMOVED * PAGE, &[NEW]).unwrap();
                let before = nr_waits();
                let acknowledged = scope.spawn(|| {
                    let _cpu = on_cpu(3);
                    object.write_back(REMOVED..REMOVED + 1)
                });
                wait_until(|| nr_waits() > before || acknowledged.is_finished());
                storage.may_go_on.store(true, SeqCst);
                assert_eq!(acknowledged.join().unwrap(), Ok(()));
            });
            assert_eq!(storage.byte(REMOVED), NEW);
            check(w.vm, &[w.space]);
        });
    }
}

/// The call ends, and the write goes on: the machine answers *under way* while a removal waits for its call. The removal returns,
/// though nobody ends the write.
#[test]
fn a_removal_does_not_wait_for_a_write_that_goes_on() {
    for remove in REMOVALS {
        in_setup(Setup::PLAIN, 3, 16 << 20, |w| {
            let (space, (storage, object)) = (w.space, plain(w, REMOVED));
            storage.keeps.store(true, SeqCst);
            let on_cpu = |cpu| w.vm.machine().bind(CpuId(cpu)).unwrap();
            thread::scope(|scope| {
                let ends = EndsKept(w.vm, &storage);
                let _goes_on = GoesOn(&storage);
                scope.spawn(|| {
                    let _cpu = on_cpu(1);
                    object.write_back(ALL)
                });
                wait_until(|| storage.is_in_call.load(SeqCst));
                scope.spawn(|| {
                    let _cpu = on_cpu(2);
                    remove(space, &storage, &object);
                    storage.has_removed.store(true, SeqCst);
                });
                wait_until(|| w.vm.event(Event::Waited) > 0);
                storage.may_go_on.store(true, SeqCst);
                wait_until(|| storage.has_removed.load(SeqCst));
                assert_eq!(content(&object, REMOVED * PAGE), [0]);
                drop(ends);
            });
            check(w.vm, &[w.space]);
        });
    }
}

/// Another mapping, whose pages need frames and locks of their own.
fn check_later(w: &World<'_>) {
    let at = w.space.mmap(0, PAGE, RW, PRIVATE).unwrap();
    w.space.write(at, &[1]).unwrap();
    w.space.munmap(at, PAGE).unwrap();
}

/// A write that has ended before the machine's call returns: the folio stays where it is until then, a removal waits, and its
/// frames come back once.
#[test]
fn a_write_ends_before_its_call() {
    in_each_setup(3, 16 << 20, |w| {
        drop(plain(w, u64::MAX));
        w.space.munmap(BASE, 4 * PAGE).unwrap();
        let nr_free = w.vm.vmstat().nr_free_pages;
        for is_removed in [false, true] {
            let (storage, object) = plain(w, REMOVED);
            storage.keeps.store(true, SeqCst);
            let pfn = faulted_frame(w.space, BASE + REMOVED * PAGE);
            let on_cpu = |cpu| w.vm.machine().bind(CpuId(cpu)).unwrap();
            thread::scope(|scope| {
                let _goes_on = GoesOn(&storage);
                let writer = scope.spawn(|| {
                    let _cpu = on_cpu(1);
                    object.write_back(ALL)
                });
                wait_until(|| storage.is_in_call.load(SeqCst));
                let write = storage.kept.lock().unwrap().take().unwrap();
                w.vm.written(write, Ok(())).unwrap();
                assert_eq!(w.vm.migrate_frame(pfn), Err(MigrateRefusal::UnderWrite));
                let before = w.vm.event(Event::Waited);
                let other = scope.spawn(|| {
                    let _cpu = on_cpu(2);
                    if is_removed { object.discard(REMOVED..REMOVED + 1) } else { object.write_back(ALL).unwrap() }
                });
                wait_until(|| w.vm.event(Event::Waited) > before);
                storage.may_go_on.store(true, SeqCst);
                assert_eq!(writer.join().unwrap(), Ok(()));
                other.join().unwrap();
            });
            check(w.vm, &[w.space]);
            w.space.munmap(BASE, 4 * PAGE).unwrap();
            drop(object);
            assert_eq!(w.vm.vmstat().nr_free_pages, nr_free, "{is_removed}");
        }
    });
}
