//! Calls that end within a page of a pool and change nothing of its mapping, and pages of a pool below 2 GiB.

use super::common::objects::{touch, whole};
use super::common::*;
use super::{AT, HUGE, free, object, with_pool};
use softfault::{Advice, Errno, MapFlags, MmapError, MprotectError};

const OWN: MapFlags = PRIVATE.union(MapFlags::HUGETLB);
const BELOW: MapFlags = OWN.union(MapFlags::BITS_32).union(MapFlags::NORESERVE);
/// Ranges with an end in the middle of a page, in three pages from `AT` on.
const PARTS: [(u64, u64); 4] = [(AT, PAGE), (AT + PAGE, PAGE), (AT + PAGE, 2 * HUGE), (AT + HUGE, HUGE + PAGE)];

/// As Linux: what changes no flag splits no mapping.
#[test]
fn nothing_is_refused_that_changes_nothing() {
    with_pool(1, 3, |w| {
        let space = w.space;
        space.mmap(AT, 3 * HUGE, RW, OWN | FIXED).unwrap();
        touch(space, AT + HUGE).unwrap();
        for (from, len) in PARTS {
            assert_eq!(space.mprotect(from, len, RW), Ok(()), "{from:#x} {len:#x}");
            assert_eq!(space.mprotect(from, len, READ), Err(MprotectError::NotHugePages));
            for advice in [Advice::Normal, Advice::DoDump, Advice::DoFork, Advice::KeepOnFork] {
                assert_eq!(space.madvise(from, len, advice), Ok(()), "{advice:?} {from:#x} {len:#x}");
            }
            for advice in [Advice::Random, Advice::DontDump, Advice::DontFork, Advice::WipeOnFork, Advice::HugePage] {
                assert_eq!(space.madvise(from, len, advice).unwrap_err().errno(), Errno::EINVAL, "{advice:?}");
            }
            assert_eq!((space.nr_vmas(), free(w)), (1, (2, 2)));
            check(w.vm, &[space]);
        }
        // Of two mappings the first changes, and the second, in which the range ends, does not.
        space.mprotect(AT + HUGE, 2 * HUGE, READ).unwrap();
        assert_eq!(space.mprotect(AT, HUGE + PAGE, READ), Ok(()));
        assert_eq!((space.nr_vmas(), free(w)), (1, (2, 2)));
        assert_eq!(space.mprotect(AT, HUGE, RW), Ok(()));
        assert_eq!(space.mprotect(AT + PAGE, HUGE, READ), Err(MprotectError::NotHugePages), "the first would be cut");
        space.madvise(AT, 3 * HUGE, Advice::HugePage).unwrap();
        assert_eq!(space.madvise(AT + PAGE, PAGE, Advice::HugePage), Ok(()));
        check(w.vm, &[space]);
    });
}

/// MAP_32BIT, at a hint and without one.
#[test]
fn pages_of_a_pool_are_placed_below_2_gib() {
    with_pool(1, 2, |w| {
        let below = |addr, len, flags| w.space.mmap(addr, len, RW, flags);
        // So that the lowest hole begins within a page of the pool.
        w.space.mmap(1 << 30, PAGE, RW, PRIVATE | FIXED).unwrap();
        let first = below(0, HUGE, BELOW).unwrap();
        assert!(first + HUGE <= 1 << 31 && first.is_multiple_of(HUGE), "{first:#x}");
        let hint = 0x5000_0000;
        assert_eq!(below(hint, HUGE, BELOW), Ok(hint));
        assert_eq!(below(hint + HUGE + PAGE, HUGE, BELOW), Ok(hint + 2 * HUGE), "rounded up");
        assert_ne!(below(hint, HUGE, BELOW), Ok(hint), "it is taken");
        let last = below((2 << 30) - PAGE, HUGE, BELOW).unwrap();
        assert!(last + HUGE <= 1 << 31, "{last:#x}");
        assert_eq!(below(0, 1 << 30, BELOW), Err(MmapError::NoHole), "part of it is taken");
        let file = object(w, 1);
        let flags = MapFlags::SHARED | MapFlags::BITS_32;
        let shown = w.space.mmap_object(0, HUGE, RW, flags, whole(&file)).unwrap();
        assert!(shown + HUGE <= 1 << 31 && shown.is_multiple_of(HUGE), "{shown:#x}");
        touch(w.space, shown).unwrap();
        let above = below(0, HUGE, OWN).unwrap();
        assert!(above >= 1 << 32, "only where it is asked for");
        w.space.munmap(above, HUGE).unwrap();
        w.space.munmap(0, 2 << 30).unwrap();
        drop(file);
    });
}
