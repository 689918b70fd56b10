//! Searches through a large memory, and over many CPUs, answer others: none takes more
//! than `MOST_STEPS` steps without `relax`, which the hosted machine counts. No frame, or
//! none of the size that is wanted, is where a search looks first.

mod common;

use common::huge::{self, AT, HUGE};
use common::*;
use softfault::policy::compact::CompactBudget;
use softfault::policy::huge::{Defrag, Enabled, SizeEnabled};
use softfault::{CpuId, Event, FaultError, HugeKnobs, Order, Vm};
use softfault_host::{Hosted, nr_steps};

/// 1,536 blocks: one pass over all of them is too long.
const LARGE: u64 = 3 << 30;
const NR_BLOCKS: u64 = LARGE / HUGE;
const SMALL_PAGES: HugeKnobs = HugeKnobs::DEFAULT.with_enabled(Enabled::Never);

/// Steps that `f` takes in the core.
fn steps_of(f: impl FnOnce()) -> u64 {
    let before = nr_steps();
    f();
    nr_steps() - before
}

/// A machine of so many CPUs and bytes, and a space with 4 MiB mapped at `AT`.
fn on_machine(nr_cpus: usize, nr_bytes: u64, thp: HugeKnobs, test: impl Fn(&Vm<Hosted>, &Space<'_>)) {
    let vm = huge::vm(nr_cpus, nr_bytes, thp);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    huge::map(&space, AT, 2 * HUGE);
    test(&vm, &space);
}

fn is_refused(space: &Space<'_>, at: u64) -> bool {
    space.write(at, &[1]).is_err_and(|e| e.fault == FaultError::OutOfFrames)
}

#[test]
fn the_search_for_a_frame() {
    on_machine(1, LARGE, SMALL_PAGES, |vm, space| {
        space.write(AT, &[1]).unwrap();
        // A frame in 64 is left: no block is worth reserving before all were looked at.
        vm.age(1, 7);
        let aged = steps_of(|| (1..200).for_each(|page| space.write(AT + page * PAGE, &[1]).unwrap()));
        assert!(aged > 3 * NR_BLOCKS, "three passes over all blocks: {aged} steps");
        vm.age(0, 7);
        let refused = steps_of(|| assert!((200..500).any(|page| is_refused(space, AT + page * PAGE))));
        assert!(refused > 5 * NR_BLOCKS, "{refused} steps");
        // A table is wanted, too.
        huge::map(space, AT + (1 << 30), HUGE);
        assert!(is_refused(space, AT + (1 << 30)));
    });
}

#[test]
fn the_search_for_a_huge_frame() {
    let thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Always).with_defrag(Defrag::Always);
    on_machine(1, LARGE, thp, |vm, space| {
        vm.hold_one_in_each_block(100, 7);
        let fault = steps_of(|| space.write(AT, &[1]).unwrap());
        assert_eq!(vm.event(Event::ThpFaultFallback), 1);
        assert!(fault > 3 * NR_BLOCKS, "{fault} steps");
        assert!(steps_of(|| assert_eq!(vm.zero_ahead(4), 0)) >= NR_BLOCKS);
        assert!(vm.compact_step(&CompactBudget::BACKGROUND).is_err());
        for order in [0, 9, 10, 18] {
            let report = steps_of(|| assert!(vm.fragmentation(Order(order)).nr_free > 0));
            assert!(report > NR_BLOCKS, "order {order}: {report} steps");
        }
    });
}

#[test]
fn the_search_for_adjacent_frames() {
    let mut thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Always).with_defrag(Defrag::Never);
    thp.sizes.fill(SizeEnabled::Always);
    on_machine(1, LARGE, thp, |vm, space| {
        vm.age(16, 7);
        let fault = steps_of(|| space.write(AT, &[1]).unwrap());
        assert!(fault > 6 * NR_BLOCKS, "each size is looked for: {fault} steps");
    });
}

#[test]
fn the_search_in_the_groups_of_all_cpus() {
    on_machine(512, 64 << 20, SMALL_PAGES, |vm, space| {
        space.write(AT, &[1]).unwrap();
        vm.age(0, 7);
        let refused = steps_of(|| assert!((1..500).any(|page| is_refused(space, AT + page * PAGE))));
        assert!(refused > 4 * 512, "holders twice, groups twice: {refused} steps");
        assert!(vm.huge_stat(Order::PMD).is_some());
    });
}
