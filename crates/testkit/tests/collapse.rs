//! Collapse: small pages become a huge page, or nothing changes.

mod common;

use common::huge::{AT, DONTNEED, HUGE, byte, huge_pages, map, vm, with_space};
use common::{
    FIXED, FREE, GUARD_INSTALL, Hosted, NONE, PAGE, Patience, READ, RW, SHARED, StopAtEnd, check, dirty_pages,
};
use softfault::addr::Access;
use softfault::policy::collapse::CollapseRefusal;
use softfault::policy::huge::Enabled;
use softfault::{Advice, CpuId, Event, FaultDone, HugeKnobs, MadviseError, Term, Vm};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// Small pages only, until somebody collapses.
const NEVER: HugeKnobs = HugeKnobs::DEFAULT.with_enabled(Enabled::Never);

fn enable(vm: &Vm<Hosted>) {
    vm.set_huge_knobs(&vm.huge_knobs().with_enabled(Enabled::Always)).unwrap();
}

#[test]
fn every_second_page_is_there_and_none_is_lost() {
    with_space(NEVER, |vm, space| {
        map(space, AT, 2 * HUGE);
        (0..1024).step_by(2).for_each(|page| space.write(AT + page * PAGE, &[page as u8 | 1]).unwrap());
        assert_eq!(space.madvise(AT, 2 * HUGE, Advice::Collapse), Ok(()));
        check(vm, &[space]);
        assert_eq!((huge_pages(space), space.rss_pages().anon), (2, 1024));
        for page in 0..1024 {
            let expected = if page % 2 == 0 { page as u8 | 1 } else { 0 };
            assert_eq!(byte(space, AT + page * PAGE), expected);
        }
        space.write(AT + PAGE, &[5]).unwrap();
        space.munmap(AT + PAGE, PAGE).unwrap();
        check(vm, &[space]);
        assert_eq!(byte(space, AT + 2 * PAGE), 3);
    });
}

#[test]
fn after_a_split_the_same_block_is_used_again() {
    with_space(NEVER, |vm, space| {
        map(space, AT, HUGE);
        (0..512).for_each(|page| space.write(AT + page * PAGE, &[page as u8]).unwrap());
        space.collapse(AT).unwrap();
        let nr_allocated = vm.event(Event::ThpCollapseAlloc);
        space.mprotect(AT + 9 * PAGE, PAGE, READ).unwrap();
        assert_eq!(huge_pages(space), 0);
        space.mprotect(AT + 9 * PAGE, PAGE, RW).unwrap();
        space.collapse(AT).unwrap();
        check(vm, &[space]);
        assert_eq!(huge_pages(space), 1);
        assert_eq!(vm.event(Event::ThpCollapseAlloc), nr_allocated, "nothing was copied");
        (0..512).for_each(|page| assert_eq!(byte(space, AT + page * PAGE), page as u8));
        space.write(AT, &[1]).unwrap();
    });
}

/// This CPU remembers the leaf table that it filled last; collapse puts it in deposit.
#[test]
fn no_fault_believes_in_the_table_that_went() {
    with_space(NEVER, |vm, space| {
        map(space, AT, HUGE);
        assert_eq!(space.handle_fault(AT, Access::Write), Ok(FaultDone::Installed));
        space.collapse(AT).unwrap();
        assert_eq!(space.handle_fault(AT + 5 * PAGE, Access::Write), Ok(FaultDone::Spurious));
        check(vm, &[space]);
        assert_eq!(space.rss_pages().anon, 512);
    });
}

#[test]
fn each_reason_to_refuse_has_its_name() {
    with_space(NEVER, |vm, space| {
        map(space, AT, 2 * HUGE);
        assert_eq!(space.collapse(AT), Err(CollapseRefusal::Empty));
        assert_eq!(space.collapse(AT + PAGE), Err(CollapseRefusal::OutsideVma));
        space.write(AT, &[1]).unwrap();
        space.collapse(AT).unwrap();
        assert_eq!(space.collapse(AT), Err(CollapseRefusal::AlreadyHuge));
        space.write(AT + HUGE, &[1]).unwrap();
        let pin = space.pin_page_mut(AT + HUGE, Term::Short).unwrap();
        assert_eq!(space.collapse(AT + HUGE), Err(CollapseRefusal::Pinned));
        assert_eq!(space.madvise(AT + HUGE, HUGE, Advice::Collapse), Err(MadviseError::InUse));
        drop(pin);
        space.madvise(AT + HUGE + PAGE, PAGE, GUARD_INSTALL).unwrap();
        assert_eq!(space.collapse(AT + HUGE), Err(CollapseRefusal::Guard));
        space.mmap(AT + 4 * HUGE, HUGE, RW, SHARED | FIXED).unwrap();
        assert_eq!(space.collapse(AT + 4 * HUGE), Err(CollapseRefusal::OutsideVma));
        space.set_thp_disable(true);
        assert_eq!(space.collapse(AT + HUGE), Err(CollapseRefusal::NotAllowed));
        check(vm, &[space]);
    });
}

#[test]
fn shared_pages_are_copied_and_the_child_keeps_its_own() {
    with_space(NEVER, |vm, space| {
        map(space, AT, HUGE);
        (0..512).for_each(|page| space.write(AT + page * PAGE, &[page as u8]).unwrap());
        let child = space.fork().unwrap();
        space.collapse(AT).unwrap();
        check(vm, &[space, &child]);
        (0..512).for_each(|page| assert_eq!(byte(space, AT + page * PAGE), page as u8));
        space.write(AT + 7 * PAGE, &[99]).unwrap();
        assert_eq!((byte(space, AT + 7 * PAGE), byte(&child, AT + 7 * PAGE)), (99, 7));
        child.collapse(AT).unwrap();
        check(vm, &[space, &child]);
        (0..512).filter(|page| *page != 7).for_each(|page| assert_eq!(byte(&child, AT + page * PAGE), page as u8));
    });
}

#[test]
fn rights_are_those_of_the_mapping() {
    with_space(NEVER, |_, space| {
        map(space, AT, HUGE);
        space.write(AT, &[1]).unwrap();
        space.mprotect(AT, HUGE, READ).unwrap();
        space.collapse(AT).unwrap();
        assert!(space.handle_fault(AT, Access::Write).is_err());
        space.mprotect(AT, HUGE, NONE).unwrap();
        assert!(space.handle_fault(AT, Access::Read).is_err());
        space.mprotect(AT, HUGE, RW).unwrap();
        assert_eq!(byte(space, AT), 1);
        space.write(AT, &[2]).unwrap();
    });
}

#[test]
fn khugepaged_finds_what_it_may_have() {
    with_space(NEVER, |vm, space| {
        map(space, AT, 3 * HUGE);
        map(space, AT + 8 * HUGE, HUGE);
        space.madvise(AT + 8 * HUGE, HUGE, Advice::NoHugePage).unwrap();
        for at in [AT, AT + 2 * HUGE, AT + 8 * HUGE] {
            (0..20).for_each(|page| space.write(at + page * PAGE, &[1]).unwrap());
        }
        assert_eq!(space.khugepaged_scan(0, 1 << 20).nr_collapsed, 0, "the knob says never");
        enable(vm);
        let mut knobs = vm.huge_knobs();
        knobs.khugepaged.max_ptes_none = 100;
        vm.set_huge_knobs(&knobs).unwrap();
        let scan = space.khugepaged_scan(0, 1 << 20);
        assert_eq!((scan.nr_collapsed, scan.next), (0, None));
        assert_eq!(vm.event(Event::ThpScanExceedNonePte), 2);
        knobs.khugepaged.max_ptes_none = 511;
        vm.set_huge_knobs(&knobs).unwrap();
        // In small steps, as a daemon goes.
        let (mut from, mut nr_collapsed) = (0, 0);
        loop {
            let scan = space.khugepaged_scan(from, 1);
            nr_collapsed += scan.nr_collapsed;
            match scan.next {
                Some(next) => from = next,
                None => break,
            }
        }
        assert_eq!(nr_collapsed, 2);
        check(vm, &[space]);
        assert_eq!(huge_pages(space), 2);
    });
}

/// T9.
#[test]
fn when_an_allocation_fails_everything_is_as_before() {
    for k in 0..6 {
        with_space(NEVER, |vm, space| {
            map(space, AT, HUGE);
            // Not in order, or the block that they fill would be taken as it is.
            (0..512).map(|i| i ^ 1).for_each(|page| space.write(AT + page * PAGE, &[page as u8]).unwrap());
            vm.fail_allocation(Some(k));
            let result = space.collapse(AT);
            vm.fail_allocation(None);
            check(vm, &[space]);
            assert_eq!(huge_pages(space), u64::from(result.is_ok()));
            (0..512).for_each(|page| assert_eq!(byte(space, AT + page * PAGE), page as u8));
            assert_eq!(result.is_err(), k < 2, "a twin, a huge frame");
        });
    }
}

/// Write-out follows the dirty bit.
#[test]
fn dirty_pages_stay_dirty() {
    with_space(NEVER, |vm, space| {
        map(space, AT, 2 * HUGE);
        for page in (0..1024).map(|i| i ^ 1) {
            space.write(AT + page * PAGE, &[page as u8]).unwrap();
        }
        assert_eq!(dirty_pages(space), 1024);
        // Clean, and then one page of the second is written.
        space.madvise(AT, 2 * HUGE, FREE).unwrap();
        assert_eq!(dirty_pages(space), 0);
        space.write(AT + HUGE + 300 * PAGE, &[9]).unwrap();
        assert_eq!(dirty_pages(space), 1);
        space.collapse(AT).unwrap();
        space.collapse(AT + HUGE).unwrap();
        assert_eq!(huge_pages(space), 2);
        assert_eq!(dirty_pages(space), 512, "one dirty page makes all of a huge page dirty, none makes none");
        check(vm, &[space]);
    });
}

/// I31: no lock is held while pages are copied. An operation on the mapping gets
/// the table back after one page at most; one elsewhere is not noticed.
#[test]
fn a_collapse_gives_way_to_operations_on_its_mapping() {
    let vm = vm(2, 64 << 20, NEVER);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let stop = AtomicBool::new(false);
    let space = vm.new_space().unwrap();
    map(&space, AT, HUGE);
    let (space, vm, stop) = (&space, &vm, &stop);
    let patience = Patience::new("no copy is ended by an operation");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _cpu = vm.machine().bind(CpuId(1)).unwrap();
            while !stop.load(SeqCst) {
                space.mprotect(AT + 7 * PAGE, PAGE, READ).unwrap();
                space.mprotect(AT + 7 * PAGE, PAGE, RW).unwrap();
            }
        });
        let _stop = StopAtEnd(stop);
        while vm.event(Event::CollapseChanged) < 20 {
            patience.check();
            // Not in order, or nothing would be copied.
            space.madvise(AT, HUGE, DONTNEED).unwrap();
            for page in (0..512).map(|i| i ^ 1).filter(|page| *page != 7) {
                space.write(AT + page * PAGE, &[page as u8]).unwrap();
            }
            let _ = space.collapse(AT);
            assert!((0..512).filter(|page| *page != 7).all(|page| byte(space, AT + page * PAGE) == page as u8));
        }
    });
    check(vm, &[space]);
}

/// T8: one CPU collapses, others fault, pin, unmap and fork.
#[test]
fn collapse_against_everybody() {
    let vm = vm(3, 96 << 20, NEVER);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let before = vm.vmstat().nr_free_pages;
    let stop = AtomicBool::new(false);
    {
        let space = vm.new_space().unwrap();
        map(&space, AT, 4 * HUGE);
        let rounds = AtomicU64::new(0);
        let (space, stop, vm, rounds) = (&space, &stop, &vm, &rounds);
        std::thread::scope(|scope| {
            for cpu in 1..3u64 {
                scope.spawn(move || {
                    let _cpu = vm.machine().bind(CpuId(cpu as u16)).unwrap();
                    let mut state = cpu;
                    // The pages of this CPU: what it wrote last into each.
                    let mut pages = vec![0u8; 2048];
                    while !stop.load(SeqCst) {
                        rounds.fetch_add(1, SeqCst);
                        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        let page = ((state >> 33) % 1024) * 2 + cpu - 1;
                        let at = AT + page * PAGE;
                        assert_eq!(byte(space, at), pages[page as usize], "page {page}");
                        match (state >> 60) % 8 {
                            0 => {
                                let one = AT + page * PAGE;
                                space.madvise(one, PAGE, DONTNEED).unwrap();
                                pages[page as usize] = 0;
                            }
                            2 if cpu == 1 => {
                                let child = space.fork().unwrap();
                                assert_eq!(byte(&child, at), pages[page as usize]);
                            }
                            _ => {
                                pages[page as usize] = page as u8;
                                space.write(at, &[page as u8]).unwrap();
                            }
                        }
                    }
                });
            }
            let mut nr_collapsed = 0;
            let _stop = StopAtEnd(stop);
            let patience = Patience::new("collapses do not get anywhere");
            for round in 0.. {
                if nr_collapsed >= 200 && rounds.load(SeqCst) > 20_000 {
                    break;
                }
                patience.check();
                let at = AT + (round % 4) * HUGE;
                nr_collapsed += u64::from(space.collapse(at).is_ok());
                if round % 3 == 0 {
                    // An edge of a mapping inside, and away again.
                    space.madvise(at + 5 * PAGE, PAGE, Advice::Random).unwrap();
                    space.madvise(at, HUGE, Advice::Normal).unwrap();
                }
            }
        });
        check(vm, &[space]);
    }
    check(&vm, &[]);
    assert_eq!(vm.vmstat().nr_free_pages, before);
}
