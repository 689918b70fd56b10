//! Operations on a part of a huge page, and on all of it.

use super::*;

/// The state after an operation on part of a huge page, and on all of it.
fn parts(what: impl Fn(&AddressSpace<'_, Hosted>, u64, u64), whole_stays_huge: Option<u64>) {
    let ranges = [(0, 512), (0, 1), (511, 1), (100, 300), (0, 256), (256, 256)];
    for (first, nr) in ranges {
        with_space(knobs(), |vm, space| {
            map(space, AT, 3 * HUGE);
            for page in 0..3 * 512 {
                space.write(AT + page * PAGE, &[page as u8]).unwrap();
            }
            assert_eq!(huge_pages(space), 3);
            let splits = vm.event(Event::ThpSplitPmd);
            what(space, AT + HUGE + first * PAGE, nr * PAGE);
            check(vm, &[space]);
            let whole = nr == 512;
            assert_eq!(vm.event(Event::ThpSplitPmd) - splits, u64::from(!whole), "pages {first}..+{nr}");
            if whole && let Some(nr_huge) = whole_stays_huge {
                assert_eq!(huge_pages(space), nr_huge);
            }
            for page in (0..512 + first).chain(512 + first + nr..3 * 512) {
                assert_eq!(byte(space, AT + page * PAGE), page as u8, "page {page}");
            }
        });
    }
}

#[test]
fn a_part_is_unmapped() {
    parts(|space, at, len| space.munmap(at, len).unwrap(), Some(2));
}

#[test]
fn a_part_is_dropped() {
    parts(
        |space, at, len| {
            let before = space.rss_pages().anon;
            space.madvise(at, len, DONTNEED).unwrap();
            assert_eq!(before - space.rss_pages().anon, len / PAGE, "memory comes back at once");
            for page in 0..len / PAGE {
                assert_eq!(byte(space, at + page * PAGE), 0);
            }
        },
        Some(2),
    );
}

#[test]
fn a_part_loses_a_right() {
    parts(
        |space, at, len| {
            space.mprotect(at, len, READ).unwrap();
            assert!(space.handle_fault(at, Access::Write).is_err());
            space.mprotect(at, len, NONE).unwrap();
            assert!(space.handle_fault(at, Access::Read).is_err());
            space.mprotect(at, len, RW).unwrap();
            space.write(at, &[byte(space, at)]).unwrap();
        },
        Some(3),
    );
}

#[test]
fn a_part_is_locked() {
    parts(|space, at, len| space.mlock(at, len, MlockFlags::empty()).unwrap(), Some(3));
}

#[test]
fn a_part_is_advised() {
    parts(|space, at, len| space.madvise(at, len, Advice::WipeOnFork).unwrap(), Some(3));
}

#[test]
fn a_part_is_freed_lazily() {
    parts(|space, at, len| space.madvise(at, len, FREE).unwrap(), Some(3));
}

#[test]
fn a_part_is_moved() {
    parts(
        |space, at, len| {
            let old = byte(space, at + len - PAGE);
            let to = AT + 16 * HUGE + at % HUGE;
            assert_eq!(space.mremap(at, len, len, MAYMOVE | MREMAP_FIXED, to), Ok(to));
            assert_eq!(byte(space, to + len - PAGE), old);
            // And back, so that the caller finds nothing changed but the place.
            assert_eq!(space.mremap(to, len, len, MAYMOVE | MREMAP_FIXED, at), Ok(at));
        },
        Some(3),
    );
}

#[test]
fn a_move_to_an_odd_place_splits() {
    with_space(knobs(), |vm, space| {
        map(space, AT, 2 * HUGE);
        (0..1024).for_each(|page| space.write(AT + page * PAGE, &[page as u8]).unwrap());
        let to = AT + 8 * HUGE + 7 * PAGE;
        assert_eq!(space.mremap(AT, 2 * HUGE, 2 * HUGE, MAYMOVE | MREMAP_FIXED, to), Ok(to));
        check(vm, &[space]);
        assert_eq!(huge_pages(space), 0);
        (0..1024).for_each(|page| assert_eq!(byte(space, to + page * PAGE), page as u8));
    });
}

#[test]
fn a_huge_page_moves_with_its_deposit() {
    with_space(knobs(), |vm, space| {
        map(space, AT, HUGE);
        (0..512).for_each(|page| space.write(AT + page * PAGE, &[page as u8]).unwrap());
        let to = AT + 16 * HUGE;
        assert_eq!(space.mremap(AT, HUGE, HUGE, MAYMOVE | MREMAP_FIXED, to), Ok(to));
        check(vm, &[space]);
        assert_eq!(huge_pages(space), 1);
        space.munmap(to + PAGE, PAGE).unwrap();
        check(vm, &[space]);
        (2..512).for_each(|page| assert_eq!(byte(space, to + page * PAGE), page as u8));
    });
}

#[test]
fn guards_split() {
    with_space(knobs(), |vm, space| {
        map(space, AT, HUGE);
        space.write(AT + 9 * PAGE, &[9]).unwrap();
        space.madvise(AT + 3 * PAGE, 2 * PAGE, GUARD_INSTALL).unwrap();
        check(vm, &[space]);
        assert!(space.handle_fault(AT + 4 * PAGE, Access::Read).is_err());
        assert_eq!(byte(space, AT + 9 * PAGE), 9);
        space.madvise(AT, HUGE, GUARD_REMOVE).unwrap();
        assert_eq!(byte(space, AT + 4 * PAGE), 0);
        assert_eq!(byte(space, AT + 9 * PAGE), 9);
    });
}

/// Counts the pages from there on.
#[test]
fn a_report_from_within_splits_nothing() {
    with_space(knobs(), |vm, space| {
        map(space, AT, HUGE);
        space.write(AT, &[9]).unwrap();
        let report = space.next_smaps(AT + 3 * PAGE).unwrap();
        assert_eq!((report.vma.range.nr_pages(), report.rss_pages, report.anon_huge_pages), (509, 509, 509));
        assert_eq!((vm.event(softfault::Event::ThpSplitPmd), huge_pages(space)), (0, 1));
    });
}
