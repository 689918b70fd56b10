//! Surplus pages: they come from free memory when the pool has too few, up to a limit, and go when nobody needs them.

use super::*;
use softfault::Event;

/// Surplus pages come when they are needed, and go when nobody needs them.
#[test]
fn overcommit() {
    with_pool(1, 1, |w| {
        w.vm.set_nr_overcommit_hugepages(Order::PMD, 2).unwrap();
        let shared = object(w, 8);
        assert_eq!(map(w, AT, 4, &shared, 0, MapFlags::empty()), Err(MmapError::NoHugePages));
        assert_eq!((counts(w).nr, counts(w).surplus), (1, 0));
        map(w, AT, 3, &shared, 0, MapFlags::empty()).unwrap();
        assert_eq!((counts(w).nr, counts(w).surplus, free(w)), (3, 2, (3, 3)));
        check(w.vm, &[w.space]);
        touch(w.space, AT).unwrap();
        shared.discard(512..1536);
        assert_eq!((counts(w).nr, counts(w).surplus, free(w)), (1, 0, (0, 0)), "those that nobody wants are gone");
        map(w, AT + 8 * HUGE, 8, &shared, 0, NORESERVE).unwrap();
        touch(w.space, AT + 9 * HUGE).unwrap();
        touch(w.space, AT + 10 * HUGE).unwrap();
        assert_eq!(touch(w.space, AT + 11 * HUGE), Err(FaultError::NoHugePage));
        assert_eq!((counts(w).nr, counts(w).surplus, free(w)), (3, 2, (0, 0)));
        pool(w, 2);
        assert_eq!((counts(w).nr, counts(w).surplus), (3, 1), "a surplus page has become one that stays");
        pool(w, 1);
        shared.set_size_bytes(0);
        w.vm.set_nr_overcommit_hugepages(Order::PMD, 0).unwrap();
    });
}

/// A reservation for which memory has too few blocks is refused before it takes one: others see all of them all the time.
#[test]
fn a_reservation_that_is_too_large_takes_no_block() {
    with_pool(1, 1, |w| {
        w.vm.set_nr_overcommit_hugepages(Order::PMD, 1 << 20).unwrap();
        let events = || [Event::HtlbBuddyAllocSuccess, Event::HtlbBuddyAllocFail].map(|event| w.vm.event(event));
        let before = events();
        for (i, kind) in [MapFlags::PRIVATE, SHARED].into_iter().enumerate() {
            let flags = kind | FIXED | MapFlags::ANONYMOUS | MapFlags::HUGETLB;
            assert_eq!(w.space.mmap(AT, 64 * HUGE, RW, flags), Err(MmapError::NoHugePages));
            assert_eq!(events(), [before[0], before[1] + i as u64 + 1]);
        }
        assert_eq!((counts(w).nr, counts(w).surplus, free(w)), (1, 0, (1, 0)));
        w.space.mmap(AT, 3 * HUGE, RW, ANON | FIXED).unwrap();
        assert_eq!((counts(w).surplus, events()), (2, [before[0] + 2, before[1] + 2]));
        w.space.munmap(AT, 3 * HUGE).unwrap();
        w.vm.set_nr_overcommit_hugepages(Order::PMD, 0).unwrap();
    });
}
