//! Huge pages that are split from outside: for all who map them, under those who
//! use them, and because they are mostly zeroes while memory is short. And blocks
//! that are zeroed ahead.
#![deny(unsafe_code)]

mod common;

use common::huge::{HUGE, byte, huge_pages, map};
use common::{MAYMOVE, MREMAP_FIXED, PAGE, Patience, StopAtEnd, check};
use softfault::addr::Access;
use softfault::policy::compact::CompactBudget;
use softfault::policy::huge::Enabled;
use softfault::{
    AddressSpace, Advice, CpuId, Event, FaultDone, HugeKnobs, MlockFlags, MremapFlags, Order, Term, Tunables, Vm,
};
use softfault_host::{Hosted, HostedConfig, Mode};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

const ARENA: u64 = 64 << 20;
const AT: u64 = 0x10_0000_0000;

type Space<'vm> = AddressSpace<'vm, Hosted>;

fn knobs(max_ptes_none: u32) -> HugeKnobs {
    let khugepaged = HugeKnobs::DEFAULT.khugepaged.with_max_ptes_none(max_ptes_none);
    HugeKnobs::DEFAULT.with_enabled(Enabled::Always).with_khugepaged(khugepaged)
}

fn vm_with(nr_cpus: usize, thp: HugeKnobs, mode: Mode, strict_bbm: bool) -> Vm<Hosted> {
    let config = HostedConfig::default()
        .with_nr_cpus(nr_cpus)
        .with_arena_bytes(ARENA)
        .with_mode(mode)
        .with_strict_bbm(strict_bbm)
        .with_zeroed(false);
    let hosted = Hosted::new(config).unwrap();
    let tunables = Tunables::default().with_thp(thp);
    Vm::new(hosted, tunables).unwrap()
}

/// One CPU and one space; afterwards everything has to be back.
fn with_space(thp: HugeKnobs, test: impl Fn(&Vm<Hosted>, &Space<'_>)) {
    let vm = vm_with(1, thp, Mode::Interrupt, false);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let before = vm.vmstat().nr_free_pages;
    {
        let space = vm.new_space().unwrap();
        test(&vm, &space);
        check(&vm, &[&space]);
    }
    check(&vm, &[]);
    assert_eq!(vm.vmstat().nr_free_pages, before);
}

#[test]
fn a_folio_is_split_for_all_who_map_it() {
    with_space(knobs(511), |vm, space| {
        map(space, AT, 2 * HUGE);
        (0..1024).for_each(|page| space.write(AT + page * PAGE, &[page as u8]).unwrap());
        let child = space.fork().unwrap();
        let other = child.fork().unwrap();
        let moved = AT + 64 * HUGE;
        other.mremap(AT, 2 * HUGE, 2 * HUGE, MremapFlags::MAYMOVE | MremapFlags::FIXED, moved).unwrap();
        // One of them has split its entry already.
        child.write(AT + 7 * PAGE, &[200]).unwrap();
        check(vm, &[space, &child, &other]);
        let there = space.translate_at_rest(AT + 9 * PAGE).unwrap();
        assert_eq!(there.order, Order::PMD);
        vm.split_folio(there.pfn);
        check(vm, &[space, &child, &other]);
        assert_eq!((huge_pages(space), huge_pages(&child), huge_pages(&other)), (1, 1, 1));
        assert_eq!(space.translate_at_rest(AT + 9 * PAGE).unwrap().pfn, there.pfn, "a split moves nothing");
        for page in 0..1024 {
            let expected = [page as u8, if page == 7 { 200 } else { page as u8 }, page as u8];
            let seen =
                [byte(space, AT + page * PAGE), byte(&child, AT + page * PAGE), byte(&other, moved + page * PAGE)];
            assert_eq!(seen, expected);
        }
        assert_eq!(vm.event(Event::ThpSplitPage), 1);
        // Nothing to split: nothing happens.
        vm.split_folio(there.pfn);
        vm.split_folio(softfault::Pfn(u32::MAX));
        assert_eq!(vm.event(Event::ThpSplitPage), 1);
    });
}

/// `split_folio` finds a mapping behind any number of others, also where most of
/// them were moved, too.
#[test]
fn a_folio_is_split_whatever_else_is_mapped() {
    const NR_OTHERS: u64 = 6000;
    for are_moved in [false, true] {
        with_space(knobs(511), |vm, space| {
            let low = |i: u64| 0x100_0000 + i * 2 * PAGE;
            for i in 0..NR_OTHERS {
                map(space, low(i), PAGE);
                if are_moved {
                    // In the opposite order, so that no order helps the search.
                    let to = 0x8_0000_0000 + (NR_OTHERS - i) * 2 * PAGE;
                    assert_eq!(space.mremap(low(i), PAGE, PAGE, MAYMOVE | MREMAP_FIXED, to), Ok(to));
                }
            }
            map(space, AT, HUGE);
            (0..512).for_each(|page| space.write(AT + page * PAGE, &[page as u8]).unwrap());
            let moved = AT + 64 * HUGE;
            space.mremap(AT, HUGE, HUGE, MAYMOVE | MREMAP_FIXED, moved).unwrap();
            let there = space.translate_at_rest(moved).unwrap();
            assert_eq!(there.order, Order::PMD);
            vm.split_folio(there.pfn);
            assert_eq!((huge_pages(space), vm.event(Event::ThpSplitPage)), (0, 1));
            assert!((0..512).all(|page| byte(space, moved + page * PAGE) == page as u8));
        });
    }
}

/// More members than one batch of entries has room for, some of which have moved
/// their mapping.
#[test]
fn a_folio_of_many_members_is_split() {
    with_space(knobs(511), |vm, space| {
        map(space, AT, HUGE);
        (0..512).for_each(|page| space.write(AT + page * PAGE, &[page as u8]).unwrap());
        let children: Vec<_> = (0..50).map(|_| space.fork().unwrap()).collect();
        let at = |i: u64| if i.is_multiple_of(3) { AT + (64 + i) * HUGE } else { AT };
        for (i, child) in (0..).zip(&children).filter(|(i, _)| at(*i) != AT) {
            child.mremap(AT, HUGE, HUGE, MAYMOVE | MREMAP_FIXED, at(i)).unwrap();
        }
        let there = space.translate_at_rest(AT).unwrap();
        vm.split_folio(there.pfn);
        assert_eq!((vm.event(Event::ThpSplitPage), vm.event(Event::ThpSplitPmd)), (1, 51));
        for (i, child) in (0..).zip(&children) {
            assert_eq!(huge_pages(child), 0);
            assert!((0..512).all(|page| byte(child, at(i) + page * PAGE) == page as u8));
        }
        let mut all = vec![space];
        all.extend(&children);
        check(vm, &all);
    });
}

#[test]
fn zero_pages_of_huge_ones_come_back() {
    with_space(knobs(409), |vm, space| {
        map(space, AT, 6 * HUGE);
        for i in 0..6 {
            assert_eq!(space.handle_fault(AT + i * HUGE, Access::Write), Ok(FaultDone::Huge));
            space.write(AT + i * HUGE + (3 + i) * PAGE + 4000, &[i as u8 + 1]).unwrap();
        }
        // The second is used by 103 pages: 409 are zero, which is not above the limit.
        (0..103).for_each(|page| space.write(AT + HUGE + page * PAGE, &[5]).unwrap());
        // The third is another's, too; of the fourth a page is pinned that is zero;
        // the fifth is locked.
        let child = space.fork().unwrap();
        for i in [0, 1, 3, 4, 5] {
            child.munmap(AT + i * HUGE, HUGE).unwrap();
        }
        // Kept, since the child has gone, and the same pages for the third.
        let pin = space.pin_page_mut(AT + 3 * HUGE + 100 * PAGE, Term::Long).unwrap();
        let huge_before = huge_pages(space);
        space.mlock(AT + 4 * HUGE, HUGE, MlockFlags::empty()).unwrap();
        check(vm, &[space, &child]);
        assert_eq!(huge_before, 6);
        let free = vm.vmstat().nr_free_pages;
        let freed = vm.shrink_underused(u64::MAX);
        check(vm, &[space, &child]);
        assert_eq!(freed, 511 + 510 + 511, "the first, the fourth without the pinned page, the sixth");
        assert_eq!(vm.vmstat().nr_free_pages, free + freed);
        assert_eq!(huge_pages(space), 3);
        assert_eq!(space.rss_pages().anon, 6 * 512 - freed);
        assert_eq!(vm.event(Event::ThpUnderusedSplitPage), 3);
        assert_eq!(vm.shrink_underused(u64::MAX), 0);
        for i in (0..6).filter(|i| *i != 1) {
            for page in 0..512 {
                let expected = if page == 3 + i { i as u8 + 1 } else { 0 };
                assert_eq!(byte(space, AT + i * HUGE + page * PAGE + 4000), expected, "{i} {page}");
            }
        }
        // The pin and the program still see the same page.
        pin.write(8, &[77]);
        assert_eq!(byte(space, AT + 3 * HUGE + 100 * PAGE + 8), 77);
        space.write(AT + 9 * PAGE, &[1]).unwrap();
        check(vm, &[space, &child]);
    });
}

#[test]
fn with_linuxs_default_none_is_underused() {
    let off = knobs(0).with_shrink_underused(false);
    for thp in [knobs(511), off] {
        with_space(thp, |vm, space| {
            map(space, AT, HUGE);
            space.write(AT, &[1]).unwrap();
            assert_eq!(vm.shrink_underused(u64::MAX), 0);
            assert_eq!(huge_pages(space), 1);
        });
    }
}

/// T11, T12: memory that huge pages waste is there before anybody is refused.
#[test]
fn nobody_is_refused_while_huge_pages_hold_zeroes() {
    with_space(knobs(256), |vm, space| {
        let nr_huge = vm.vmstat().nr_free_pages / 512 - 2;
        map(space, AT, nr_huge * HUGE);
        (0..nr_huge).for_each(|i| space.write(AT + i * HUGE + i * PAGE, &[i as u8 + 1]).unwrap());
        assert!(huge_pages(space) >= nr_huge - 1);
        let small = AT + (1 << 32);
        let nr_small = vm.vmstat().nr_total_pages - 2048;
        map(space, small, nr_small * PAGE);
        space.madvise(small, nr_small * PAGE, Advice::NoHugePage).unwrap();
        for page in 0..nr_small {
            space.write(small + page * PAGE, &[1]).unwrap();
        }
        check(vm, &[space]);
        assert!(vm.event(Event::ThpUnderusedSplitPage) > 0);
        (0..nr_huge).for_each(|i| assert_eq!(byte(space, AT + i * HUGE + i * PAGE), i as u8 + 1));
    });
}

/// Programs write the pages that are taken for zero ones, and fork and unmap; no
/// write is lost.
#[test]
fn split_under_those_who_write() {
    for (mode, strict_bbm) in [(Mode::Interrupt, false), (Mode::Broadcast, true)] {
        split_under_use(mode, strict_bbm);
    }
}

fn split_under_use(mode: Mode, strict_bbm: bool) {
    const NR_ROUNDS: u64 = 40;
    let vm = vm_with(4, knobs(100), mode, strict_bbm);
    let before = vm.vmstat().nr_free_pages;
    let (stop, start) = (AtomicBool::new(false), Barrier::new(4));
    {
        let cpu = vm.machine().bind(CpuId(0)).unwrap();
        let space = vm.new_space().unwrap();
        thread::scope(|scope| {
            let (vm, space, stop, start) = (&vm, &space, &stop, &start);
            let writers = [1, 2].map(|id: u64| {
                scope.spawn(move || {
                    let cpu = vm.machine().bind(CpuId(id as u16)).unwrap();
                    let running = cpu.enter(space).unwrap();
                    start.wait();
                    for round in 1.. {
                        if stop.load(SeqCst) {
                            break;
                        }
                        let at = AT + id * 4 * HUGE;
                        // Tables go with their mapping, and huge pages come again.
                        space.munmap(at, 2 * HUGE).unwrap();
                        map(space, at, 2 * HUGE);
                        for page in 0..1024 {
                            // Written and read in turn, so that a split comes between.
                            if page % 37 == 0 {
                                running.store(at + page * PAGE, &round_of(round, page)).unwrap();
                            } else {
                                let mut seen = [1; 8];
                                running.load(at + page * PAGE, &mut seen).unwrap();
                                assert_eq!(seen, [0; 8], "CPU {id} round {round} page {page}");
                            }
                        }
                        for page in (0..1024).step_by(37) {
                            // As the tables have it, whatever the CPU remembers.
                            let mut seen = [0; 8];
                            space.read(at + page * PAGE, &mut seen).unwrap();
                            assert_eq!(seen, round_of(round, page), "CPU {id} round {round} page {page}");
                        }
                    }
                })
            });
            scope.spawn(move || {
                let _cpu = vm.machine().bind(CpuId(3)).unwrap();
                start.wait();
                while !stop.load(SeqCst) {
                    vm.shrink_underused(u64::MAX);
                    // Or none would live long enough to be remembered by a TLB.
                    thread::sleep(Duration::from_micros(300));
                    for at in (1..3).map(|id| AT + id * 4 * HUGE + HUGE) {
                        if let Some(there) = space.translate_at_rest(at) {
                            vm.split_folio(there.pfn);
                        }
                    }
                }
            });
            let _stop = StopAtEnd(stop);
            start.wait();
            let _running = cpu.enter(space).unwrap();
            let mut nr_children = 0;
            let patience = Patience::new("nothing is split");
            let is_enough = |nr| nr >= NR_ROUNDS && vm.event(Event::ThpUnderusedSplitPage) >= NR_ROUNDS;
            // A writer that has found something wrong is the end of it.
            while !is_enough(nr_children) && !writers.iter().any(|writer| writer.is_finished()) {
                drop(space.fork().unwrap());
                nr_children += 1;
                patience.check();
                thread::sleep(Duration::from_millis(4));
            }
        });
        check(&vm, &[&space]);
    }
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    check(&vm, &[]);
    assert_eq!(vm.vmstat().nr_free_pages + 512 * vm.event(Event::ThpZeroPageAlloc), before);
    assert_eq!(vm.machine().violations(), (0, None));
}

fn round_of(round: u64, page: u64) -> [u8; 8] {
    (round << 16 | page).to_le_bytes()
}

#[test]
fn free_blocks_are_zeroed_ahead() {
    with_space(knobs(511), |vm, space| {
        // Soil all of it.
        let nr_huge = vm.vmstat().nr_free_pages / 512 - 2;
        map(space, AT, nr_huge * HUGE);
        (0..nr_huge * 512).for_each(|page| space.write(AT + page * PAGE + 8, &[1]).unwrap());
        space.munmap(AT, nr_huge * HUGE).unwrap();
        let ahead = vm.tunables().zero_ahead_blocks;
        let free = vm.vmstat().nr_free_pages;
        assert_eq!(vm.zero_ahead(3), 3);
        assert_eq!(vm.zero_ahead(u64::MAX), ahead - 3);
        assert_eq!(vm.zero_ahead(u64::MAX), 0, "as many as were asked for");
        assert_eq!(vm.vmstat().nr_free_pages, free);
        map(space, AT, nr_huge * HUGE);
        for i in 0..ahead {
            assert_eq!(space.handle_fault(AT + i * HUGE, Access::Write), Ok(FaultDone::Huge));
        }
        (0..ahead * 512).for_each(|page| assert_eq!(byte(space, AT + page * PAGE + 8), 0));
        // All that was zero has been used, so that as many are wanted again.
        let left = nr_huge - ahead;
        assert!(vm.zero_ahead(u64::MAX) >= ahead.min(left));
    });
}

/// T12: free frames that somebody holds for a moment are waited for.
#[test]
fn nobody_is_refused_while_frames_are_held() {
    let mut thp = knobs(511);
    thp.enabled = Enabled::Never;
    let vm = vm_with(2, thp, Mode::Interrupt, false);
    let (stop, start) = (AtomicBool::new(false), Barrier::new(2));
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    thread::scope(|scope| {
        let (vm, stop, start) = (&vm, &stop, &start);
        scope.spawn(move || {
            let _cpu = vm.machine().bind(CpuId(1)).unwrap();
            start.wait();
            while !stop.load(SeqCst) {
                let _ = vm.compact_step(&CompactBudget::BACKGROUND);
                vm.zero_ahead(1);
            }
        });
        let _stop = StopAtEnd(stop);
        start.wait();
        for _ in 0..3 {
            let nr_pages = vm.vmstat().nr_total_pages - 128;
            map(&space, AT, nr_pages * PAGE);
            for page in 0..nr_pages {
                space.write(AT + page * PAGE, &[1]).unwrap();
            }
            space.munmap(AT, nr_pages * PAGE).unwrap();
        }
    });
    check(&vm, &[&space]);
    drop(space);
    check(&vm, &[]);
}
