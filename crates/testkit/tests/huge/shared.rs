//! Huge pages that fork shares: copies, splits, and the huge zero page.

use super::*;

/// Both ways to break a shared huge page.
#[test]
fn fork_shares_and_a_write_takes_apart_what_it_needs() {
    for cow in [CowHuge::Split, CowHuge::Copy] {
        with_space(knobs().with_cow(cow), |vm, space| {
            map(space, AT, 2 * HUGE);
            (0..1024).for_each(|page| space.write(AT + page * PAGE, &[page as u8]).unwrap());
            let free = vm.vmstat().nr_free_pages;
            let child = space.fork().unwrap();
            check(vm, &[space, &child]);
            assert!(free - vm.vmstat().nr_free_pages < 16, "nothing was copied");
            assert_eq!((huge_pages(space), huge_pages(&child)), (2, 2));
            child.write(AT + 5 * PAGE, &[99]).unwrap();
            check(vm, &[space, &child]);
            let left = if cow == CowHuge::Copy { 2 } else { 1 };
            assert_eq!((huge_pages(space), huge_pages(&child)), (2, left), "{cow:?}");
            assert_eq!((byte(space, AT + 5 * PAGE), byte(&child, AT + 5 * PAGE)), (5, 99));
            space.write(AT + 6 * PAGE, &[98]).unwrap();
            check(vm, &[space, &child]);
            assert_eq!((byte(space, AT + 6 * PAGE), byte(&child, AT + 6 * PAGE)), (98, 6));
            child.munmap(AT + HUGE + 3 * PAGE, 4 * PAGE).unwrap();
            check(vm, &[space, &child]);
            drop(child);
            check(vm, &[space]);
            (7..1024).for_each(|page| assert_eq!(byte(space, AT + page * PAGE), page as u8));
            // Alone again: what is huge still is kept as it is.
            let nr_huge = huge_pages(space);
            let breaks = vm.event(Event::CowBreak);
            space.write(AT + HUGE, &[1]).unwrap();
            assert_eq!(huge_pages(space), nr_huge);
            assert_eq!(vm.event(Event::CowBreak), breaks);
        });
    }
}

#[test]
fn the_zero_page_stays_zero_under_forced_writes() {
    with_space(knobs(), |vm, space| {
        map(space, AT, HUGE);
        space.mprotect(AT, HUGE, READ).unwrap();
        assert_eq!(byte(space, AT), 0);
        space.write_forced(AT + 8, &[7]).unwrap();
        check(vm, &[space]);
        assert_eq!(byte(space, AT + 8), 7);
        space.madvise(AT, HUGE, DONTNEED).unwrap();
        assert_eq!(byte(space, AT + 8), 0);
        assert!(space.handle_fault(AT, Access::Write).is_err());
    });
}

/// `pmd_split` and `folio_split` return nothing: there is nothing that they could
/// lack.
#[test]
fn no_split_asks_for_a_frame() {
    with_space(knobs(), |vm, space| {
        map(space, AT, 2 * HUGE);
        (0..1024).for_each(|page| space.write(AT + page * PAGE, &[page as u8]).unwrap());
        let child = space.fork().unwrap();
        vm.fail_allocation(Some(0));
        assert!(vm.new_space().is_err(), "not one frame is to be had");
        child.madvise(AT + PAGE, PAGE, DONTNEED).unwrap();
        check(vm, &[space, &child]);
        assert_eq!((vm.event(Event::ThpSplitPmd), vm.event(Event::ThpSplitPage)), (1, 0));
        space.madvise(AT + 2 * PAGE, PAGE, DONTNEED).unwrap();
        check(vm, &[space, &child]);
        assert_eq!((vm.event(Event::ThpSplitPmd), vm.event(Event::ThpSplitPage)), (2, 1));
        child.madvise(AT + HUGE, HUGE, DONTNEED).unwrap();
        space.madvise(AT + HUGE + PAGE, PAGE, DONTNEED).unwrap();
        check(vm, &[space, &child]);
        vm.fail_allocation(None);
        assert_eq!((byte(&child, AT + 2 * PAGE), byte(space, AT + PAGE)), (2, 1));
    });
}

/// The first split derives the counts, the second adds to them, the last takes the
/// folio's own one over.
#[test]
fn three_spaces_split_one_after_the_other() {
    with_space(knobs(), |vm, space| {
        map(space, AT, HUGE);
        (0..512).for_each(|page| space.write(AT + page * PAGE, &[page as u8]).unwrap());
        let children = [space.fork().unwrap(), space.fork().unwrap()];
        let all = [&children[0], &children[1], space];
        for (i, one) in all.into_iter().enumerate() {
            one.madvise(AT + i as u64 * PAGE, PAGE, DONTNEED).unwrap();
            check(vm, &all);
            assert_eq!(vm.event(Event::ThpSplitPage), u64::from(i == 2), "the last one dissolves the folio");
        }
        for (i, one) in all.into_iter().enumerate() {
            (3..512).for_each(|page| assert_eq!(byte(one, AT + page * PAGE), page as u8));
            assert_eq!(byte(one, AT + i as u64 * PAGE), 0);
        }
    });
}
