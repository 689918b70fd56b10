//! Huge pages in one address space after another: what each operation does to a
//! whole one and to a part of one, with every invariant looked at after each step.

mod common;

use common::huge::{AT, DONTNEED, HUGE, byte, huge_pages, map, vm, with_space};
use common::{FREE, GUARD_INSTALL, GUARD_REMOVE, Hosted, MAYMOVE, MREMAP_FIXED, NONE, PAGE, READ, RW, check, fewer};
use softfault::addr::Access;
use softfault::policy::huge::{CowHuge, Enabled, SizeEnabled};
use softfault::{AddressSpace, Advice, CpuId, Event, FaultDone, HugeKnobs, MlockFlags, Order, RssPages};
use std::collections::BTreeMap;

fn knobs() -> HugeKnobs {
    HugeKnobs::DEFAULT.with_enabled(Enabled::Always)
}

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

/// What an operation on part of a huge page leaves, and on all of it.
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

/// A program's page: what was last written, and whether it may be written.
type Pages = BTreeMap<u64, (u64, bool)>;

/// Random operations on some spaces, against a map of pages.
#[test]
fn random_operations_against_a_map_of_pages() {
    for seed in 1..=fewer(12) {
        let mut thp = knobs();
        thp.cow = if seed % 2 == 0 { CowHuge::Copy } else { CowHuge::Split };
        if seed % 3 == 0 {
            thp.sizes.fill(SizeEnabled::Always);
        }
        random_operations(seed, thp, 400);
    }
}

fn random_operations(seed: u64, thp: HugeKnobs, nr_steps: u64) {
    let vm = vm(1, 96 << 20, thp);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let before = vm.vmstat().nr_free_pages;
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut random = move |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    {
        let mut programs: Vec<(AddressSpace<'_, Hosted>, Pages)> = vec![(vm.new_space().unwrap(), Pages::new())];
        for step in 0..nr_steps {
            let who = random(programs.len() as u64) as usize;
            let edge = random(5) * 512;
            let first = if random(3) == 0 { edge } else { random(4 * 512) };
            let nr = if random(2) == 0 { 512.min(4 * 512 - first.min(4 * 512 - 1)) } else { 1 + random(300) };
            let nr = nr.min((5 * 512 - first).max(1));
            let (at, len) = (AT + first * PAGE, nr * PAGE);
            let what = random(12);
            if what == 0 && programs.len() < 4 {
                let child = programs[who].0.fork().unwrap();
                let pages = programs[who].1.clone();
                programs.push((child, pages));
                continue;
            }
            if what == 1 && programs.len() > 1 {
                programs.swap_remove(who);
                continue;
            }
            let (space, pages) = &mut programs[who];
            match what {
                2 | 3 => {
                    map(space, at, len);
                    (first..first + nr).for_each(|page| _ = pages.insert(page, (0, true)));
                }
                4 => {
                    space.munmap(at, len).unwrap();
                    pages.retain(|page, _| !(first..first + nr).contains(page));
                }
                5 => {
                    let prot = [READ, RW][random(2) as usize];
                    if (first..first + nr).all(|page| pages.contains_key(&page)) {
                        space.mprotect(at, len, prot).unwrap();
                        pages.range_mut(first..first + nr).for_each(|(_, page)| page.1 = prot == RW);
                    }
                }
                6 => {
                    let _ = space.madvise(at, len, DONTNEED);
                    pages.range_mut(first..first + nr).for_each(|(_, page)| page.0 = 0);
                }
                7 => {
                    let shift = [512, 1024, 513][random(3) as usize];
                    let to = first + 8 * 512 + shift;
                    if (first..first + nr).all(|page| pages.contains_key(&page)) {
                        let flags = MAYMOVE | MREMAP_FIXED;
                        space.mremap(at, len, len, flags, AT + to * PAGE).unwrap();
                        let back = space.mremap(AT + to * PAGE, len, len, flags, at);
                        assert_eq!(back, Ok(at));
                    }
                }
                8 => drop(space.madvise(at, len, [Advice::HugePage, Advice::NoHugePage, FREE][random(3) as usize])),
                _ => {
                    for _ in 0..20 {
                        let page = first + random(nr);
                        let value = random(u64::MAX);
                        let forced = random(8) == 0;
                        let addr = AT + page * PAGE;
                        let wrote = if forced {
                            space.write_forced(addr, &value.to_le_bytes()).is_ok()
                        } else {
                            space.write(addr, &value.to_le_bytes()).is_ok()
                        };
                        let may = pages.get(&page).is_some_and(|page| page.1 || forced);
                        assert_eq!(wrote, may, "seed {seed} step {step}: page {page}");
                        if wrote && let Some(entry) = pages.get_mut(&page) {
                            entry.0 = value;
                        }
                    }
                }
            }
            let spaces: Vec<_> = programs.iter().map(|(space, _)| space).collect();
            let mut counts = vec![0; vm.nr_frames() as usize];
            if let Err(broken) = vm.check(&spaces, &mut counts) {
                panic!("seed {seed} step {step} (what {what}, pages {first}..+{nr}): {broken}");
            }
            if step % 10 == 0 {
                look(&programs, seed, step);
            }
        }
    }
    check(&vm, &[]);
    assert_eq!(vm.vmstat().nr_free_pages + 512 * vm.event(Event::ThpZeroPageAlloc), before);
}

fn look(programs: &[(AddressSpace<'_, Hosted>, Pages)], seed: u64, step: u64) {
    for (i, (space, pages)) in programs.iter().enumerate() {
        for (page, (value, _)) in pages {
            let mut bytes = [0; 8];
            space.read(AT + page * PAGE, &mut bytes).unwrap();
            assert_eq!(u64::from_le_bytes(bytes), *value, "seed {seed} step {step}: program {i}, page {page}");
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
