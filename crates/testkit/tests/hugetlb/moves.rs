//! Pages of a pool that move, whatever they are: an object's, private, or free. No count changes, and programs notice nothing.

use super::common::moving::{counts_up, moves_all};
use super::common::objects::{bytes, touch, whole};
use super::common::*;
use super::of_both_sizes::told_ranges;
use super::subpool::subpool;
use super::{AT, HUGE, SHARED, counts, free, gib, map, object, pool, with_pool};
use softfault::{Access, Event, FaultError, MapFlags, MigrateRefusal, Order, PageRange, Pfn, Term, Vpn};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

const OWN: MapFlags = PRIVATE.union(MapFlags::HUGETLB);

fn own(w: &World<'_>, nr: u64) {
    assert_eq!(w.space.mmap(AT, nr * HUGE, RW, OWN | FIXED), Ok(AT));
}

/// Moves the page that is mapped there by a frame within it. Gives the first frames of the old page and the new one.
fn moved(w: &World<'_>, at: u64) -> (Pfn, Pfn) {
    let old = frame_of(w.space, at);
    let part = 77;
    let new = w.vm.migrate_frame(Pfn(old.0 + part)).unwrap();
    (old, Pfn(new.0 - part))
}

/// All counts of the pool of 2 MiB, and frames that are free or in use.
fn all(w: &World<'_>) -> impl PartialEq + core::fmt::Debug + use<> {
    let stat = w.vm.vmstat();
    (counts(w), stat.nr_free_pages, stat.nr_total_pages)
}

#[test]
fn a_page_of_an_object() {
    with_pool(1, 3, |w| {
        let file = object(w, 3);
        map(w, AT, 3, &file, 0, MapFlags::empty()).unwrap();
        let child = w.space.fork().unwrap();
        child.mmap_object(AT, HUGE, RW, PRIVATE | FIXED | MapFlags::NORESERVE, whole(&file)).unwrap();
        (0..512).for_each(|page| w.space.write(AT + page * PAGE + 8, &[page as u8, 1]).unwrap());
        assert_eq!((bytes(&child, AT + 5 * PAGE + 8), free(w)), ([5, 1], (2, 2)));
        let before = all(w);
        let rss = w.space.rss_pages().shmem;
        let (old, new) = moved(w, AT);
        assert_eq!((all(w) == before, w.space.rss_pages().shmem, child.rss_pages().shmem), (true, rss - 512, 0));
        check(w.vm, &[w.space, &child]);
        // The old one is free memory.
        assert_eq!(w.vm.migrate_frame(old), Err(MigrateRefusal::NotInUse));
        for page in 0..512 {
            assert_eq!(bytes(w.space, AT + page * PAGE + 8), [page as u8, 1]);
            assert_eq!(bytes(&child, AT + page * PAGE + 8), [page as u8, 1]);
        }
        assert_eq!((frame_of(w.space, AT), frame_of(&child, AT)), (new, new));
        w.space.write(AT, b"n").unwrap();
        let mut now = [0];
        assert_eq!((file.read(0, &mut now), now, bytes(&child, AT)), (1, *b"n", [b'n']));
        // A page that is only in the object, and has never been mapped.
        file.write(HUGE, b"o").unwrap();
        let before = all(w);
        touch(w.space, AT + HUGE).unwrap();
        moved(w, AT + HUGE);
        assert_eq!((file.read(HUGE, &mut now), now, all(w) == before), (1, *b"o", true));
        assert_eq!((w.vm.event(Event::PgmigrateSuccess), w.vm.event(Event::PgmigrateFail)), (1024, 0));
        check(w.vm, &[w.space, &child]);
        // What became free memory is zero for those who get it.
        let nr_rest = w.vm.vmstat().nr_free_pages - 64;
        w.space.mmap(AT + 32 * HUGE, nr_rest * PAGE, RW, PRIVATE | FIXED).unwrap();
        (0..nr_rest).for_each(|page| w.space.write(AT + 32 * HUGE + page * PAGE, &[1]).unwrap());
        (0..nr_rest).for_each(|page| assert_eq!(bytes(w.space, AT + 32 * HUGE + page * PAGE + 8), [0; 2]));
        w.space.munmap(AT + 32 * HUGE, nr_rest * PAGE).unwrap();
        drop(child);
        file.set_size_bytes(0);
        assert_eq!(free(w), (3, 0));
    });
}

/// With one entry and with several; stores copy as before, and the claims are those of before.
#[test]
fn a_private_page() {
    with_pool(1, 4, |w| {
        own(w, 1);
        (0..512).for_each(|page| w.space.write(AT + page * PAGE + 8, &[page as u8, 1]).unwrap());
        let state = w.space.page_state(AT);
        let before = all(w);
        let (old, new) = moved(w, AT);
        assert_eq!((all(w) == before, frame_of(w.space, AT), w.space.page_state(AT)), (true, new, state));
        assert_eq!(w.vm.migrate_frame(old), Err(MigrateRefusal::NotInUse));
        assert_eq!((bytes(w.space, AT + 300 * PAGE + 8), w.space.rss_pages().anon), ([300_u64 as u8, 1], 512));
        check(w.vm, &[w.space]);
        let children = [w.space.fork().unwrap(), w.space.fork().unwrap()];
        let spaces = [w.space, &children[0], &children[1]];
        // One of them has it elsewhere.
        let to = AT + 8 * HUGE;
        assert_eq!(children[1].mremap(AT, HUGE, HUGE, MAYMOVE | MREMAP_FIXED, to), Ok(to));
        assert_eq!(free(w), (3, 0));
        let before = all(w);
        let (_, new) = moved(w, AT);
        let at = [AT, AT, to];
        assert_eq!((all(w) == before, [0, 1, 2].map(|i| frame_of(spaces[i], at[i]))), (true, [new; 3]));
        check(w.vm, &spaces);
        for (i, space) in spaces.iter().enumerate() {
            assert_eq!(space.write(at[i] + 8, &[i as u8]), Ok(()));
        }
        assert_eq!(([0, 1, 2].map(|i| bytes(spaces[i], at[i] + 8)), free(w)), ([[0, 1], [1, 1], [2, 1]], (1, 0)));
        check(w.vm, &spaces);
    });
}

/// A mapping of a file: its own page moves as any private one, and a place that has lost its page keeps that.
#[test]
fn private_pages_of_a_file() {
    with_pool(1, 4, |w| {
        let file = object(w, 2);
        file.write(0, b"f").unwrap();
        let part = whole(&file);
        w.space.mmap_object(AT, 2 * HUGE, RW, PRIVATE | FIXED, part).unwrap();
        w.space.write(AT, b"p").unwrap();
        let (_, new) = moved(w, AT);
        assert_eq!((frame_of(w.space, AT), bytes(w.space, AT), free(w)), (new, *b"p", (2, 1)));
        // What it shows is the file's.
        w.space.handle_fault(AT + HUGE, Access::Read).unwrap();
        moved(w, AT + HUGE);
        check(w.vm, &[w.space]);
        file.set_size_bytes(0);
        assert_eq!((free(w), touch(w.space, AT)), ((4, 2), Err(FaultError::BeyondObject)));
        w.space.munmap(AT, 2 * HUGE).unwrap();
    });
}

/// A free page changes places with free memory, also where all free pages are promised.
#[test]
fn a_free_page() {
    with_pool(1, 2, |w| {
        own(w, 1);
        w.space.write(AT, &[1]).unwrap();
        let first = frame_of(w.space, AT);
        w.space.madvise(AT, HUGE, DONTNEED).unwrap();
        let file = object(w, 1);
        map(w, AT + 8 * HUGE, 1, &file, 0, MapFlags::empty()).unwrap();
        assert_eq!(free(w), (2, 2));
        let before = all(w);
        let new = w.vm.migrate_frame(Pfn(first.0 + 3)).unwrap();
        assert_eq!((all(w) == before, w.vm.migrate_frame(first)), (true, Err(MigrateRefusal::NotInUse)));
        check(w.vm, &[w.space]);
        assert_eq!(w.vm.migrate_frame(new).map(|next| next.0 % 512), Ok(3));
        assert_eq!((touch(w.space, AT), touch(w.space, AT + 8 * HUGE), free(w)), (Ok(()), Ok(()), (0, 0)));
        assert_eq!(bytes(w.space, AT), [0], "what had other bytes is zeroed");
        w.space.munmap(AT + 8 * HUGE, HUGE).unwrap();
    });
}

/// One page of each kind. A pool of one page less leaves room for the target.
#[test]
fn pages_of_1_gib() {
    gib::with_pool(1, 3, |w| {
        assert_eq!(w.vm.set_nr_hugepages(Order::PUD, 2), Ok(2));
        let file = gib::file(w, 1);
        gib::map(w, AT, 1, &file, SHARED).unwrap();
        w.space.mmap(gib::TO, gib::GIB, RW, gib::OWN).unwrap();
        let ends = [0, gib::GIB - 8];
        for at in [AT, gib::TO] {
            ends.iter().for_each(|end| w.space.write(at + end, &[at as u8 ^ 7; 8]).unwrap());
            let before = w.vm.vmstat();
            let old = frame_of(w.space, at);
            let new = w.vm.migrate_frame(Pfn(old.0 + 1000)).unwrap();
            let after = w.vm.vmstat();
            assert_eq!(ends.map(|end| bytes(w.space, at + end)), [[at as u8 ^ 7; 8]; 2]);
            assert_eq!(
                (frame_of(w.space, at).0 + 1000, gib::free(w)),
                (new.0, (u64::from(at == AT), u64::from(at == AT)))
            );
            assert_eq!((before.nr_free_pages, before.nr_total_pages), (after.nr_free_pages, after.nr_total_pages));
            check(w.vm, &[w.space]);
        }
        w.space.munmap(AT, 16 * gib::GIB).unwrap();
        drop(file);
        assert_eq!(w.vm.set_nr_hugepages(Order::PUD, 3), Ok(3));
    });
}

/// Without free memory a page stays, although the pool has another one: that is somebody else's to take at any moment.
#[test]
fn without_free_memory() {
    in_each_setup(1, 24 << 20, |w| {
        let most = w.vm.set_nr_hugepages(Order::PMD, 100).unwrap();
        own(w, most - 1);
        w.space.write(AT, &[5]).unwrap();
        let used = frame_of(w.space, AT);
        let frames = (0..w.vm.nr_frames() as u32).step_by(512).map(Pfn);
        let free: Vec<Pfn> = frames.filter(|pfn| w.vm.lies_free_in_pool(*pfn)).collect();
        assert_eq!(free.len() as u64, most - 1);
        let before = all(w);
        for pfn in free.into_iter().chain([used]) {
            assert_eq!(w.vm.migrate_frame(pfn), Err(MigrateRefusal::NoTarget));
            assert_eq!((all(w) == before, bytes(w.space, AT), frame_of(w.space, AT)), (true, [5], used));
        }
        check(w.vm, &[w.space]);
        w.space.munmap(AT, (most - 1) * HUGE).unwrap();
        pool(w, 0);
    });
}

/// Pages of files of a subpool are its pages wherever they are, and surplus pages are surplus.
#[test]
fn subpools_and_surplus_pages() {
    with_pool(1, 2, |w| {
        let few = subpool(w, Some(2), 1);
        let file = few.new_object(2 * HUGE).unwrap();
        map(w, AT, 2, &file, 0, MapFlags::empty()).unwrap();
        (0..2).for_each(|page| w.space.write(AT + page * HUGE, &[page as u8 + 1]).unwrap());
        moved(w, AT);
        assert_eq!((few.nr_used(), free(w), bytes(w.space, AT)), (2, (0, 0), [1]));
        check(w.vm, &[w.space]);
        // The page that was left is anybody's.
        let nr_others = w.vm.set_nr_hugepages(Order::PMD, 100).unwrap() - 2;
        let others = w.vm.new_space().unwrap();
        others.mmap(AT, nr_others * HUGE, RW, OWN | FIXED).unwrap();
        (0..nr_others).for_each(|page| touch(&others, AT + page * HUGE).unwrap());
        drop(others);
        pool(w, 2);
        assert_eq!((few.nr_used(), free(w)), (2, (0, 0)));
        file.discard(0..512);
        assert_eq!((few.nr_used(), free(w)), (1, (1, 0)));
        w.space.munmap(AT, 2 * HUGE).unwrap();
        drop((file, few));
        w.vm.set_nr_overcommit_hugepages(Order::PMD, 1).unwrap();
        own(w, 3);
        (0..3).for_each(|page| w.space.write(AT + page * HUGE, &[page as u8]).unwrap());
        for page in 0..3 {
            let before = counts(w);
            moved(w, AT + page * HUGE);
            assert_eq!((counts(w) == before, bytes(w.space, AT + page * HUGE)), (true, [page as u8]));
            check(w.vm, &[w.space]);
        }
        assert_eq!((counts(w).surplus, w.space.munmap(AT, 3 * HUGE), counts(w).surplus), (1, Ok(()), 0));
        w.vm.set_nr_overcommit_hugepages(Order::PMD, 0).unwrap();
    });
}

/// Each reason by name, and nothing has changed.
#[test]
fn what_stays() {
    with_pool(1, 4, |w| {
        own(w, 1);
        let file = object(w, 1);
        map(w, AT + 8 * HUGE, 1, &file, 0, MapFlags::empty()).unwrap();
        for at in [AT, AT + 8 * HUGE] {
            w.space.write(at, &[3]).unwrap();
            let pin = w.space.pin_page(at + 9 * PAGE, Term::Long).unwrap();
            let before = all(w);
            assert_eq!(w.vm.migrate_frame(pin.pfn()), Err(MigrateRefusal::Pinned));
            assert_eq!((all(w) == before, frame_of(w.space, at).0 + 9), (true, pin.pfn().0));
            check(w.vm, &[w.space]);
        }
        let pinned = w.vm.event(Event::MigrateRefusedPinned);
        assert_eq!((pinned, w.vm.event(Event::MigrateRefusedHugetlb)), (2, 0), "a long pin asks for no move");
        w.space.munmap(AT + 8 * HUGE, HUGE).unwrap();
    });
    in_setup(Setup::PLAIN, 1, 64 << 20, |w| {
        pool(w, 18);
        own(w, 1);
        w.space.write(AT, &[3]).unwrap();
        let children: Vec<_> = (0..16).map(|_| w.space.fork().unwrap()).collect();
        assert_eq!(w.vm.migrate_frame(frame_of(w.space, AT)), Err(MigrateRefusal::TooManyMaps));
        drop(children);
        moved(w, AT);
        w.space.munmap(AT, HUGE).unwrap();
        pool(w, 0);
    });
}

/// A move needs no frame but those of the target; where one is refused nothing has changed.
#[test]
fn each_frame_may_be_refused() {
    with_pool(1, 3, |w| {
        own(w, 2);
        let file = object(w, 1);
        map(w, AT + 8 * HUGE, 1, &file, 0, MapFlags::empty()).unwrap();
        for at in [AT, AT + 8 * HUGE] {
            w.space.write(at, &[3]).unwrap();
            for k in 0.. {
                let before = all(w);
                w.vm.fail_allocation(Some(k));
                let result = w.vm.migrate_frame(frame_of(w.space, at));
                w.vm.fail_allocation(None);
                assert_eq!((all(w) == before, bytes(w.space, at)), (true, [3]), "the {k}th");
                check(w.vm, &[w.space]);
                if result.is_ok() {
                    assert!(k > 0, "none was refused");
                    break;
                }
                assert_eq!(result, Err(MigrateRefusal::NoTarget));
            }
        }
        w.space.munmap(AT + 8 * HUGE, HUGE).unwrap();
    });
}

/// Subscribers are told of the whole page before it moves.
#[test]
fn subscribers_are_told_of_all_of_it() {
    with_pool(1, 3, |w| {
        let told = told_ranges(w);
        own(w, 1);
        w.space.write(AT, &[3]).unwrap();
        let child = w.space.fork().unwrap();
        let subscription = w.space.subscribe();
        moved(w, AT);
        let page = PageRange::sized(Vpn(AT / PAGE), 512).unwrap();
        assert_eq!((&*told.lock().unwrap(), bytes(&child, AT)), (&vec![page], [3]));
        check(w.vm, &[w.space, &child]);
        drop(subscription);
    });
}

/// Programs add to words of pages that move all the time: nobody loses a store.
#[test]
fn h5_moves_under_use() {
    in_each_setup(4, 32 << 20, |w| {
        pool(w, 4);
        own(w, 1);
        let file = object(w, 1);
        map(w, AT + 8 * HUGE, 1, &file, 0, MapFlags::empty()).unwrap();
        let (nr_moved, rounds) = (AtomicU64::new(0), AtomicU64::new(0));
        let at_file = AT + 8 * HUGE;
        let (first, second) = (counts_up(AT, 4, &rounds), counts_up(at_file + 8, 4, &rounds));
        let mut nr_of_file = 0;
        w.race(&[&first, &second, &moves_all(w.space, AT, 1, &nr_moved)], |running| {
            while nr_moved.load(SeqCst) < 20 || rounds.load(SeqCst) < 10 || nr_of_file < 10 {
                let child = w.space.fork().unwrap();
                _ = touch(&child, AT + 5 * PAGE);
                drop(child);
                running.store(at_file + 100 * PAGE, &[1u8]).unwrap();
                if let Some(there) = w.space.translate_at_rest(at_file) {
                    nr_of_file += u64::from(w.vm.migrate_frame(there.pfn).is_ok());
                }
            }
        });
        w.space.munmap(AT, 16 * HUGE).unwrap();
        drop(file);
        assert_eq!((counts(w).nr, free(w)), (4, (4, 0)));
        check(w.vm, &[w.space]);
        pool(w, 0);
    });
}

/// Surplus pages have their descriptors, so those of a target are free memory after a move. They say whose the frames were: small
/// pages'. Each frame that is said to be zero is.
#[test]
fn former_descriptors_are_not_taken_for_zero() {
    in_each_setup(1, 32 << 20, |w| {
        let nr = w.vm.vmstat().nr_free_pages - 100;
        w.space.mmap(AT, nr * PAGE, RW, PRIVATE | FIXED).unwrap();
        w.space.madvise(AT, nr * PAGE, softfault::Advice::NoHugePage).unwrap();
        (0..nr).for_each(|page| w.space.write(AT + page * PAGE, &[1]).unwrap());
        w.space.munmap(AT, nr * PAGE).unwrap();
        pool(w, 2);
        w.vm.set_nr_overcommit_hugepages(Order::PMD, 4).unwrap();
        own(w, 6);
        (0..6).for_each(|page| touch(w.space, AT + page * HUGE).unwrap());
        for round in 0..3 {
            (0..w.vm.nr_frames() as u32).step_by(512).for_each(|first| _ = w.vm.migrate_frame(Pfn(first + round)));
            assert_eq!((counts(w).nr, counts(w).surplus, free(w)), (6, 4, (0, 0)));
            // They may lie in a CPU's cache, for tables.
            (1..30).for_each(|i| {
                w.space.mmap(AT + (i << 30), PAGE, RW, PRIVATE | FIXED).unwrap();
                w.space.write(AT + (i << 30), &[1]).unwrap();
            });
            check(w.vm, &[w.space]);
            w.space.munmap(AT + (1 << 30), 30 << 30).unwrap();
            assert_eq!(softfault_testkit::at_rest::check_free_is_zero(w.vm), Ok(()), "{round}");
        }
        w.space.munmap(AT, 6 * HUGE).unwrap();
        w.vm.set_nr_overcommit_hugepages(Order::PMD, 0).unwrap();
        pool(w, 0);
    });
}
