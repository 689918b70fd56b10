//! Which faults get which size of page, also where memory is short.

use super::*;

#[test]
fn a_write_gets_a_huge_page_and_a_read_the_huge_zero_page() {
    with_space(knobs(), |vm, space| {
        map(space, AT, 4 * HUGE);
        assert_eq!(space.handle_fault(AT + 5 * PAGE, Access::Write), Ok(FaultDone::Huge));
        assert_eq!(space.handle_fault(AT + HUGE, Access::Read), Ok(FaultDone::HugeZero));
        check(vm, &[space]);
        assert_eq!(space.rss_pages().anon, 512);
        assert_eq!(huge_pages(space), 1);
        assert_eq!(vm.event(Event::ThpFaultAlloc), 1);
        assert_eq!(space.translate_at_rest(AT + 9 * PAGE).unwrap().order, Order::PMD);
        // The zero page is replaced by a huge page of the writer's.
        assert_eq!(space.handle_fault(AT + HUGE, Access::Write), Ok(FaultDone::Huge));
        check(vm, &[space]);
        assert_eq!(huge_pages(space), 2);
    });
}

#[test]
fn where_it_does_not_fit_small_pages_are_used() {
    with_space(knobs(), |vm, space| {
        map(space, AT + PAGE, HUGE);
        assert_eq!(space.handle_fault(AT + HUGE, Access::Write), Ok(FaultDone::Installed));
        assert_eq!(space.handle_fault(AT + 3 * PAGE, Access::Read), Ok(FaultDone::ZeroFrame));
        map(space, AT + 4 * HUGE, HUGE);
        space.madvise(AT + 4 * HUGE, HUGE, Advice::NoHugePage).unwrap();
        assert_eq!(space.handle_fault(AT + 4 * HUGE, Access::Write), Ok(FaultDone::Installed));
        check(vm, &[space]);
        assert_eq!(huge_pages(space), 0);
        assert_eq!(vm.event(Event::ThpFaultFallback), 0);
    });
}

#[test]
fn madvise_asks_where_the_knob_leaves_it_to_the_program() {
    with_space(knobs().with_enabled(Enabled::Madvise), |vm, space| {
        map(space, AT, 2 * HUGE);
        assert_eq!(space.handle_fault(AT, Access::Write), Ok(FaultDone::Installed));
        space.madvise(AT, 2 * HUGE, Advice::HugePage).unwrap();
        assert_eq!(space.handle_fault(AT + HUGE, Access::Write), Ok(FaultDone::Huge));
        space.set_thp_disable(true);
        map(space, AT, 2 * HUGE);
        space.madvise(AT, 2 * HUGE, Advice::HugePage).unwrap();
        assert_eq!(space.handle_fault(AT, Access::Write), Ok(FaultDone::Installed));
        check(vm, &[space]);
    });
}

/// T13.
#[test]
fn the_largest_size_that_is_empty_and_inside_is_chosen() {
    let mut sizes = knobs();
    sizes.sizes.fill(SizeEnabled::Always);
    with_space(sizes, |vm, space| {
        map(space, AT + 4 * PAGE, HUGE);
        // The leaf table is not there yet, but 2 MiB do not fit: 1 MiB from the middle.
        assert_eq!(space.handle_fault(AT + 300 * PAGE, Access::Write), Ok(FaultDone::Folio(Order(8))));
        assert_eq!(space.handle_fault(AT + 5 * PAGE, Access::Write), Ok(FaultDone::Folio(Order(2))));
        assert_eq!(space.handle_fault(AT + 200 * PAGE, Access::Write), Ok(FaultDone::Folio(Order(7))));
        // 64..128 is free, 0..64 is not.
        assert_eq!(space.handle_fault(AT + 64 * PAGE, Access::Write), Ok(FaultDone::Folio(Order(6))));
        check(vm, &[space]);
        assert_eq!(space.rss_pages().anon, 256 + 4 + 128 + 64);
        assert_eq!(vm.huge_stat(Order(7)).unwrap().anon_fault_alloc, 1);
        space.madvise(AT + 66 * PAGE, PAGE, DONTNEED).unwrap();
        assert_eq!(space.handle_fault(AT + 66 * PAGE, Access::Write), Ok(FaultDone::Installed));
        check(vm, &[space]);
    });
}

/// T1, T12: no block is free, and everything works as with small pages.
#[test]
fn without_a_free_block_the_same_in_small_pages() {
    let vm = vm(1, 32 << 20, knobs());
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    vm.age(32, 7);
    let space = vm.new_space().unwrap();
    map(&space, AT, 4 * HUGE);
    assert_eq!(space.handle_fault(AT, Access::Write), Ok(FaultDone::Installed));
    assert_eq!(space.handle_fault(AT + HUGE, Access::Read), Ok(FaultDone::ZeroFrame));
    assert_eq!(vm.event(Event::ThpFaultFallback), 2);
    assert_eq!(vm.huge_stat(Order::PMD).unwrap().anon_fault_fallback, 2);
    (0..1024).for_each(|page| space.write(AT + page * PAGE, &[page as u8]).unwrap());
    (0..1024).for_each(|page| assert_eq!(byte(&space, AT + page * PAGE), page as u8));
    check(&vm, &[&space]);
}

/// Every allocation of each step failing in turn.
#[test]
fn no_frame_is_lost_when_the_kth_allocation_fails() {
    for cow in [CowHuge::Split, CowHuge::Copy] {
        for k in 0..40 {
            with_space(knobs().with_cow(cow), |vm, space| {
                map(space, AT, 3 * HUGE);
                vm.fail_allocation(Some(k));
                let _ = space.handle_fault(AT, Access::Write);
                check(vm, &[space]);
                let _ = space.handle_fault(AT + HUGE, Access::Read);
                check(vm, &[space]);
                let child = space.fork();
                let spaces: Vec<_> = [Some(space), child.as_ref().ok()].into_iter().flatten().collect();
                check(vm, &spaces);
                let _ = space.handle_fault(AT + PAGE, Access::Write);
                let _ = space.handle_fault(AT + HUGE + PAGE, Access::Write);
                check(vm, &spaces);
                let _ = space.mremap(AT, 2 * HUGE, 2 * HUGE, MAYMOVE | MREMAP_FIXED, AT + 8 * HUGE + PAGE);
                check(vm, &spaces);
                let _ = space.munmap(AT + HUGE + PAGE, 3 * PAGE);
                check(vm, &spaces);
                vm.fail_allocation(None);
            });
        }
    }
}

/// Counts at rest have to be those of what is there.
#[test]
fn counts_are_true_after_all_is_gone() {
    with_space(knobs(), |vm, space| {
        map(space, AT, 4 * HUGE);
        (0..4).for_each(|i| space.write(AT + i * HUGE, &[1]).unwrap());
        space.munmap(AT, 4 * HUGE).unwrap();
        let mut expected = RssPages::default();
        expected.minor_faults = 4;
        assert_eq!(space.rss_pages(), expected);
        check(vm, &[space]);
    });
}
