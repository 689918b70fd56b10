//! Surplus pages: they come from free memory when the pool has too few, up to a limit, and go when nobody needs them.

use super::*;
use softfault::{AddressSpace, Event};
use softfault_host::Hosted;

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
        shared.set_size_bytes(HUGE);
        assert_eq!((counts(w).nr, counts(w).surplus, free(w)), (1, 0, (0, 0)), "those that nobody wants are gone");
        shared.set_size_bytes(8 * HUGE);
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

/// Fills memory with small pages and keeps every eighth: no block is whole.
fn fragment<'vm>(w: &World<'vm>) -> AddressSpace<'vm, Hosted> {
    let others = w.vm.new_space().unwrap();
    let nr = w.vm.vmstat().nr_free_pages - 300;
    others.mmap(BASE, nr * PAGE, RW, PRIVATE | FIXED).unwrap();
    (0..nr).for_each(|page| touch(&others, BASE + page * PAGE).unwrap());
    (0..nr).filter(|page| page % 8 != 0).for_each(|page| others.munmap(BASE + page * PAGE, PAGE).unwrap());
    others
}

/// Surplus pages come from fragmented memory, too: for mappings, for pages without one, and for a touch without a claim.
#[test]
fn memory_is_compacted_for_surplus_pages() {
    in_each_setup(1, 24 << 20, |w| {
        let others = fragment(w);
        w.vm.set_nr_overcommit_hugepages(Order::PMD, 5).unwrap();
        w.space.mmap(AT, 2 * HUGE, RW, ANON | FIXED).unwrap();
        assert_eq!((counts(w).surplus, free(w)), (2, (2, 2)));
        let shared = object(w, 8);
        shared.reserve(0..512).unwrap();
        map(w, AT + 8 * HUGE, 8, &shared, 0, NORESERVE).unwrap();
        touch(w.space, AT + 9 * HUGE).unwrap();
        assert_eq!((counts(w).surplus, free(w)), (4, (3, 3)));
        let compacted = w.vm.event(Event::CompactSuccess);
        // More than may come: nothing is compacted for it.
        assert_eq!(w.space.mmap(0, 2 * HUGE, RW, ANON), Err(MmapError::NoHugePages));
        assert_eq!((w.vm.event(Event::CompactSuccess), counts(w).surplus), (compacted, 4));
        check(w.vm, &[w.space, &others]);
        w.space.munmap(AT, 16 * HUGE).unwrap();
        drop(shared);
        w.vm.set_nr_overcommit_hugepages(Order::PMD, 0).unwrap();
        assert_eq!((counts(w).nr, counts(w).surplus), (0, 0));
        check(w.vm, &[w.space, &others]);
    });
}

/// A file that has most of its pages: room is made for the others alone, for a mapping and without one.
#[test]
fn room_is_made_for_what_is_missing() {
    in_each_setup(1, 24 << 20, |w| {
        pool(w, 3);
        let shared = object(w, 5);
        shared.allocate(0..3 * 512).unwrap();
        let others = fragment(w);
        w.vm.set_nr_overcommit_hugepages(Order::PMD, 2).unwrap();
        let before = w.vm.event(Event::CompactSuccess);
        map(w, AT, 4, &shared, 0, MapFlags::empty()).unwrap();
        assert_eq!((counts(w).surplus, free(w)), (1, (1, 1)));
        assert_eq!((shared.allocate(4 * 512..5 * 512), counts(w).surplus, free(w)), (Ok(()), 2, (1, 1)));
        assert_eq!(w.vm.event(Event::CompactSuccess) - before, 2, "one block for each");
        check(w.vm, &[w.space, &others]);
        w.space.munmap(AT, 4 * HUGE).unwrap();
        drop(shared);
        w.vm.set_nr_overcommit_hugepages(Order::PMD, 0).unwrap();
        pool(w, 0);
    });
}

/// Private pages of a pool are unmapped for the mapping in their place, before it is refused: nobody compacts meanwhile, and the
/// next mapping there is somebody else's.
#[test]
fn a_mapping_over_pool_pages_is_not_tried_again() {
    in_each_setup(1, 24 << 20, |w| {
        w.vm.set_nr_overcommit_hugepages(Order::PMD, 5).unwrap();
        w.space.mmap(AT, HUGE, RW, PRIVATE | FIXED | MapFlags::ANONYMOUS | MapFlags::HUGETLB).unwrap();
        touch(w.space, AT).unwrap();
        let others = fragment(w);
        let before = w.vm.event(Event::CompactStall);
        let flags = PRIVATE | FIXED | MapFlags::ANONYMOUS | MapFlags::HUGETLB;
        assert_eq!(w.space.mmap(AT, 3 * HUGE, RW, flags), Err(MmapError::NoHugePages));
        assert_eq!(w.vm.event(Event::CompactStall), before);
        assert_eq!((touch(w.space, AT), counts(w).nr), (Err(FaultError::NotMapped), 0));
        w.space.mmap(AT, 3 * HUGE, RW, flags).unwrap();
        assert_eq!(counts(w).surplus, 3, "nothing is in its way now");
        w.space.munmap(AT, 3 * HUGE).unwrap();
        check(w.vm, &[w.space, &others]);
        w.vm.set_nr_overcommit_hugepages(Order::PMD, 0).unwrap();
    });
}
