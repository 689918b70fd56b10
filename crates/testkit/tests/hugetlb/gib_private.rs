//! Private mappings of pages of 1 GiB, as `private.rs` and `private_file.rs` have them of 2 MiB.

use super::common::objects::{bytes, touch};
use super::common::*;
use super::gib::{GIB, NR, OWN, TO, file, free, map, order_at, with_pool};
use super::of_both_sizes::{fork_refusing_each_frame, last_page_is_touched_by_all};
use super::{AT, HUGE, NORESERVE};
use softfault::{
    Access, Event, FaultDone, FaultError, MapFlags, MmapError, Notice, Order, PageRange, SubpoolLimits, Term, Vpn, Why,
};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

const GONE: Result<(), FaultError> = Err(FaultError::NoHugePage);
const TAKEN: Result<(), FaultError> = Err(FaultError::Taken);
const BEYOND: Result<(), FaultError> = Err(FaultError::BeyondObject);

fn own(w: &World<'_>, nr: u64) {
    assert_eq!(w.space.mmap(AT, nr * GIB, RW, OWN), Ok(AT));
}

#[test]
fn claims_are_the_mappings() {
    with_pool(1, 3, |w| {
        own(w, 2);
        assert_eq!((free(w), w.space.mmap(TO, 2 * GIB, RW, OWN)), ((3, 2), Err(MmapError::NoHugePages)));
        w.space.write(AT + 7, &[1]).unwrap();
        w.space.write(AT + GIB - 1, &[2]).unwrap();
        assert_eq!((free(w), order_at(w.space, AT), w.space.rss_pages().anon), ((2, 1), Some(Order::PUD), NR));
        let child = w.space.fork().unwrap();
        assert_eq!((free(w), child.rss_pages().anon), ((2, 1), NR), "no page is promised for a copy");
        check(w.vm, &[w.space, &child]);
        child.write(AT + 8, &[3]).unwrap();
        assert_eq!((bytes(&child, AT + 7), touch(&child, AT + GIB)), ([1], GONE), "no claim of its own");
        assert_eq!((free(w), bytes(&child, AT + 7), bytes(w.space, AT + 7)), ((1, 1), [1, 3], [1, 0]));
        assert_eq!((bytes(&child, AT + GIB - 2), order_at(&child, AT)), ([0, 2], Some(Order::PUD)), "all of it");
        w.space.write(AT + 9, &[4]).unwrap();
        assert_eq!((free(w), w.vm.event(Event::CowReuse)), ((1, 1), 1), "it is alone again");
        check(w.vm, &[w.space, &child]);
        child.munmap(AT, GIB).unwrap();
        assert_eq!((free(w), touch(w.space, AT + GIB), free(w)), ((2, 1), Ok(()), (1, 0)));
    });
}

/// The pool is dry: a child reads until its parent stores.
#[test]
fn a_child_reads_until_its_parent_stores() {
    with_pool(1, 1, |w| {
        own(w, 1);
        w.space.write(AT + GIB - 1, &[9]).unwrap();
        let child = w.space.fork().unwrap();
        let grandchild = child.fork().unwrap();
        for space in [&child, &grandchild] {
            assert_eq!((touch(space, AT), bytes(space, AT + GIB - 1), space.rss_pages().anon), (GONE, [9], NR));
        }
        w.space.write(AT, &[8]).unwrap();
        check(w.vm, &[w.space, &child, &grandchild]);
        assert_eq!((bytes(w.space, AT), bytes(w.space, AT + GIB - 1), free(w)), ([8], [9], (0, 0)));
        for space in [&child, &grandchild] {
            assert_eq!((touch(space, AT), touch(space, AT + GIB - 1), space.rss_pages().anon), (TAKEN, TAKEN, 0));
            let mut resident = Vec::new();
            space.mincore(AT, GIB, &mut |nr, is_in| resident.push((nr, is_in))).unwrap();
            assert_eq!(resident, [(NR, false)], "a place that has lost its page");
            assert_eq!((space.madvise(AT, GIB, DONTNEED), touch(space, AT)), (Ok(()), TAKEN));
        }
        assert_eq!((child.mremap(AT, GIB, GIB, MAYMOVE | MREMAP_FIXED, TO), touch(&child, TO)), (Ok(TO), TAKEN));
        check(w.vm, &[w.space, &child, &grandchild]);
        w.space.munmap(AT, GIB).unwrap();
        child.munmap(TO, GIB).unwrap();
        assert_eq!((touch(&grandchild, AT), free(w)), (TAKEN, (1, 0)));
        assert_eq!((child.mmap(AT, GIB, RW, OWN), touch(&child, AT), free(w)), (Ok(AT), Ok(()), (0, 0)));
    });
}

/// A dropped page keeps its claim, and a mapping that moves takes both along.
#[test]
fn a_page_that_is_dropped_comes_again() {
    with_pool(1, 2, |w| {
        own(w, 1);
        w.space.write(AT + GIB / 2, &[5]).unwrap();
        w.space.madvise(AT, GIB, DONTNEED).unwrap();
        assert_eq!((free(w), bytes(w.space, AT + GIB / 2), free(w)), ((2, 1), [0], (1, 0)));
        w.space.write(AT, &[6]).unwrap();
        let child = w.space.fork().unwrap();
        w.space.madvise(AT, GIB, DONTNEED).unwrap();
        assert_eq!(free(w), (1, 1), "the place has a claim to the other page");
        check(w.vm, &[w.space, &child]);
        assert_eq!((bytes(&child, AT), bytes(w.space, AT), free(w)), ([6], [0], (0, 0)));
        drop(child);
        assert_eq!(w.space.mremap(AT, GIB, GIB, MAYMOVE | MREMAP_FIXED, TO), Ok(TO));
        assert_eq!((order_at(w.space, AT), order_at(w.space, TO), free(w)), (None, Some(Order::PUD), (1, 0)));
        check(w.vm, &[w.space]);
        w.space.madvise(TO, GIB, DONTNEED).unwrap();
        assert_eq!((free(w), w.space.mremap(TO, GIB, GIB, MAYMOVE | MREMAP_FIXED, AT)), ((2, 1), Ok(AT)));
        assert_eq!((free(w), w.space.mremap(AT, GIB, PAGE, MAYMOVE, 0), free(w)), ((2, 1), Ok(AT), (2, 1)));
    });
}

/// The parent and the holder of a pin keep the page; a child gets a copy at once, or nothing.
#[test]
fn pins_keep_the_page() {
    with_pool(1, 2, |w| {
        own(w, 1);
        w.space.write(AT, &[5]).unwrap();
        let pin = w.space.pin_page_mut(AT + 700 * HUGE / 2, Term::Short).unwrap();
        assert_eq!(pin.order(), Order::PUD);
        let child = w.space.fork().unwrap();
        assert_eq!((free(w), bytes(&child, AT), order_at(&child, AT)), ((0, 0), [5], Some(Order::PUD)));
        pin.write(0, &[7; 8]);
        assert_eq!((bytes(w.space, AT + 700 * HUGE / 2), bytes(&child, AT + 700 * HUGE / 2)), ([7], [0]));
        let second = w.space.fork().unwrap();
        assert_eq!(touch(&second, AT), TAKEN, "the pool has none for a copy");
        check(w.vm, &[w.space, &child, &second]);
        w.space.madvise(AT, GIB, DONTNEED).unwrap();
        assert_eq!((touch(w.space, AT), free(w)), (GONE, (0, 0)), "nor for the place of a page that is pinned");
        drop(pin);
        assert_eq!((free(w), touch(w.space, AT), free(w)), ((1, 0), Ok(()), (0, 0)), "it has a claim again");
        check(w.vm, &[w.space, &child, &second]);
    });
}

/// Subscribers are told once of all of the page, and the store ends.
#[test]
fn a_copy_is_told_as_a_whole() {
    with_pool(1, 3, |w| {
        let told = Arc::new(Mutex::new(Vec::new()));
        let to = told.clone();
        let push = move |_, notice: &Notice| {
            if let Notice::Start { range, why: Why::Copy } = notice {
                let mut told = to.lock().unwrap();
                told.push(*range);
                assert!(told.len() < 9, "a store that does not end");
            }
            false
        };
        assert!(w.vm.machine().on_notice(Box::new(push)).is_ok());
        let whole = |addr| PageRange::sized(Vpn::of(addr), NR).unwrap();
        own(w, 1);
        w.space.write(AT, &[1]).unwrap();
        let child = w.space.fork().unwrap();
        let file = file(w, 1);
        file.write(0, &[9]).unwrap();
        let subscription = w.space.subscribe();
        w.space.write(AT + GIB / 2, &[2]).unwrap();
        assert_eq!(std::mem::take(&mut *told.lock().unwrap()), [whole(AT)]);
        drop(child);
        map(w, TO, 1, &file, MapFlags::PRIVATE).unwrap();
        assert_eq!(bytes(w.space, TO), [9]);
        w.space.write(TO + GIB - 1, &[3]).unwrap();
        assert_eq!(*told.lock().unwrap(), [whole(TO)], "of the file's page");
        drop(subscription);
    });
}

/// A private mapping of an object shows its pages until it is stored to.
#[test]
fn a_page_is_the_objects_until_it_is_stored_to() {
    with_pool(1, 3, |w| {
        let file = file(w, 2);
        file.write(GIB - 4, b"file").unwrap();
        map(w, AT, 2, &file, MapFlags::PRIVATE).unwrap();
        assert_eq!((free(w), w.space.handle_fault(AT, Access::Read)), ((2, 2), Ok(FaultDone::Shared)));
        assert_eq!((bytes(w.space, AT + GIB - 4), free(w), w.space.rss_pages().shmem), (*b"file", (2, 2), NR));
        check(w.vm, &[w.space]);
        assert_eq!(w.space.handle_fault(AT + GIB - 1, Access::Write), Ok(FaultDone::Copied));
        file.write(GIB - 4, b"F").unwrap();
        assert_eq!((bytes(w.space, AT + GIB - 4), free(w), w.space.rss_pages().anon), (*b"file", (1, 1), NR));
        check(w.vm, &[w.space]);
        file.discard(0..2 * NR);
        assert_eq!(free(w), (3, 2), "the file's page, and the copy");
        assert_eq!((bytes(w.space, AT + GIB - 4), free(w)), ([0; 4], (2, 1)));
        assert_eq!((bytes(w.space, AT + GIB), free(w)), ([0], (1, 0)), "a page of its own");
        file.set_size_bytes(GIB);
        assert_eq!((touch(w.space, AT + GIB), free(w)), (BEYOND, (2, 1)), "its place keeps the claim");
        let child = w.space.fork().unwrap();
        file.set_size_bytes(0);
        assert_eq!((touch(w.space, AT), touch(&child, AT), free(w)), (BEYOND, BEYOND, (3, 2)));
        check(w.vm, &[w.space, &child]);
        assert_eq!((map(w, AT, 3, &file, MapFlags::PRIVATE), free(w)), (Ok(AT), (3, 3)), "over the old one");
    });
}

/// Without a reservation what a mapping shows stays, and a store is refused.
#[test]
fn without_reservations() {
    with_pool(1, 1, |w| {
        let few = w.vm.new_hugetlb_subpool(Order::PUD, SubpoolLimits::default().with_most(Some(1))).unwrap();
        let file = few.new_object(GIB).unwrap();
        assert_eq!(map(w, AT, 1, &file, MapFlags::PRIVATE), Ok(AT));
        assert_eq!((few.nr_used(), touch(w.space, AT + 5), free(w), few.nr_used()), (1, Ok(()), (0, 0), 1));
        check(w.vm, &[w.space]);
        w.space.munmap(AT, GIB).unwrap();
        assert_eq!((free(w), few.nr_used()), ((1, 0), 0));
        file.write(0, b"f").unwrap();
        let full = Err(FaultError::SubpoolFull);
        assert_eq!(map(w, AT, 1, &file, MapFlags::PRIVATE), Err(MmapError::SubpoolFull));
        assert_eq!(map(w, AT, 1, &file, MapFlags::PRIVATE | NORESERVE), Ok(AT));
        assert_eq!((w.space.handle_fault(AT, Access::Read), touch(w.space, AT)), (Ok(FaultDone::Shared), full));
        assert_eq!((order_at(w.space, AT), bytes(w.space, AT)), (Some(Order::PUD), *b"f"));
        check(w.vm, &[w.space]);
        drop((file, few));
    });
}

/// The k-th frame of fork is refused: nothing is kept.
#[test]
fn each_frame_of_fork_may_be_refused() {
    with_pool(1, 2, |w| {
        own(w, 1);
        w.space.write(AT, &[1]).unwrap();
        let nr_refused = fork_refusing_each_frame(w, free, &|child| {
            assert_eq!((bytes(child, AT), free(w)), ([1], (1, 0)));
        });
        assert_eq!(free(w), (1, 0));
        assert_ne!(nr_refused, 0);
    });
}

/// H6 and H7: a smaller pool keeps what was promised, and a used page is not demoted.
#[test]
fn h6_private_claims_of_1_gib_become_surplus() {
    with_pool(1, 2, |w| {
        own(w, 1);
        touch(w.space, AT).unwrap();
        let child = w.space.fork().unwrap();
        assert_eq!((w.vm.set_nr_hugepages(Order::PUD, 0), w.vm.demote_hugepages(2)), (Ok(0), Ok(0)));
        let counts = w.vm.hugetlb_counts(Order::PUD).unwrap();
        assert_eq!((counts.nr, counts.surplus, free(w)), (1, 1, (0, 0)), "nothing is kept for a copy");
        drop(child);
        w.space.munmap(AT, GIB).unwrap();
        assert_eq!(w.vm.hugetlb_counts(Order::PUD).unwrap().nr, 0);
        assert_eq!(w.vm.set_nr_hugepages(Order::PUD, 2), Ok(2));
    });
}

#[test]
fn h2_dontneed_against_touches_of_1_gib() {
    with_pool(4, 1, |w| {
        own(w, 1);
        let drop = || w.space.madvise(AT, GIB, DONTNEED).unwrap();
        last_page_is_touched_by_all(w, AT + 500 * HUGE, 4, &drop, |space| space.mmap(TO, GIB, RW, OWN));
    });
}

/// H5: forks and copies against stores. A copy has nothing that the parent stored after fork(2).
#[test]
fn h5_forks_and_copies_of_1_gib() {
    with_pool(2, 2, |w| {
        own(w, 1);
        let counter = |running: &Running<'_>, stop: &AtomicBool| {
            let mut i = 0_u64;
            while !stop.load(Relaxed) {
                i += 1;
                running.store(AT + GIB - 8, &i.to_le_bytes()).unwrap();
            }
        };
        w.race(&[&counter], |running| {
            for i in 0..3u8 {
                running.store(AT, &[i]).unwrap();
                let child = w.space.fork().unwrap();
                let then: [u8; 8] = bytes(&child, AT + GIB - 8);
                child.write(AT, &[i + 100]).unwrap();
                assert_eq!((bytes(&child, AT), bytes(w.space, AT)), ([i + 100], [i]));
                assert_eq!(bytes(&child, AT + GIB - 8), then);
            }
        });
        assert_eq!(free(w), (1, 0));
    });
}
