//! Compaction makes huge pages available in fragmented memory, no matter which spaces map the
//! pages that move, and programs do not notice.
#![deny(unsafe_code)]

mod common;

use common::huge::HUGE;
use common::{DONTNEED, FIXED, PAGE, PRIVATE, Patience, RW, StopAtEnd, check};
use softfault::addr::Access;
use softfault::policy::compact::CompactBudget;
use softfault::policy::huge::{Defrag, Enabled};
use softfault::{
    AddressSpace, Advice, CompactRefusal, CpuId, Event, FaultDone, HugeKnobs, MigrateRefusal, MremapFlags, Order, Pfn,
    Prot, Term, Tunables, Vm,
};
use softfault_host::{Hosted, HostedConfig, Mode};
use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

/// Where small pages lie.
const SMALL: u64 = 0x10_0000_0000;
/// Where huge ones are asked for.
const LARGE: u64 = 0x20_0000_0000;

type Space<'vm> = AddressSpace<'vm, Hosted>;

fn vm_with(nr_cpus: usize, arena_bytes: u64, change: impl FnOnce(&mut HostedConfig, &mut Tunables)) -> Vm<Hosted> {
    let mut config = HostedConfig::default().with_nr_cpus(nr_cpus).with_arena_bytes(arena_bytes).with_zeroed(false);
    let thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Always).with_defrag(Defrag::Always);
    let mut tunables = Tunables::default().with_thp(thp);
    change(&mut config, &mut tunables);
    let hosted = Hosted::new(config).unwrap();
    Vm::new(hosted, tunables).unwrap()
}

fn vm(arena_bytes: u64) -> Vm<Hosted> {
    vm_with(1, arena_bytes, |_, _| ())
}

fn map_small(space: &Space<'_>, nr_pages: u64) {
    assert_eq!(space.mmap(SMALL, nr_pages * PAGE, RW, PRIVATE | FIXED), Ok(SMALL));
    space.madvise(SMALL, nr_pages * PAGE, Advice::NoHugePage).unwrap();
}

fn map_large(space: &Space<'_>, nr: u64) {
    assert_eq!(space.mmap(LARGE, nr * HUGE, RW, PRIVATE | FIXED), Ok(LARGE));
}

fn value(page: u64) -> u64 {
    page.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

fn put(space: &Space<'_>, page: u64) {
    space.write(SMALL + page * PAGE + page % 500 * 8, &value(page).to_le_bytes()).unwrap();
}

fn get(space: &Space<'_>, page: u64) -> u64 {
    let mut bytes = [0; 8];
    space.read(SMALL + page * PAGE + page % 500 * 8, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// Fills almost all memory with small pages and gives back all but one of each
/// `keep_one_of`: no block is free, every block could be.
fn fragment(vm: &Vm<Hosted>, space: &Space<'_>, keep_one_of: u64) -> Vec<u64> {
    let nr_pages = vm.vmstat().nr_free_pages / 100 * 96;
    map_small(space, nr_pages);
    (0..nr_pages).for_each(|page| put(space, page));
    let mut start = 0;
    for page in (0..nr_pages).step_by(keep_one_of as usize).skip(1).chain([nr_pages]) {
        let len = (page - start - 1) * PAGE;
        if len > 0 {
            space.madvise(SMALL + (start + 1) * PAGE, len, DONTNEED).unwrap();
        }
        start = page;
    }
    (0..nr_pages).step_by(keep_one_of as usize).collect()
}

fn frame_of(space: &Space<'_>, page: u64) -> Pfn {
    space.translate_at_rest(SMALL + page * PAGE).unwrap().pfn
}

#[test]
fn fragmented_memory_gives_huge_pages_again() {
    // Tables are fetched one by one, so that each has a chance to spoil a block.
    let vm = vm_with(1, 64 << 20, |_, tunables| tunables.zero_batch = 8);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let before = vm.vmstat().nr_free_pages;
    {
        let space = vm.new_space().unwrap();
        let active = space.activate();
        let kept = fragment(&vm, &space, 16);
        assert!(vm.fragmentation(Order::PMD).unusable_permille() > 850, "{:?}", vm.fragmentation(Order::PMD));
        map_large(&space, 24);
        let nr_huge = (0..24).filter(|i| space.handle_fault(LARGE + i * HUGE, Access::Write) == Ok(FaultDone::Huge));
        let nr_huge = nr_huge.count();
        check(&vm, &[&space]);
        assert!(nr_huge >= 20, "{nr_huge} huge pages");
        let made = vm.event(Event::CompactSuccess);
        assert!(made > 0 && vm.event(Event::CompactStall) == made + vm.event(Event::CompactFail));
        assert!(vm.event(Event::PgmigrateSuccess) >= made * 30);
        assert_eq!(vm.event(Event::PgmigrateFail), 0);
        kept.iter().for_each(|page| assert_eq!(get(&space, *page), value(*page), "page {page}"));
        kept.iter().for_each(|page| put(&space, *page));
        check(&vm, &[&space]);
        drop(active);
    }
    check(&vm, &[]);
    assert_eq!(vm.vmstat().nr_free_pages, before);
}

#[test]
fn with_defrag_never_nothing_is_moved() {
    let vm = vm_with(1, 32 << 20, |_, tunables| tunables.thp.defrag = Defrag::Never);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    fragment(&vm, &space, 16);
    map_large(&space, 16);
    let write = |i| space.handle_fault(LARGE + i * HUGE, Access::Write);
    let first = (0..16).find(|i| write(*i) == Ok(FaultDone::Installed)).unwrap();
    assert_eq!((vm.event(Event::CompactStall), vm.event(Event::PgmigrateSuccess)), (0, 0));
    assert!(!vm.poll_compaction_request());
    // A daemon is asked instead.
    let defer = vm.huge_knobs().with_defrag(Defrag::Defer);
    vm.set_huge_knobs(&defer).unwrap();
    assert_eq!(write(first + 1), Ok(FaultDone::Installed));
    assert!(vm.poll_compaction_request() && !vm.poll_compaction_request());
    assert_eq!(vm.compact_step(&CompactBudget::BACKGROUND), Ok(()));
    assert_eq!(write(first + 2), Ok(FaultDone::Huge));
    check(&vm, &[&space]);
}

/// T12: no more is moved or looked at than was allowed, and the fault goes on.
#[test]
fn a_fault_moves_no_more_than_its_budget() {
    for (nr_migrated, nr_scanned) in [(40, 4096), (20, 4096), (0, 4096), (256, 200), (256, 0)] {
        let vm = vm_with(1, 32 << 20, |_, tunables| {
            tunables.compact_fault = tunables.compact_fault.with_nr_migrated(nr_migrated).with_nr_scanned(nr_scanned);
        });
        let _cpu = vm.machine().bind(CpuId(0)).unwrap();
        let space = vm.new_space().unwrap();
        let kept = fragment(&vm, &space, 16);
        let mut at = LARGE;
        for _ in 0..20 {
            let (moved, looked) = (vm.event(Event::PgmigrateSuccess), vm.event(Event::CompactMigrateScanned));
            assert_eq!(space.mmap(at, HUGE, RW, PRIVATE | FIXED), Ok(at));
            space.handle_fault(at, Access::Write).unwrap();
            assert!(vm.event(Event::PgmigrateSuccess) - moved <= nr_migrated);
            assert!(vm.event(Event::CompactMigrateScanned) - looked <= nr_scanned);
            check(&vm, &[&space]);
            at += HUGE;
        }
        // Not all of the budgets suffice for a block; then the fault falls back.
        let enough = nr_migrated >= 40 && nr_scanned >= 4096;
        assert_eq!(vm.event(Event::CompactSuccess) > 0, enough, "{nr_migrated} {nr_scanned}");
        assert_eq!(vm.event(Event::ThpFaultFallback) > 0, !enough || vm.event(Event::CompactFail) > 0);
        kept.iter().for_each(|page| assert_eq!(get(&space, *page), value(*page)));
    }
}

/// Frames that stay are named, and the fault falls back.
#[test]
fn obstacles_are_named() {
    for why in [MigrateRefusal::Pinned, MigrateRefusal::Reserved] {
        let vm = vm(32 << 20);
        let _cpu = vm.machine().bind(CpuId(0)).unwrap();
        let space = vm.new_space().unwrap();
        let mut pins = Vec::new();
        let kept = fragment(&vm, &space, 16);
        if why == MigrateRefusal::Pinned {
            let pin = |page: &u64| space.pin_page_mut(SMALL + page * PAGE, Term::Short).unwrap();
            pins.extend(kept.iter().map(pin));
        } else {
            vm.hold_one_in_each_block(100, 3);
        }
        check(&vm, &[&space]);
        let refused = vm.compact_step(&CompactBudget::BACKGROUND);
        let taken = (0..16).filter(|_| vm.compact_step(&CompactBudget::BACKGROUND).is_ok()).count();
        // Blocks that were free from the beginning do not count.
        if refused.is_err() {
            assert_eq!(taken, 0);
            assert_eq!(refused, Err(CompactRefusal::InTheWay(why)), "{why:?}");
            assert!(vm.event(why.event()) > 0);
            assert_eq!(vm.event(Event::PgmigrateSuccess), 0);
        } else {
            assert_eq!(vm.event(Event::PgmigrateSuccess), 0, "{why:?}");
        }
        map_large(&space, 8);
        for i in 0..8 {
            space.handle_fault(LARGE + i * HUGE, Access::Write).unwrap();
        }
        assert!(vm.event(Event::ThpFaultFallback) > 0);
        assert!(vm.event(why.event()) > 0, "{why:?}");
        check(&vm, &[&space]);
        drop(pins);
        check(&vm, &[&space]);
    }
}

#[test]
fn each_refusal_of_a_single_frame() {
    let vm = vm(32 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    map_small(&space, 600);
    put(&space, 1);
    put(&space, 2);
    let refused = |pfn| vm.migrate_frame(pfn).unwrap_err();
    assert_eq!(refused(Pfn(u32::MAX)), MigrateRefusal::Reserved);
    assert_eq!(refused(space.tag().root), MigrateRefusal::Table);
    let pin = space.pin_page_mut(SMALL + PAGE, Term::Short).unwrap();
    assert_eq!(refused(pin.pfn()), MigrateRefusal::Pinned);
    let at = pin.pfn();
    drop(pin);
    let to = vm.migrate_frame(at).unwrap();
    assert_ne!(at, to);
    assert_eq!((frame_of(&space, 1), get(&space, 1)), (to, value(1)));
    assert_eq!(refused(at), MigrateRefusal::NotInUse);
    map_large(&space, 1);
    assert_eq!(space.handle_fault(LARGE, Access::Write), Ok(FaultDone::Huge));
    assert_eq!(refused(space.translate_at_rest(LARGE + 7 * PAGE).unwrap().pfn), MigrateRefusal::HugePage);
    let children: Vec<_> = (0..16).map(|_| space.fork().unwrap()).collect();
    assert_eq!(refused(frame_of(&space, 2)), MigrateRefusal::TooManyMaps);
    drop(children);
    vm.fail_allocation(Some(0));
    assert_eq!(refused(frame_of(&space, 2)), MigrateRefusal::NoTarget);
    vm.fail_allocation(None);
    check(&vm, &[&space]);
    for why in [MigrateRefusal::Table, MigrateRefusal::TooManyMaps, MigrateRefusal::NoTarget, MigrateRefusal::HugePage]
    {
        assert_eq!(vm.event(why.event()), 1);
    }
}

/// A page of all members of a family that moves is seen by all of them, and rights
/// are as before.
#[test]
fn a_family_moves_together() {
    let vm = vm(32 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let before = vm.vmstat().nr_free_pages;
    {
        let space = vm.new_space().unwrap();
        map_small(&space, 16);
        (0..16).for_each(|page| put(&space, page));
        let child = space.fork().unwrap();
        let grandchild = child.fork().unwrap();
        // In another place, with the index that it had.
        let moved = SMALL + (1 << 32);
        grandchild.mremap(SMALL, 16 * PAGE, 16 * PAGE, MremapFlags::MAYMOVE | MremapFlags::FIXED, moved).unwrap();
        child.mprotect(SMALL + 5 * PAGE, PAGE, Prot::NONE).unwrap();
        for page in 0..16 {
            let old = frame_of(&space, page);
            let new = vm.migrate_frame(old).unwrap();
            assert_eq!(frame_of(&space, page), new);
            check(&vm, &[&space, &child, &grandchild]);
        }
        assert!(child.read(SMALL + 5 * PAGE, &mut [0]).is_err());
        child.mprotect(SMALL + 5 * PAGE, PAGE, RW).unwrap();
        for page in 0..16 {
            assert_eq!((get(&space, page), get(&child, page)), (value(page), value(page)));
            let mut bytes = [0; 8];
            grandchild.read(moved + page * PAGE + page % 500 * 8, &mut bytes).unwrap();
            assert_eq!(u64::from_le_bytes(bytes), value(page));
            // Copy-on-write still parts them.
            child.write(SMALL + page * PAGE, &[7; 2048]).unwrap();
            assert_eq!(get(&space, page), value(page));
        }
        drop(space);
        check(&vm, &[&child, &grandchild]);
        let at = grandchild.translate_at_rest(moved).unwrap().pfn;
        vm.migrate_frame(at).unwrap();
        check(&vm, &[&child, &grandchild]);
    }
    check(&vm, &[]);
    assert_eq!(vm.vmstat().nr_free_pages, before);
}

/// Programs write their pages, fork and unmap while others move them: no write is
/// lost, no frame is.
#[test]
fn pages_move_under_programs_that_use_them() {
    for (mode, strict_bbm) in [(Mode::Interrupt, false), (Mode::Broadcast, false), (Mode::Interrupt, true)] {
        moves_under_use(mode, strict_bbm);
    }
}

fn moves_under_use(mode: Mode, strict_bbm: bool) {
    const NR_PAGES: u64 = 64;
    let vm = vm_with(4, 32 << 20, |config, _| {
        (config.mode, config.strict_bbm, config.tlb_entries) = (mode, strict_bbm, 64);
    });
    let before = vm.vmstat().nr_free_pages;
    let (stop, start, nr_moved) = (AtomicBool::new(false), Barrier::new(4), AtomicU64::new(0));
    {
        let cpu = vm.machine().bind(CpuId(0)).unwrap();
        let space = vm.new_space().unwrap();
        map_small(&space, 4 * NR_PAGES);
        thread::scope(|scope| {
            for id in 1..3u16 {
                let (vm, space, stop, start) = (&vm, &space, &stop, &start);
                // Each counts up in pages of its own, and must find what it wrote.
                scope.spawn(move || {
                    let cpu = vm.machine().bind(CpuId(id)).unwrap();
                    let running = cpu.enter(space).unwrap();
                    start.wait();
                    let mut round = 0u64;
                    while !stop.load(SeqCst) {
                        for page in 0..NR_PAGES {
                            let at = SMALL + (u64::from(id) * NR_PAGES + page) * PAGE + 8 * (round % 3);
                            let mut bytes = [0; 8];
                            running.load(at, &mut bytes).unwrap();
                            let seen = u64::from_le_bytes(bytes);
                            let expected = round.saturating_sub(3);
                            assert_eq!(seen, expected, "CPU {id}, page {page}, round {round}");
                            running.store(at, &round.to_le_bytes()).unwrap();
                        }
                        round += 1;
                    }
                });
            }
            let (vm, space, stop, start, nr_moved) = (&vm, &space, &stop, &start, &nr_moved);
            scope.spawn(move || {
                let _cpu = vm.machine().bind(CpuId(3)).unwrap();
                start.wait();
                while !stop.load(SeqCst) {
                    for page in 0..4 * NR_PAGES {
                        if let Some(there) = space.translate_at_rest(SMALL + page * PAGE)
                            && vm.migrate_frame(there.pfn).is_ok()
                        {
                            nr_moved.fetch_add(1, SeqCst);
                        }
                    }
                }
            });
            let _stop = StopAtEnd(stop);
            start.wait();
            let running = cpu.enter(space).unwrap();
            let mut round = 0u64;
            let patience = Patience::new("nothing moves");
            let least = if strict_bbm { 300 } else { 3000 };
            while nr_moved.load(SeqCst) < least || round < 50 {
                // Children come and go, and pages with them.
                let child = space.fork().unwrap();
                running.store(SMALL + round % NR_PAGES * PAGE, &round.to_le_bytes()).unwrap();
                child.write(SMALL + round % NR_PAGES * PAGE, &[1]).unwrap();
                drop(child);
                space.madvise(SMALL + round % (NR_PAGES - 2) * PAGE, 3 * PAGE, DONTNEED).unwrap();
                round += 1;
                patience.check();
            }
        });
        check(&vm, &[&space]);
    }
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    check(&vm, &[]);
    assert_eq!(vm.vmstat().nr_free_pages, before);
    assert_eq!(vm.machine().violations(), (0, None));
}

/// A block that had long-term pins, and has none any more, can be emptied like another.
#[test]
fn pins_that_are_gone_do_not_keep_blocks_from_compaction() {
    for (nr_pins, is_kept) in [(0, false), (1, false), (1, true)] {
        let vm = vm_with(1, 64 << 20, |_, tunables| tunables.thp.enabled = Enabled::Never);
        let _cpu = vm.machine().bind(CpuId(0)).unwrap();
        let space = vm.new_space().unwrap();
        space.mmap(SMALL, 1 << 26, RW, PRIVATE | FIXED).unwrap();
        let frame = |at: u64| space.translate_at_rest(at).unwrap().pfn.0;
        let touched = (0..1 << 14).map(|i| SMALL + i * PAGE);
        let pages: Vec<u64> = touched.take_while(|at| space.handle_fault(*at, Access::Write).is_ok()).collect();
        let mut blocks = BTreeSet::new();
        let mut kept = Vec::new();
        for at in pages.iter().filter(|at| nr_pins > 0 && blocks.insert(frame(**at) / 512)) {
            // Beside a short pin a long one cannot move its page.
            let pins = [Term::Short, Term::Long].map(|term| space.pin_page(*at, term).unwrap());
            kept.extend(pins.into_iter().filter(|_| is_kept));
        }
        for at in pages.iter().filter(|at| frame(**at) % 4 != 0 && kept.iter().all(|pin| pin.pfn().0 != frame(**at))) {
            space.madvise(*at, PAGE, DONTNEED).unwrap();
        }
        let step = || vm.compact_step(&CompactBudget::BACKGROUND);
        // A few blocks are looked at in an attempt.
        let nr_made = (0..20).filter(|_| step().is_ok()).count();
        assert_eq!(nr_made > 8, !is_kept, "{nr_pins} pins, kept: {is_kept}: {nr_made} blocks");
        drop(kept);
    }
}
