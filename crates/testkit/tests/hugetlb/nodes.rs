//! Reservations by the word of a node: 64 pages of a pool have their words in one, and the first reservation there decides what
//! an empty word means.

use super::common::objects::touch;
use super::common::*;
use super::{AT, HUGE, NORESERVE, counts, free, map, object, pool, with_pool};
use softfault::{CpuId, FaultError, HugetlbError, MapFlags, MmapError};

/// The last page of one node, the first ones of the next.
const LAST: u64 = 63;

/// Pages on both sides of the border, in the order in which calls name them.
fn pages(first: u64, nr: u64) -> core::ops::Range<u64> {
    first * 512..(first + nr) * 512
}

#[test]
fn a_reservation_in_two_nodes() {
    with_pool(1, 5, |w| {
        let shared = object(w, 130);
        shared.reserve(pages(LAST, 3)).unwrap();
        assert_eq!(free(w), (5, 3));
        check(w.vm, &[w.space]);
        // Pages beside them, which nobody has reserved, in both nodes, and in one without a node.
        for page in [0, LAST - 1, LAST + 3] {
            map(w, AT, 1, &shared, page, NORESERVE).unwrap();
            let touched = touch(w.space, AT + 5);
            assert_eq!(touched.is_ok(), page < LAST + 3, "page {page}, {:?}", free(w));
        }
        assert_eq!((free(w), touch(w.space, AT + 5)), ((3, 3), Err(FaultError::NoHugePage)));
        // Once each, however often.
        shared.reserve(pages(LAST - 1, 4)).unwrap();
        assert_eq!(free(w), (3, 3));
        assert_eq!(shared.reserve(pages(LAST - 2, 3)), Err(HugetlbError::NoHugePages));
        check(w.vm, &[w.space]);
        map(w, AT + HUGE, 3, &shared, LAST, MapFlags::empty()).unwrap();
        (0..3).for_each(|i| touch(w.space, AT + (1 + i) * HUGE).unwrap());
        assert_eq!(free(w), (0, 0));
        // A hole takes pages with their claims; what is empty now is not reserved.
        shared.discard(pages(LAST, 2));
        assert_eq!(free(w), (2, 0));
        shared.reserve(pages(LAST + 1, 1)).unwrap();
        assert_eq!(free(w), (2, 1));
        touch(w.space, AT + HUGE).unwrap();
        map(w, AT, 1, &shared, 0, MapFlags::empty()).unwrap();
        shared.discard(pages(0, 1));
        assert_eq!(free(w), (2, 1));
        check(w.vm, &[w.space]);
        shared.set_size_bytes(LAST * HUGE);
        assert_eq!(free(w), (4, 0));
        check(w.vm, &[w.space]);
    });
}

/// A refused reservation leaves a node in which nothing is reserved, whether the pool had too few pages or there was no frame.
#[test]
fn a_refused_reservation_leaves_nothing() {
    with_pool(1, 3, |w| {
        let shared = object(w, 130);
        assert_eq!(shared.reserve(pages(LAST, 4)), Err(HugetlbError::NoHugePages));
        assert_eq!(free(w), (3, 0));
        check(w.vm, &[w.space]);
        let refused = map(w, AT, 4, &shared, LAST - 1, MapFlags::empty());
        assert_eq!((refused, free(w)), (Err(MmapError::NoHugePages), (3, 0)));
        // Its nodes are there: pages are reserved one by one.
        shared.reserve(pages(LAST, 2)).unwrap();
        map(w, AT, 1, &shared, LAST + 2, NORESERVE).unwrap();
        touch(w.space, AT).unwrap();
        assert_eq!(free(w), (2, 2));
        map(w, AT, 1, &shared, LAST + 3, NORESERVE).unwrap();
        assert_eq!(touch(w.space, AT), Err(FaultError::NoHugePage));
        shared.set_size_bytes(0);
        assert_eq!(free(w), (3, 0));
        for k in 0.. {
            let other = object(w, 130);
            w.vm.fail_allocation(Some(k));
            let reserved = other.reserve(pages(LAST, 3));
            w.vm.fail_allocation(None);
            check(w.vm, &[w.space]);
            match reserved {
                Ok(()) => {
                    assert!((k > 2) && free(w) == (3, 3), "{k} frames, {:?}", free(w));
                    break;
                }
                Err(refused) => assert!(matches!(refused, HugetlbError::OutOfFrames(_)), "{refused:?}"),
            }
            assert_eq!(free(w), (3, 0), "the {k}th allocation failed");
            // As if nobody had asked.
            map(w, AT, 1, &other, LAST, NORESERVE).unwrap();
            touch(w.space, AT).unwrap();
            assert_eq!(free(w), (2, 0));
            w.space.munmap(AT, HUGE).unwrap();
        }
    });
}

/// A node that a fault has put in keeps its meaning, and so does one of a reservation, whoever ends.
#[test]
fn the_end_of_an_object_returns_what_is_reserved() {
    with_pool(1, 4, |w| {
        let [by_fault, by_call] = [(); 2].map(|()| object(w, 70));
        map(w, AT, 1, &by_fault, 3, NORESERVE).unwrap();
        touch(w.space, AT).unwrap();
        by_fault.reserve(pages(2, 2)).unwrap();
        by_call.reserve(pages(69, 1)).unwrap();
        by_call.reserve(pages(64, 1)).unwrap();
        assert_eq!((counts(w).nr, free(w)), (4, (3, 3)));
        check(w.vm, &[w.space]);
        drop(by_call);
        assert_eq!(free(w), (3, 1));
        w.space.munmap(AT, HUGE).unwrap();
        drop(by_fault);
        assert_eq!(free(w), (4, 0));
    });
}

/// Two CPUs reserve pages of one file, and memory has no frame for a node: both are refused. Neither waits for the frames of the
/// other while that waits for its lock, which the order of locks would forbid.
#[test]
fn two_reservations_without_frames() {
    in_each_setup(2, 8 << 20, |w| {
        pool(w, 1);
        let shared = object(w, 2);
        let size = w.vm.vmstat().nr_free_pages * PAGE;
        let others = w.vm.new_space().unwrap();
        others.mmap(BASE, size, RW, PRIVATE | FIXED).unwrap();
        (0..size / PAGE).take_while(|page| touch(&others, BASE + page * PAGE).is_ok()).count();
        let on_the_other = || {
            let _cpu = w.vm.machine().bind(CpuId(1)).unwrap();
            assert!(shared.reserve(0..512).is_err());
        };
        std::thread::scope(|threads| {
            let other = threads.spawn(on_the_other);
            assert!(shared.reserve(0..512).is_err());
            other.join().unwrap();
        });
        drop(others);
        drop(shared);
        pool(w, 0);
    });
}
