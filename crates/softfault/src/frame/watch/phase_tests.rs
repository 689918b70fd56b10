//! Frames that were used up while nobody would react are counted again once somebody would.

use super::tests::{claim_all, noted, tunables};
use super::{BLOCK_GROUPS_PER_RECOUNT, BLOCK_GROUPS_PER_SAMPLE};
use crate::addr::{BLOCK_FRAMES, BlockId};
use crate::frame::Fill;
use crate::machine::{CpuId, Machine};
use crate::space::Vm;
use crate::sync::Ordering;
use crate::testing::{Plain, be, vm_of};
use crate::tunables::Tunables;
use std::vec::Vec;

/// All but so many frames, by all CPUs in turn.
fn use_up(vm: &Vm<Plain>, nr_left: u64) {
    let nr_cpus = vm.machine.nr_cpus();
    let nr_turns = (vm.nr_free_pages() - nr_left) / 64;
    for turn in 0..nr_turns as usize {
        be((turn % nr_cpus) as u16);
        (0..64).for_each(|_| _ = vm.obtain(Fill::Raw).unwrap());
    }
    be(0);
}

/// As many frames as are free when somebody sees that memory is short.
fn seen_at(vm: &Vm<Plain>) -> u64 {
    for turn in 0.. {
        be((turn / 16 % vm.machine.nr_cpus()) as u16);
        if vm.obtain(Fill::Raw).is_err() || vm.frames.is_low.get() != 0 {
            break;
        }
    }
    be(0);
    vm.nr_free_pages()
}

/// Frames that were used up before anybody would have reacted are counted as soon as somebody would.
#[test]
fn a_shortage_is_seen_though_the_knob_is_set_late() {
    let marks = vm_of(32, 256 * BLOCK_FRAMES, tunables()).unwrap().watermarks();
    for percent in [100, 50, 10, 4] {
        let vm = vm_of(32, 256 * BLOCK_FRAMES, Tunables::default()).unwrap();
        assert!(vm.frames.has_sum());
        use_up(&vm, vm.nr_total_pages.get() * percent / 100);
        vm.set_huge_knobs(&tunables().thp).unwrap();
        let seen = seen_at(&vm);
        // I41: 2/3 to 4/3 of what is counted.
        assert!(
            (marks.low_pages * 2 / 3..marks.high_pages * 4 / 3).contains(&seen),
            "{percent} %: {seen} free of {marks:?}"
        );
        assert_eq!(vm.frames.uncounted(&vm.cpus), None);
    }
}

/// It takes a block for each 64 block groups, and nobody decides before it is over.
#[test]
fn a_round_is_short_and_nobody_decides_before_its_end() {
    let vm = vm_of(512, 512 * BLOCK_FRAMES, Tunables::default()).unwrap();
    let (watch, nr_block_groups) = (&vm.frames.watch, vm.frames.blocks.summary.nr_block_groups());
    assert_eq!(nr_block_groups, 8 * BLOCK_GROUPS_PER_RECOUNT);
    vm.begun(BlockId(0));
    // Memory is short, but for the sum.
    (0..512).for_each(|b| claim_all(&vm, BlockId(b)));
    vm.set_huge_knobs(&tunables().thp).unwrap();
    for nr in (0..8).rev() {
        assert_eq!((watch.is_short.get(), vm.frames.is_low.get()), (0, 0));
        vm.begun(BlockId(0));
        assert_eq!(watch.is_recounting(), nr > 0);
    }
    assert_eq!((watch.is_short.get(), vm.frames.is_low.get()), (1, 1));
    assert_eq!(vm.frames.nr_free_of(noted(&vm)), 0);
    // The next one is a look like any other.
    let before = watch.cursor.get();
    vm.begun(BlockId(0));
    assert_eq!(watch.cursor.get() - before, u64::from(BLOCK_GROUPS_PER_SAMPLE));
}

/// The other way round: what came back is not known before the end of the round, either.
#[test]
fn a_shortage_that_is_over_is_not_seen() {
    let vm = vm_of(512, 512 * BLOCK_FRAMES, tunables()).unwrap();
    let watch = &vm.frames.watch;
    let huge: Vec<_> = vm.frames.blocks.names().iter().filter_map(|b| vm.claim_whole(b)).collect();
    // All of memory, a few block groups at a time.
    let seen = (0..512 / BLOCK_GROUPS_PER_SAMPLE).map(|_| vm.frames.sample()).last().unwrap();
    assert!(seen < vm.watermarks().low_pages - BLOCK_FRAMES, "{seen}");
    vm.set_huge_knobs(&Tunables::default().thp).unwrap();
    vm.begun(BlockId(0));
    // The round begins with what is still in use.
    huge.iter()
        .filter(|huge| BlockId::of(huge.first).0 >= 64)
        .for_each(|huge| vm.give_back_huge(huge.first, huge.content));
    vm.set_huge_knobs(&tunables().thp).unwrap();
    let after = &vm.cpu(CpuId(1)).samples_after;
    after.set(100);
    for id in [1, 0, 0, 0, 0, 0, 0, 0] {
        be(id);
        vm.begun(BlockId(0));
        assert_eq!((watch.is_short.get(), vm.frames.is_low.get()), (0, 0));
    }
    assert!(!watch.is_recounting());
    assert_eq!(after.get(), 1, "the CPU that looked before the end looks again");
}

/// A count that a CPU made when most of memory was free may be old.
#[test]
fn each_cpu_looks_at_its_first_block_after_a_round() {
    let vm = vm_of(2, 1024 * BLOCK_FRAMES, tunables()).unwrap();
    let after = [0, 1].map(|id| &vm.cpu(CpuId(id)).samples_after);
    be(1);
    vm.begun(BlockId(1010));
    be(0);
    assert!(after[1].get() > 100);
    vm.set_huge_knobs(&Tunables::default().thp).unwrap();
    vm.begun(BlockId(0));
    (0..1000).for_each(|b| claim_all(&vm, BlockId(b)));
    vm.set_huge_knobs(&tunables().thp).unwrap();
    vm.begun(BlockId(1001));
    assert!(!vm.frames.watch.is_recounting());
    be(1);
    vm.begun(BlockId(1002));
    be(0);
    assert!(after.iter().all(|after| after.get() < 10), "{} {}", after[0].get(), after[1].get());
}

/// The block that a CPU has when somebody sets the knob is counted when the CPU leaves it.
#[test]
fn a_block_begun_while_nobody_would_react_is_noted() {
    let vm = vm_of(128, 128 * BLOCK_FRAMES, Tunables::default()).unwrap();
    be(3);
    vm.begun(BlockId(100));
    vm.set_huge_knobs(&tunables().thp).unwrap();
    be(4);
    while vm.frames.watch.phase.get() != 2 || vm.frames.watch.is_recounting() {
        vm.begun(BlockId(50));
    }
    let before = noted(&vm);
    claim_all(&vm, BlockId(100));
    be(3);
    vm.begun(BlockId(20));
    be(0);
    assert_eq!(noted(&vm) - before, BLOCK_FRAMES);
    assert_eq!(vm.frames.uncounted(&vm.cpus), None);
}

/// While the reserve is full nobody looks.
#[test]
fn the_reserve_is_not_filled_by_a_count_of_long_ago() {
    let keeping = Tunables { keep_min: true, ..Tunables::default() };
    let vm = vm_of(512, 512 * BLOCK_FRAMES, keeping).unwrap();
    let nr_kept = vm.nr_reserve_pages();
    assert_eq!(nr_kept, vm.watermarks().min_pages);
    vm.begun(BlockId(0));
    (0..512).for_each(|b| claim_all(&vm, BlockId(b)));
    assert_eq!(vm.spend_reserve(200), 200);
    let nr_filled = || {
        vm.reclaim_if_low();
        vm.nr_reserve_pages() + 200 - nr_kept
    };
    // Of a reaction before.
    vm.frames.is_low.store(1, Ordering::Relaxed);
    assert_eq!(nr_filled(), 0, "nobody has looked since");
    for b in 0..200 {
        vm.begun(BlockId(b));
        assert_eq!(nr_filled(), 0, "{b}");
    }
}

/// One CPU takes most of what is free; the others may begin no more blocks without a look than
/// is left for them, however much was free when they looked last.
#[test]
fn a_shortage_is_seen_by_cpus_that_looked_long_ago() {
    let vm = vm_of(32, 2048 * BLOCK_FRAMES, tunables()).unwrap();
    let marks = vm.watermarks();
    for cpu in (0..32).rev() {
        be(cpu);
        vm.obtain(Fill::Raw).unwrap();
    }
    assert!(vm.frames.has_sum() && vm.cpu(CpuId(1)).samples_after.get() > 8);
    while vm.nr_free_pages() > 6000 {
        vm.obtain(Fill::Raw).unwrap();
    }
    assert_eq!(vm.frames.is_low.get(), 0);
    let mut nr = 0;
    while vm.frames.is_low.get() == 0 {
        be(1 + nr / 512 % 31);
        assert!(vm.obtain(Fill::Raw).is_ok(), "a shortage that nobody has seen");
        nr += 1;
    }
    be(0);
    assert!(vm.nr_free_pages() > marks.min_pages, "{} free of {marks:?}", vm.nr_free_pages());
}
