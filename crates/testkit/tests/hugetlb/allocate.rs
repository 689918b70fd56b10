//! Pages without a mapping, and where mappings of huge pages begin.

use super::common::objects::{bytes, whole};
use super::common::*;
use super::{ANON, AT, HUGE, counts, free, map, object, with_pool};
use softfault::{Errno, HugetlbError, MapFlags, MmapError, Order};

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

/// A mapping that makes the object larger, and pages that do: refused, they end no claim beyond the end.
#[test]
fn an_object_grows_with_what_is_granted() {
    with_pool(1, 4, |w| {
        let shared = object(w, 0);
        map(w, AT, 2, &shared, 0, MapFlags::empty()).unwrap();
        assert_eq!((free(w), shared.size_bytes()), ((4, 2), 0));
        let grown = |nr: u64, more: MapFlags| {
            let flags = MapFlags::SHARED | MapFlags::FIXED | more;
            w.space.mmap_object(AT + 8 * HUGE, nr * HUGE, RW, flags, whole(&shared).with_grows(true))
        };
        assert_eq!(grown(5, MapFlags::empty()), Err(MmapError::NoHugePages));
        assert_eq!((free(w), shared.size_bytes()), ((4, 2), 0), "a refused mapping");
        assert_eq!(shared.extend(0..5 * 512), Err(HugetlbError::NoHugePages));
        assert_eq!((free(w), shared.size_bytes()), ((4, 2), 0), "refused pages");
        assert!(grown(3, MapFlags::POPULATE).is_ok());
        assert_eq!((free(w), shared.size_bytes()), ((1, 0), 3 * HUGE), "populated after it has grown");
        assert!(grown(1, MapFlags::empty()).is_ok());
        assert_eq!(shared.size_bytes(), 3 * HUGE, "never smaller");
        assert_eq!((shared.extend(1024..2048), free(w), shared.size_bytes()), (Ok(()), (0, 0), 4 * HUGE));
        assert_eq!((shared.extend(0..512), shared.size_bytes()), (Ok(()), 4 * HUGE));
        shared.set_size_bytes(0);
        for k in 0..6 {
            w.vm.fail_allocation(Some(k));
            let done = shared.extend(2048..2560);
            w.vm.fail_allocation(None);
            let size = if done.is_ok() { 5 * HUGE } else { 0 };
            assert_eq!((shared.size_bytes(), free(w)), (size, if size == 0 { (4, 0) } else { (3, 0) }), "{k}");
            shared.set_size_bytes(0);
        }
        let small = w.vm.new_shared_object(PAGE).unwrap();
        assert_eq!(small.extend(0..512), Err(HugetlbError::NotHugetlb));
        let far = u64::MAX - 1..u64::MAX;
        let (extended, reserved) = (shared.extend(far.clone()), shared.reserve(far.clone()));
        assert_eq!((extended, reserved, shared.allocate(far)), (Ok(()), Ok(()), Ok(())), "nothing lies there");
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
