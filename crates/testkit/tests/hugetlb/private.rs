//! Private mappings of a pool: the owners of pages and of claims, and what fork(2) makes of both.

use super::common::objects::{bytes, touch, whole};
use super::common::*;
use super::of_both_sizes::{fork_refusing_each_frame, last_page_is_touched_by_all};
use super::{AT, HUGE, counts, free, with_pool};
use softfault::{Advice, Errno, Event, FaultError, MapFlags, MmapError, Order, Term};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

const OWN: MapFlags = PRIVATE.union(MapFlags::HUGETLB);
const GONE: Result<(), FaultError> = Err(FaultError::NoHugePage);
const TAKEN: Result<(), FaultError> = Err(FaultError::Taken);

fn own(w: &World<'_>, nr: u64) {
    assert_eq!(w.space.mmap(AT, nr * HUGE, RW, OWN | FIXED), Ok(AT));
}

#[test]
fn claims_are_the_mappings() {
    with_pool(1, 4, |w| {
        own(w, 2);
        assert_eq!((free(w), w.space.mmap(0, 3 * HUGE, RW, OWN)), ((4, 2), Err(MmapError::NoHugePages)));
        w.space.write(AT + 7, &[1]).unwrap();
        let state = w.space.page_state(AT).unwrap();
        assert_eq!((free(w), state.order, w.space.rss_pages().anon), ((3, 1), Order::PMD, 512));
        check(w.vm, &[w.space]);
        let child = w.space.fork().unwrap();
        assert_eq!((free(w), child.rss_pages().anon), ((3, 1), 512), "no page is promised for a copy");
        check(w.vm, &[w.space, &child]);
        assert_eq!((bytes(&child, AT + 7), bytes(&child, AT + HUGE)), ([1], [0]));
        assert_eq!(free(w), (2, 1), "the child's own first touch has no claim");
        child.write(AT + 7, &[2]).unwrap();
        assert_eq!((free(w), bytes(&child, AT + 7), bytes(w.space, AT + 7)), ((1, 1), [2], [1]));
        check(w.vm, &[w.space, &child]);
        w.space.write(AT + 8, &[3]).unwrap();
        assert_eq!((free(w), w.vm.event(Event::CowReuse)), ((1, 1), 1), "it is alone again");
        drop(child);
        assert_eq!((free(w), bytes(w.space, AT + HUGE + 1)), ((3, 1), [0; 4]));
        let child = w.space.fork().unwrap();
        w.space.write(AT + 8, &[4]).unwrap();
        assert_eq!((free(w), bytes(&child, AT + 7)), ((1, 0), [1, 3]));
        check(w.vm, &[w.space, &child]);
        w.space.munmap(AT, HUGE).unwrap();
        assert_eq!(free(w), (2, 0));
        drop(child);
        assert_eq!(free(w), (3, 0));
    });
}

/// A dropped page keeps its claim: it may be touched again, no matter which space has the page.
#[test]
fn a_page_that_is_dropped_comes_again() {
    with_pool(1, 2, |w| {
        own(w, 1);
        w.space.write(AT, &[5]).unwrap();
        w.space.madvise(AT, HUGE, DONTNEED).unwrap();
        assert_eq!((free(w), bytes(w.space, AT), free(w)), ((2, 1), [0], (1, 0)));
        w.space.write(AT, &[6]).unwrap();
        let child = w.space.fork().unwrap();
        w.space.madvise(AT, HUGE, DONTNEED).unwrap();
        assert_eq!(free(w), (1, 1), "the place has a claim to the other page");
        check(w.vm, &[w.space, &child]);
        assert_eq!((bytes(&child, AT), bytes(w.space, AT), free(w)), ([6], [0], (0, 0)));
        child.madvise(AT, HUGE, DONTNEED).unwrap();
        assert_eq!((free(w), touch(&child, AT), free(w)), ((1, 0), Ok(()), (0, 0)));
        drop(child);
        let moved = AT + 8 * HUGE;
        assert_eq!(w.space.mremap(AT, HUGE, HUGE, MAYMOVE | MREMAP_FIXED, moved), Ok(moved));
        check(w.vm, &[w.space]);
        w.space.madvise(moved, HUGE, DONTNEED).unwrap();
        assert_eq!((free(w), w.space.mremap(moved, HUGE, HUGE, MAYMOVE | MREMAP_FIXED, AT)), ((2, 1), Ok(AT)));
        assert_eq!((free(w), touch(w.space, AT), free(w)), ((2, 1), Ok(()), (1, 0)));
    });
}

/// The parent and the holder of a pin keep the page.
#[test]
fn pins_keep_the_page() {
    with_pool(1, 2, |w| {
        own(w, 1);
        w.space.write(AT, &[5]).unwrap();
        let pin = w.space.pin_page_mut(AT + 3 * PAGE, Term::Short).unwrap();
        let child = w.space.fork().unwrap();
        assert_eq!((free(w), bytes(&child, AT)), ((0, 0), [5]), "a copy at once");
        pin.write(0, &[7; 8]);
        assert_eq!((bytes(w.space, AT + 3 * PAGE), bytes(&child, AT + 3 * PAGE)), ([7], [0]));
        let second = w.space.fork().unwrap();
        assert_eq!((touch(&second, AT), w.vm.event(Event::ForkNoHugePage)), (TAKEN, 1), "the pool has none for a copy");
        check(w.vm, &[w.space, &child, &second]);
        drop(second);
        w.space.madvise(AT, HUGE, DONTNEED).unwrap();
        assert_eq!((touch(w.space, AT), free(w)), (GONE, (0, 0)), "nor for the place of a page that is pinned");
        check(w.vm, &[w.space, &child]);
        drop(pin);
        assert_eq!((free(w), touch(w.space, AT), free(w)), ((1, 0), Ok(()), (0, 0)), "it has a claim again");
        w.space.munmap(AT, HUGE).unwrap();
        drop(child);
        own(w, 1);
        let read = w.space.pin_page(AT, Term::Short).unwrap();
        w.space.madvise(AT, HUGE, DONTNEED).unwrap();
        assert_eq!((free(w), touch(w.space, AT), free(w)), ((1, 1), Ok(()), (0, 0)), "the other page");
        drop(read);
        assert_eq!(free(w), (1, 0));
    });
}

#[test]
fn without_reservations() {
    with_pool(1, 2, |w| {
        w.space.mmap(AT, 3 * HUGE, RW, OWN | FIXED | MapFlags::NORESERVE).unwrap();
        assert_eq!((free(w), touch(w.space, AT + 5), touch(w.space, AT + HUGE)), ((2, 0), Ok(()), Ok(())));
        assert_eq!((touch(w.space, AT + 2 * HUGE), free(w)), (GONE, (0, 0)));
        w.space.madvise(AT, HUGE + PAGE, DONTNEED).unwrap();
        assert_eq!((free(w), touch(w.space, AT + 2 * HUGE)), ((1, 0), Ok(())));
        check(w.vm, &[w.space]);
    });
}

/// `MAP_NONBLOCK` maps what is there; of private pages nothing is.
#[test]
fn what_is_ready_is_no_page_of_the_pool() {
    with_pool(1, 1, |w| {
        let ready = MapFlags::POPULATE | MapFlags::NONBLOCK;
        w.space.mmap(AT, HUGE, RW, OWN | FIXED | ready | MapFlags::NORESERVE).unwrap();
        assert_eq!((free(w), w.space.rss_pages().anon), ((1, 0), 0));
        assert_eq!(w.space.mmap(AT, HUGE, RW, OWN | FIXED | MapFlags::POPULATE), Ok(AT));
        assert_eq!(free(w), (0, 0));
    });
}

/// The k-th frame of fork is refused: nothing is kept.
#[test]
fn each_frame_may_be_refused() {
    with_pool(1, 4, |w| {
        own(w, 2);
        w.space.write(AT, &[1]).unwrap();
        fork_refusing_each_frame(w, free, &|child| assert_eq!(bytes(child, AT), [1]));
    });
}

/// Others leave these pages alone, each by name.
#[test]
fn others_leave_them_alone() {
    with_pool(1, 1, |w| {
        own(w, 1);
        w.space.write(AT, &[1]).unwrap();
        let frame = frame_of(w.space, AT);
        assert!(w.vm.poison_frame(frame).is_err());
        assert_eq!(w.vm.shrink_underused(1 << 10), 0);
        for advice in [Advice::Collapse, FREE, WIPEONFORK, GUARD_INSTALL, Advice::PageOut] {
            assert_eq!(w.space.madvise(AT, HUGE, advice).unwrap_err().errno(), Errno::EINVAL, "{advice:?}");
        }
        assert_eq!(w.space.mprotect(AT + PAGE, PAGE, READ).unwrap_err().errno(), Errno::EINVAL);
        assert_eq!(w.space.madvise(AT + PAGE, HUGE - PAGE, Advice::Collapse).unwrap_err().errno(), Errno::EINVAL);
        assert_eq!((w.space.mprotect(AT, HUGE, READ), touch(w.space, AT)), (Ok(()), Err(FaultError::NoRights)));
        assert_eq!((w.space.mprotect(AT, HUGE, RW), touch(w.space, AT), bytes(w.space, AT)), (Ok(()), Ok(()), [1]));
        assert_eq!((w.space.test_and_clear_young(AT, HUGE), free(w)), (512, (0, 0)));
    });
}

/// H7: what private mappings do not have is refused by name.
#[test]
fn h7_private_mappings_that_are_refused() {
    with_pool(1, 1, |w| {
        let large = w.vm.new_hugetlb_object(1 << 30, Order::PUD).unwrap();
        let of_object = w.space.mmap_object(0, 1 << 30, RW, MapFlags::PRIVATE, whole(&large));
        assert_eq!(of_object, Err(MmapError::NoHugePages));
        assert_eq!(w.space.mmap(0, 1 << 30, RW, OWN | MapFlags::HUGE_1GB), Err(MmapError::NoHugePages));
        assert_eq!(w.space.mmap(0, HUGE, RW, OWN | GROWSDOWN), Err(MmapError::BadFlags));
        assert_eq!(w.space.mmap(AT + PAGE, HUGE, RW, OWN | FIXED), Err(MmapError::NotHugePages));
        own(w, 1);
        assert_eq!(w.space.mremap(AT, HUGE, 2 * HUGE, MAYMOVE, 0).unwrap_err().errno(), Errno::EINVAL);
    });
}

/// H6: a smaller pool keeps what private mappings were promised.
#[test]
fn h6_private_claims_become_surplus() {
    with_pool(1, 3, |w| {
        own(w, 2);
        touch(w.space, AT).unwrap();
        let child = w.space.fork().unwrap();
        assert_eq!(w.vm.set_nr_hugepages(Order::PMD, 0), Ok(0));
        assert_eq!((counts(w).nr, counts(w).surplus, free(w)), (2, 2, (1, 1)), "nothing is kept for copies");
        assert_eq!(touch(&child, AT), GONE);
        touch(w.space, AT + HUGE).unwrap();
        check(w.vm, &[w.space, &child]);
        drop(child);
        w.space.munmap(AT, 2 * HUGE).unwrap();
        assert_eq!((counts(w).nr, counts(w).surplus), (0, 0));
        super::pool(w, 3);
    });
}

#[test]
fn h2_dontneed_against_touches_and_a_third_mapping() {
    with_pool(4, 1, |w| {
        own(w, 1);
        let drop = || w.space.madvise(AT, HUGE, DONTNEED).unwrap();
        last_page_is_touched_by_all(w, AT + 5 * PAGE, 50, &drop, |space| space.mmap(0, HUGE, RW, OWN));
    });
}

/// Those who touch the last page get it, also without a reservation: it is free before its place is empty.
#[test]
fn h1_the_last_private_page() {
    with_pool(3, 1, |w| {
        w.space.mmap(AT, HUGE, RW, OWN | FIXED | MapFlags::NORESERVE).unwrap();
        let toucher = |running: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(Relaxed) {
                running.store(AT + HUGE - 1, &[1u8]).unwrap();
            }
        };
        w.race(&[&toucher, &toucher], |running| {
            for _ in 0..200 {
                w.space.madvise(AT, HUGE, DONTNEED).unwrap();
                running.store(AT, &[1u8]).unwrap();
            }
        });
    });
}

/// H5 and H8: forks, copies in both, and unmaps, with as many pages as are needed and no more. A copy has nothing that the
/// parent stored after fork(2).
#[test]
fn h5_forks_and_copies_against_stores() {
    with_pool(3, 2, |w| {
        own(w, 1);
        let counter = |running: &Running<'_>, stop: &AtomicBool| {
            let mut i = 0_u64;
            while !stop.load(Relaxed) {
                i += 1;
                running.store(AT + 8, &i.to_le_bytes()).unwrap();
            }
        };
        let toucher = |running: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(Relaxed) {
                running.store(AT + HUGE - 8, &[1u8]).unwrap();
            }
        };
        w.race(&[&counter, &toucher], |running| {
            for i in 0..60u8 {
                running.store(AT, &[i]).unwrap();
                let child = w.space.fork().unwrap();
                let then: [u8; 16] = bytes(&child, AT);
                assert_eq!(then[0], i);
                if i % 3 != 0 {
                    child.write(AT, &[i + 100]).unwrap();
                    let now: [u8; 16] = bytes(&child, AT);
                    assert_eq!((now[0], &now[1..], bytes(w.space, AT)), (i + 100, &then[1..], [i]));
                }
                if i % 2 == 0 {
                    child.munmap(AT, HUGE).unwrap();
                }
                drop(child);
            }
        });
        assert_eq!(free(w), (1, 0));
    });
}

/// A space that ends gives its claims back.
#[test]
fn claims_end_with_their_space() {
    with_pool(1, 2, |w| {
        let other = w.vm.new_space().unwrap();
        other.mmap(AT, 2 * HUGE, RW, OWN | FIXED).unwrap();
        touch(&other, AT).unwrap();
        assert_eq!(free(w), (1, 1));
        drop(other);
        assert_eq!(free(w), (2, 0));
    });
}

/// The user part of x86-64 ends within a page of the pool.
#[test]
fn no_mapping_moves_over_the_end_of_the_user_part() {
    with_pool(1, 2, |w| {
        own(w, 1);
        w.space.mmap(AT + 2 * HUGE, HUGE, RW, SHARED | FIXED | MapFlags::HUGETLB).unwrap();
        w.space.write(AT, &[5]).unwrap();
        w.space.write(AT + 2 * HUGE, &[6]).unwrap();
        let last = (1 << 47) - HUGE;
        for (from, byte) in [(AT, 5), (AT + 2 * HUGE, 6)] {
            for (old_len, len) in [(PAGE, PAGE), (HUGE, PAGE), (PAGE, HUGE - PAGE), (HUGE, HUGE)] {
                let moved = w.space.mremap(from, old_len, len, MAYMOVE | MREMAP_FIXED, last);
                assert_eq!(moved.map_err(|error| error.errno()), Err(Errno::EINVAL), "{old_len:#x} {len:#x}");
            }
            assert_eq!((bytes(w.space, from), w.space.vma(last)), ([byte], None));
        }
        let before = last - HUGE;
        assert_eq!(w.space.mremap(AT, PAGE, PAGE, MAYMOVE | MREMAP_FIXED, before), Ok(before));
        assert_eq!(bytes(w.space, before), [5]);
        w.space.munmap(before, HUGE).unwrap();
    });
}

/// A mapping over another one, which takes its pages, is refused for want of frames where it was those that were missing,
/// and then the old one is there, or gone.
#[test]
fn a_mapping_replaces_another_while_the_kth_allocation_fails() {
    let nr_kept = AtomicU64::new(0);
    for k in 0..16 {
        with_pool(1, 4, |w| {
            own(w, 4);
            (0..4).for_each(|i| w.space.write(AT + i * HUGE, &[1 + i as u8]).unwrap());
            w.vm.fail_allocation(Some(k));
            let mapped = w.space.mmap(AT + HUGE, 2 * HUGE, READ, OWN | FIXED);
            w.vm.fail_allocation(None);
            check(w.vm, &[w.space]);
            let all =
                |range: std::ops::Range<u64>| range.map(|i| bytes(w.space, AT + i * HUGE)).collect::<Vec<[u8; 1]>>();
            match mapped {
                Ok(at) => assert_eq!((at, free(w), all(0..4)), (AT + HUGE, (2, 2), vec![[1], [0], [0], [4]])),
                Err(MmapError::OutOfFrames(_)) => {
                    nr_kept.fetch_add(1, Relaxed);
                    assert_eq!((free(w), all(0..4)), ((0, 0), vec![[1], [2], [3], [4]]));
                }
                Err(other) => panic!("allocation {k}: {other}"),
            }
        });
    }
    assert_ne!(nr_kept.into_inner(), 0);
}
