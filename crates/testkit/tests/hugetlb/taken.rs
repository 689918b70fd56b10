//! Private pages that are shared since fork(2), in a pool without another page: a child reads until the owner of the reservation
//! stores. Then the owner keeps the page, and the child has lost it.

use super::common::objects::{bytes, touch, whole};
use super::common::*;
use super::of_both_sizes::told_ranges;
use super::{AT, HUGE, NORESERVE, counts, free, object, pool, with_pool};
use softfault::{Access, Event, FaultDone, FaultError, MapFlags, MigrateRefusal, Order, PageRange, Term, Vpn};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

const OWN: MapFlags = PRIVATE.union(MapFlags::HUGETLB);
const DRY: Result<(), FaultError> = Err(FaultError::NoHugePage);
const TAKEN: Result<(), FaultError> = Err(FaultError::Taken);
/// Another place for a page.
const TO: u64 = AT + 8 * HUGE;

/// Maps so many pages, and stores 1, 2, ... to them.
fn own(w: &World<'_>, nr: u64) {
    assert_eq!(w.space.mmap(AT, nr * HUGE, RW, OWN | FIXED), Ok(AT));
    (0..nr).for_each(|i| w.space.write(AT + i * HUGE, &[1 + i as u8]).unwrap());
}

fn load(space: &Space<'_>, at: u64) -> Result<(), FaultError> {
    space.handle_fault(at, Access::Read).map(drop)
}

/// Of each page, whether it is resident.
fn resident(space: &Space<'_>, at: u64, nr: u64) -> Vec<bool> {
    let mut pages = Vec::new();
    let mut push = |nr: u64, is_in| pages.extend((0..nr / 512).map(|_| is_in));
    space.mincore(at, nr * HUGE, &mut push).unwrap();
    pages
}

#[test]
fn a_child_reads_until_its_parent_stores() {
    with_pool(1, 2, |w| {
        own(w, 2);
        let child = w.space.fork().unwrap();
        assert_eq!((free(w), child.rss_pages().anon, w.vm.event(Event::ForkNoHugePage)), ((0, 0), 1024, 0));
        assert_eq!((bytes(&child, AT), bytes(&child, AT + HUGE)), ([1], [2]));
        assert_eq!((touch(&child, AT), touch(&child, AT + HUGE), bytes(&child, AT)), (DRY, DRY, [1]));
        check(w.vm, &[w.space, &child]);
        w.space.write(AT + 5, &[9]).unwrap();
        check(w.vm, &[w.space, &child]);
        assert_eq!((load(&child, AT), touch(&child, AT), bytes(&child, AT + HUGE)), (TAKEN, TAKEN, [2]));
        assert_eq!((child.rss_pages().anon, resident(&child, AT, 2)), (512, vec![false, true]));
        assert_eq!((bytes(w.space, AT), bytes(w.space, AT + 5), bytes(w.space, AT + HUGE)), ([1], [9], [2]));
        assert_eq!((w.vm.event(Event::HugePageTaken), w.vm.event(Event::CowBreak)), (1, 0));
        assert_eq!((w.vm.event(Event::RefusedTaken), free(w)), (2, (0, 0)));
        drop(child);
        w.space.write(AT + HUGE, &[3]).unwrap();
        assert_eq!((w.vm.event(Event::HugePageTaken), bytes(w.space, AT + HUGE)), (1, [3]), "it was alone again");
    });
}

/// The pool has a page for the first store; what is promised to others does not count.
#[test]
fn who_stores_gets_a_page_while_there_is_one() {
    for first in [0, 1] {
        with_pool(1, 3, |w| {
            own(w, 1);
            let other = w.vm.new_space().unwrap();
            other.mmap(AT, HUGE, RW, OWN | FIXED).unwrap();
            let child = w.space.fork().unwrap();
            let spaces = [w.space, &child];
            assert_eq!((free(w), touch(spaces[first], AT + 9), free(w)), ((2, 1), Ok(()), (1, 1)));
            assert_eq!((touch(spaces[1 - first], AT), free(w)), (Ok(()), (1, 1)), "the other one is alone");
            let second = w.space.fork().unwrap();
            assert_eq!((touch(&second, AT), touch(w.space, AT), touch(&second, AT)), (DRY, Ok(()), TAKEN));
            assert_eq!((touch(&child, AT), touch(&other, AT), free(w)), (Ok(()), Ok(()), (0, 0)));
            check(w.vm, &[w.space, &child, &second, &other]);
        });
    }
}

#[test]
fn children_and_grandchildren_lose_it_together() {
    with_pool(1, 1, |w| {
        own(w, 1);
        let children: Vec<_> = (0..20).map(|_| w.space.fork().unwrap()).collect();
        let grandchildren: Vec<_> = children.iter().map(|child| child.fork().unwrap()).collect();
        let all = || children.iter().chain(&grandchildren);
        all().for_each(|space| assert_eq!((bytes(space, AT), touch(space, AT)), ([1], DRY)));
        assert_eq!(w.vm.migrate_frame(frame_of(w.space, AT)), Err(MigrateRefusal::TooManyMaps));
        w.space.write(AT, &[2]).unwrap();
        all().for_each(|space| assert_eq!((load(space, AT), space.rss_pages().anon), (TAKEN, 0)));
        assert_eq!(w.vm.event(Event::HugePageTaken), 40);
        let late = grandchildren[3].fork().unwrap();
        assert_eq!((load(&late, AT), late.rss_pages().anon), (TAKEN, 0), "what its parent has lost");
        let spaces: Vec<_> = [w.space, &late].into_iter().chain(all()).collect();
        check(w.vm, &spaces);
        let child = w.space.fork().unwrap();
        assert_eq!((bytes(&child, AT), free(w)), ([2], (0, 0)), "a later child shows what there is now");
    });
}

/// The reservation is the parent's alone: without it nobody takes a page from another.
#[test]
fn without_the_parent_nobody_owns_the_page() {
    with_pool(1, 1, |w| {
        own(w, 1);
        let child = w.space.fork().unwrap();
        let grandchild = child.fork().unwrap();
        w.space.munmap(AT, HUGE).unwrap();
        for space in [&child, &grandchild] {
            assert_eq!((touch(space, AT), bytes(space, AT)), (DRY, [1]));
        }
        check(w.vm, &[w.space, &child, &grandchild]);
        drop(child);
        assert_eq!((grandchild.handle_fault(AT, Access::Write), bytes(&grandchild, AT)), (Ok(FaultDone::Reused), [1]));
        assert_eq!((free(w), w.vm.event(Event::HugePageTaken)), ((0, 0), 0));
        drop(grandchild);
        w.space.mmap(AT, HUGE, RW, OWN | FIXED | NORESERVE).unwrap();
        w.space.write(AT, &[3]).unwrap();
        let child = w.space.fork().unwrap();
        assert_eq!((touch(w.space, AT), touch(&child, AT), bytes(&child, AT)), (DRY, DRY, [3]), "MAP_NORESERVE");
        check(w.vm, &[w.space, &child]);
    });
}

/// A child that exits, or unmaps the page: nothing is copied, nothing is taken.
#[test]
fn a_child_that_ends_leaves_the_page() {
    with_pool(1, 1, |w| {
        own(w, 1);
        drop(w.space.fork().unwrap());
        assert_eq!(w.space.handle_fault(AT, Access::Write), Ok(FaultDone::Reused));
        let child = w.space.fork().unwrap();
        child.munmap(AT, HUGE).unwrap();
        assert_eq!((w.space.handle_fault(AT, Access::Write), bytes(w.space, AT)), (Ok(FaultDone::Reused), [1]));
        let second = w.space.fork().unwrap();
        second.madvise(AT, HUGE, DONTNEED).unwrap();
        assert_eq!((load(&second, AT), w.space.handle_fault(AT, Access::Write)), (DRY, Ok(FaultDone::Reused)));
        assert_eq!((free(w), w.vm.event(Event::HugePageTaken)), ((0, 0), 0));
        check(w.vm, &[w.space, &child, &second]);
    });
}

/// A page is found where mremap(2) has put it, of the child and of the parent, and with other rights.
#[test]
fn it_is_taken_wherever_it_is() {
    with_pool(1, 2, |w| {
        own(w, 2);
        let (child, second) = (w.space.fork().unwrap(), w.space.fork().unwrap());
        assert_eq!(child.mremap(AT, HUGE, HUGE, MAYMOVE | MREMAP_FIXED, TO), Ok(TO));
        assert_eq!(
            (child.mprotect(TO, HUGE, READ), second.mprotect(AT, HUGE, softfault::Prot::empty())),
            (Ok(()), Ok(()))
        );
        w.space.write(AT, &[7]).unwrap();
        assert_eq!((load(&child, TO), touch(&child, TO)), (TAKEN, Err(FaultError::NoRights)));
        assert_eq!((load(&second, AT), second.mprotect(AT, HUGE, RW)), (Err(FaultError::NoRights), Ok(())));
        assert_eq!((load(&second, AT), bytes(&child, AT + HUGE)), (TAKEN, [2]));
        assert_eq!(w.space.mremap(AT + HUGE, HUGE, HUGE, MAYMOVE | MREMAP_FIXED, TO), Ok(TO));
        w.space.write(TO, &[8]).unwrap();
        assert_eq!((load(&child, AT + HUGE), load(&second, AT + HUGE)), (TAKEN, TAKEN));
        check(w.vm, &[w.space, &child, &second]);
        // The place stays lost when it moves, and under MADV_DONTNEED; munmap ends it.
        assert_eq!(child.mremap(TO, HUGE, HUGE, MAYMOVE | MREMAP_FIXED, AT), Ok(AT));
        assert_eq!((child.madvise(AT, HUGE, DONTNEED), load(&child, AT)), (Ok(()), TAKEN));
        assert_eq!(child.msync(AT, HUGE, softfault::MsyncFlags::SYNC), Ok(()));
        child.munmap(AT, HUGE).unwrap();
        w.space.munmap(TO, HUGE).unwrap();
        assert_eq!((load(&child, AT), child.mmap(AT, HUGE, RW, OWN | FIXED)), (Err(FaultError::NotMapped), Ok(AT)));
        assert_eq!((touch(&child, AT), load(&second, AT + HUGE), free(w)), (Ok(()), TAKEN, (0, 0)));
        check(w.vm, &[w.space, &child, &second]);
    });
}

/// The owner drops the page: its next touch is not refused, and so the others lose it. A child does the same: its place is empty.
#[test]
fn a_dropped_page_is_the_owners() {
    with_pool(1, 1, |w| {
        own(w, 1);
        let (child, second) = (w.space.fork().unwrap(), w.space.fork().unwrap());
        child.madvise(AT, HUGE, DONTNEED).unwrap();
        assert_eq!((touch(&child, AT), bytes(&second, AT)), (DRY, [1]));
        w.space.madvise(AT, HUGE, DONTNEED).unwrap();
        assert_eq!((free(w), load(&second, AT), touch(&child, AT)), ((1, 1), TAKEN, DRY));
        check(w.vm, &[w.space, &child, &second]);
        assert_eq!((bytes(w.space, AT), free(w)), ([0], (0, 0)));
        w.space.munmap(AT, HUGE).unwrap();
        assert_eq!((touch(&child, AT), load(&second, AT), free(w)), (Ok(()), TAKEN, (0, 0)));
    });
}

/// Others with subscribers cannot be told then: the place has no claim, and gets one when there is a page.
#[test]
fn a_dropped_page_of_a_subscriber_stays() {
    with_pool(1, 1, |w| {
        let told = told_ranges(w);
        own(w, 1);
        let child = w.space.fork().unwrap();
        let subscription = child.subscribe();
        w.space.madvise(AT, HUGE, DONTNEED).unwrap();
        assert_eq!((touch(w.space, AT), bytes(&child, AT), free(w)), (DRY, [1], (0, 0)));
        check(w.vm, &[w.space, &child]);
        let second = w.space.fork().unwrap();
        assert_eq!((touch(&second, AT), told.lock().unwrap().len()), (DRY, 0), "its place is empty, not lost");
        drop(subscription);
        drop(child);
        assert_eq!((bytes(w.space, AT), free(w), touch(&second, AT)), ([0], (0, 0), DRY));
        check(w.vm, &[w.space, &second]);
    });
}

/// Then nobody else loses the page either.
#[test]
fn a_dropped_page_of_a_subscriber_stays_for_all() {
    with_pool(1, 1, |w| {
        own(w, 1);
        let (older, child, younger) = (w.space.fork().unwrap(), w.space.fork().unwrap(), w.space.fork().unwrap());
        let subscription = child.subscribe();
        w.space.madvise(AT, HUGE, DONTNEED).unwrap();
        assert_eq!([&older, &child, &younger].map(|space| bytes(space, AT)), [[1]; 3]);
        assert_eq!((touch(w.space, AT), w.vm.event(Event::HugePageTaken)), (DRY, 0));
        check(w.vm, &[w.space, &older, &child, &younger]);
        drop(subscription);
    });
}

/// Subscribers are told of the whole page before it goes, each space of its own place, which is no other's.
#[test]
fn subscribers_are_told_before_it_is_taken() {
    with_pool(1, 1, |w| {
        own(w, 1);
        let (child, second, third) = (w.space.fork().unwrap(), w.space.fork().unwrap(), w.space.fork().unwrap());
        let beside = TO + 2 * HUGE;
        for (space, at) in [(&child, beside), (&second, TO)] {
            assert_eq!(space.mremap(AT, HUGE, HUGE, MAYMOVE | MREMAP_FIXED, at), Ok(at));
        }
        let told = told_ranges(w);
        let subscriptions = (w.space.subscribe(), child.subscribe(), second.subscribe());
        w.space.write(AT + HUGE / 2, &[2]).unwrap();
        let page = |at: u64| PageRange::sized(Vpn::of(at), 512).unwrap();
        let mut ranges = std::mem::take(&mut *told.lock().unwrap());
        ranges.sort_by_key(|range| range.start);
        ranges.dedup();
        assert_eq!(ranges, [page(AT), page(TO), page(beside)]);
        assert_eq!((load(&child, beside), load(&second, TO), load(&third, AT)), (TAKEN, TAKEN, TAKEN));
        check(w.vm, &[w.space, &child, &second, &third]);
        drop(subscriptions);
    });
}

/// A pinned page is not shared; a pin needs a page of its own, as a store does.
#[test]
fn pins_and_shared_pages() {
    with_pool(1, 1, |w| {
        own(w, 1);
        let pin = w.space.pin_page_mut(AT, Term::Short).unwrap();
        let lost = w.space.fork().unwrap();
        assert_eq!((load(&lost, AT), w.vm.event(Event::ForkNoHugePage)), (TAKEN, 1), "the pool has none for a copy");
        drop(pin);
        let child = w.space.fork().unwrap();
        assert_eq!((bytes(&child, AT), child.pin_page(AT, Term::Short).is_err(), bytes(&child, AT)), ([1], true, [1]));
        let pin = w.space.pin_page(AT, Term::Short).unwrap();
        assert_eq!((load(&child, AT), bytes(w.space, AT)), (TAKEN, [1]));
        w.space.write(AT, &[4]).unwrap();
        let mut seen = [0];
        pin.read(0, &mut seen);
        assert_eq!(seen, [4]);
        check(w.vm, &[w.space, &lost, &child]);
        drop(pin);
    });
}

/// A private mapping of a file: its own pages are shared so, and what it shows is the file's.
#[test]
fn pages_of_a_private_mapping_of_a_file() {
    with_pool(1, 2, |w| {
        let file = object(w, 2);
        file.write(HUGE, b"f").unwrap();
        w.space.mmap_object(AT, HUGE, RW, PRIVATE | FIXED, whole(&file)).unwrap();
        w.space.write(AT, b"m").unwrap();
        let child = w.space.fork().unwrap();
        assert_eq!((bytes(&child, AT), touch(&child, AT), free(w)), (*b"m", DRY, (0, 0)));
        w.space.write(AT, b"n").unwrap();
        assert_eq!((load(&child, AT), bytes(w.space, AT)), (TAKEN, *b"n"));
        // A smaller size ends the page of the parent, and of a second child, whose place is not lost.
        let second = w.space.fork().unwrap();
        file.set_size_bytes(0);
        assert_eq!(free(w), (2, 1), "the claim is the parent's");
        check(w.vm, &[w.space, &child, &second]);
        file.set_size_bytes(HUGE);
        assert_eq!((touch(&second, AT), touch(w.space, AT), load(&child, AT)), (Ok(()), Ok(()), TAKEN));
        check(w.vm, &[w.space, &child, &second]);
    });
}

/// A shared page moves with its entries, and is taken at its new place.
#[test]
fn it_is_taken_after_a_move() {
    with_pool(1, 1, |w| {
        own(w, 1);
        let child = w.space.fork().unwrap();
        let moved = w.vm.migrate_frame(frame_of(w.space, AT)).unwrap();
        assert_eq!((frame_of(&child, AT), bytes(&child, AT), free(w)), (moved, [1], (0, 0)));
        w.space.write(AT, &[2]).unwrap();
        assert_eq!((load(&child, AT), frame_of(w.space, AT)), (TAKEN, moved));
        check(w.vm, &[w.space, &child]);
    });
}

/// A surplus page comes for the copy if it may.
#[test]
fn a_surplus_page_saves_the_child() {
    with_pool(1, 1, |w| {
        own(w, 1);
        let child = w.space.fork().unwrap();
        w.vm.set_nr_overcommit_hugepages(Order::PMD, 1).unwrap();
        w.space.write(AT, &[2]).unwrap();
        assert_eq!((bytes(&child, AT), counts(w).surplus, w.vm.event(Event::HugePageTaken)), ([1], 1, 0));
        check(w.vm, &[w.space, &child]);
        drop(child);
        assert_eq!(counts(w).surplus, 0);
        w.vm.set_nr_overcommit_hugepages(Order::PMD, 0).unwrap();
    });
}

/// A shared page of a pool that becomes smaller.
#[test]
fn a_smaller_pool_keeps_what_is_shared() {
    with_pool(1, 2, |w| {
        own(w, 1);
        let child = w.space.fork().unwrap();
        pool(w, 0);
        assert_eq!((counts(w).nr, counts(w).surplus, touch(&child, AT)), (1, 1, DRY));
        w.space.write(AT, &[2]).unwrap();
        assert_eq!((load(&child, AT), counts(w).nr), (TAKEN, 1));
        check(w.vm, &[w.space, &child]);
        drop(child);
        w.space.munmap(AT, HUGE).unwrap();
        assert_eq!(counts(w).nr, 0);
        pool(w, 2);
    });
}

/// H5: children read, store, fork and end while the parent stores: it is never refused, and no child sees a later byte.
#[test]
fn h5_children_against_the_stores_of_their_parent() {
    with_pool(3, 1, |w| {
        own(w, 1);
        let counter = |running: &Running<'_>, stop: &AtomicBool| {
            let mut i = 0_u64;
            while !stop.load(Relaxed) {
                i += 1;
                running.store(AT + 8, &i.to_le_bytes()).unwrap();
            }
        };
        let dropper = |running: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(Relaxed) {
                running.store(AT + HUGE - 8, &[1u8]).unwrap();
                running.space().madvise(AT, HUGE, DONTNEED).unwrap();
            }
        };
        w.race(&[&counter, &dropper], |running| {
            for i in 0..60u8 {
                running.store(AT, &[i]).unwrap();
                let child = w.space.fork().unwrap();
                let grandchild = (i % 3 == 0).then(|| child.fork().unwrap());
                let mut seen = None;
                for space in [Some(&child), grandchild.as_ref()].into_iter().flatten().cycle().take(8) {
                    let mut now = [0; 16];
                    match space.read(AT, &mut now).map_err(|error| error.fault) {
                        Ok(()) => assert_eq!(*seen.get_or_insert(now), now),
                        // Dropped by the parent before fork(2): the pool had no page for the child's first touch.
                        Err(error) => assert!(matches!(error, FaultError::Taken | FaultError::NoHugePage), "{error}"),
                    }
                }
                let stored = touch(&child, AT);
                assert!(matches!(stored, Ok(()) | DRY | TAKEN), "{stored:?}");
            }
        });
        assert_eq!(w.space.rss_pages().anon + free(w).0 * 512, 512);
    });
}
