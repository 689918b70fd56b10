//! Pages without a mapping, and where mappings of huge pages begin.

use super::common::objects::{bytes, whole};
use super::common::*;
use super::{ANON, AT, HUGE, counts, free, map, object, with_pool};
use softfault::{Errno, HugetlbError, MapFlags, Order};

/// fallocate(2): the pages that are missing, with reservations or without, and what was there stays.
#[test]
fn pages_are_provided_without_a_mapping() {
    with_pool(1, 3, |w| {
        let shared = object(w, 4);
        assert_eq!((shared.allocate(700..701), free(w)), (Ok(()), (2, 0)), "the page that has it");
        shared.write(HUGE, b"x").unwrap();
        map(w, AT, 1, &shared, 0, MapFlags::empty()).unwrap();
        assert_eq!(free(w), (2, 1));
        assert_eq!((shared.allocate(0..1024), free(w)), (Ok(()), (1, 0)), "with the reservation");
        let refused = shared.allocate(0..2048).unwrap_err();
        assert_eq!((refused.errno(), free(w)), (Errno::ENOSPC, (0, 0)), "the pages before stay");
        assert_eq!((shared.nr_resident_pages(), shared.next_resident(1536..2048)), (3 * 512, None));
        let mut byte = [0];
        assert_eq!((shared.read(HUGE, &mut byte), byte), (1, *b"x"));
        shared.set_size_bytes(HUGE);
        assert_eq!((shared.allocate(0..u64::MAX), free(w)), (Ok(()), (2, 0)), "none beyond the end");
        shared.set_size_bytes(0);
        let small = w.vm.new_shared_object(8 * PAGE).unwrap();
        assert_eq!((small.allocate(1..3), small.nr_resident_pages()), (Ok(()), 2));
        assert_eq!((small.allocate(5..99), small.nr_resident_pages()), (Ok(()), 5));
    });
}

/// As for a segment of System V: the reservations come before a mapping.
#[test]
fn pages_are_reserved_without_a_mapping() {
    with_pool(1, 3, |w| {
        let shared = object(w, 4);
        assert_eq!((shared.reserve(100..1024), free(w)), (Ok(()), (3, 2)));
        assert_eq!((shared.reserve(0..u64::MAX), free(w)), (Err(HugetlbError::NoHugePages), (3, 2)), "all or none");
        assert_eq!((shared.allocate(512..513), shared.reserve(0..1024), free(w)), (Ok(()), Ok(()), (2, 1)), "once");
        map(w, AT, 3, &shared, 0, MapFlags::empty()).unwrap();
        assert_eq!(free(w), (2, 2), "the mapping reserves what is missing still");
        shared.set_size_bytes(0);
        assert_eq!((shared.reserve(0..512), free(w)), (Ok(()), (3, 0)), "none beyond the end");
        let small = w.vm.new_shared_object(8 * PAGE).unwrap();
        assert_eq!(small.reserve(0..1), Err(HugetlbError::NotHugetlb));
        for k in 0..4 {
            let shared = object(w, 3);
            w.vm.fail_allocation(Some(k));
            let reserved = shared.reserve(0..1536);
            w.vm.fail_allocation(None);
            let nr = if reserved.is_ok() { 3 } else { 0 };
            assert_eq!(
                (reserved.map_err(|e| e.errno()).err(), free(w)),
                ((nr == 0).then_some(Errno::ENOMEM), (3, nr)),
                "{k}"
            );
            assert!(k > 0 || nr == 0, "a node is missing");
            check(w.vm, &[w.space]);
        }
    });
}

/// A huge page begins at a multiple of its size, whatever the hint, and whatever is mapped already.
#[test]
fn mappings_begin_at_whole_pages() {
    with_pool(1, 4, |w| {
        let odd = w.space.mmap(0, PAGE, RW, MapFlags::PRIVATE | MapFlags::ANONYMOUS).unwrap();
        let shared = object(w, 1);
        let by_hint = w.space.mmap_object(AT + PAGE, HUGE, RW, MapFlags::SHARED, whole(&shared)).unwrap();
        assert_eq!(by_hint, AT + HUGE, "the hint, rounded up");
        let again = w.space.mmap_object(by_hint, HUGE, RW, MapFlags::SHARED, whole(&shared)).unwrap();
        let below = w.space.mmap(0, HUGE, RW, ANON).unwrap();
        assert!(again != by_hint && again % HUGE == 0 && below % HUGE == 0, "{again:x} {below:x}");
        let small = w.vm.new_hugetlb_object(0, Order::PUD).unwrap();
        let at = w.space.mmap_object(0, HUGE << 9, RW, MapFlags::SHARED | MapFlags::NORESERVE, whole(&small)).unwrap();
        assert_eq!(at % (HUGE << 9), 0);
        assert_eq!((counts(w).reserved, bytes(w.space, by_hint)), (2, [0; 16]));
        for (at, len) in [(odd, PAGE), (by_hint, HUGE), (again, HUGE), (below, HUGE), (at, HUGE << 9)] {
            w.space.munmap(at, len).unwrap();
        }
    });
}
