//! Searches in a large memory take as many steps as in a small one, and those over many
//! CPUs answer others: none takes more than `MOST_STEPS` steps without `relax`, which the
//! hosted machine counts. No frame, or none of the size that is wanted, is where a search
//! looks first.

mod common;

use common::huge::{self, AT, HUGE};
use common::*;
use softfault::policy::compact::CompactBudget;
use softfault::policy::huge::{Defrag, Enabled, SizeEnabled};
use softfault::{CpuId, Event, FaultError, HugeKnobs, Order, Vm};
use softfault_host::Hosted;

/// 64 blocks, and 1,536, which a search would need seconds for.
const SIZES: [u64; 2] = [128 << 20, 3 << 30];
const SMALL_PAGES: HugeKnobs = HugeKnobs::DEFAULT.with_enabled(Enabled::Never);

/// A machine of so many CPUs and bytes, and a space with 4 MiB mapped at `AT`.
fn on_machine<T>(nr_cpus: usize, nr_bytes: u64, thp: HugeKnobs, test: impl Fn(&Vm<Hosted>, &Space<'_>) -> T) -> T {
    let vm = huge::vm(nr_cpus, nr_bytes, thp);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    while vm.initialise_section() {}
    let space = vm.new_space().unwrap();
    huge::map(&space, AT, 2 * HUGE);
    test(&vm, &space)
}

fn is_refused(space: &Space<'_>, at: u64) -> bool {
    space.write(at, &[1]).is_err_and(|e| e.fault == FaultError::OutOfFrames)
}

/// The same work in a small and a large memory takes the same steps, give or take a few.
fn grows_not(what: &str, work: impl Fn(u64) -> u64) {
    let [small, large] = SIZES.map(work);
    assert!(large <= small + small / 8 + 32, "{what}: {small} steps in a small memory, {large} in a large one");
}

#[test]
fn the_search_for_a_frame() {
    for left in [1, 0] {
        grows_not("a frame", |nr_bytes| {
            on_machine(1, nr_bytes, SMALL_PAGES, |vm, space| {
                space.write(AT, &[1]).unwrap();
                // One frame in 64 is free, or none: no block is worth reserving.
                vm.age(left, 7);
                steps_of(|| {
                    let nr_refused = (1..200).filter(|page| is_refused(space, AT + page * PAGE)).count();
                    assert_eq!(nr_refused > 100, left == 0);
                })
            })
        });
    }
}

#[test]
fn the_search_for_a_huge_frame() {
    let thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Always).with_defrag(Defrag::Never);
    grows_not("a huge frame", |nr_bytes| {
        on_machine(1, nr_bytes, thp, |vm, space| {
            vm.hold_one_in_each_block(100, 7);
            let fault = steps_of(|| space.write(AT, &[1]).unwrap());
            assert_eq!(vm.event(Event::ThpFaultFallback), 1);
            fault + steps_of(|| assert_eq!(vm.zero_ahead(4), 0))
        })
    });
}

#[test]
fn the_search_for_adjacent_frames() {
    let mut thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Always).with_defrag(Defrag::Never);
    thp.sizes.fill(SizeEnabled::Always);
    grows_not("each size", |nr_bytes| {
        on_machine(1, nr_bytes, thp, |vm, space| {
            vm.age(16, 7);
            steps_of(|| (0..64).for_each(|i| space.write(AT + i * 16 * PAGE, &[1]).unwrap()))
        })
    });
}

/// Reports and compaction look at all of memory, or at as much as their budget allows.
#[test]
fn passes_over_memory() {
    let thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Always).with_defrag(Defrag::Always);
    on_machine(1, SIZES[1], thp, |vm, space| {
        vm.hold_one_in_each_block(100, 7);
        space.write(AT, &[1]).unwrap();
        assert!(vm.compact_step(&CompactBudget::BACKGROUND).is_err());
        for order in [0, 9, 10, 18] {
            let report = steps_of(|| assert!(vm.fragmentation(Order(order)).nr_free > 0));
            assert!(report > SIZES[1] / HUGE, "order {order}: {report} steps");
        }
    });
}

/// CPUs that have no frames are not asked for them.
#[test]
fn the_search_in_the_caches_of_all_cpus() {
    let [one, many] = [1, 512].map(|nr_cpus| {
        on_machine(nr_cpus, 64 << 20, SMALL_PAGES, |vm, space| {
            space.write(AT, &[1]).unwrap();
            vm.age(0, 7);
            steps_of(|| assert!((1..500).any(|page| is_refused(space, AT + page * PAGE))))
        })
    });
    assert!(many <= one + 32, "{one} steps with one CPU, {many} with 512");
}

/// Those that have had some are, and others get their answers meanwhile.
#[test]
fn the_search_in_caches_that_had_frames() {
    let nr_cpus = 512;
    let vm = huge::vm(nr_cpus, 256 << 20, SMALL_PAGES);
    let cpu = |i: usize| vm.machine().bind(CpuId(i as u16)).unwrap();
    let space = {
        let _cpu = cpu(0);
        vm.age(1, 7);
        vm.new_space().unwrap()
    };
    {
        let _cpu = cpu(0);
        huge::map(&space, AT, 8 * HUGE);
    }
    for i in 0..nr_cpus {
        let _cpu = cpu(i);
        space.write(AT + i as u64 * PAGE, &[1]).unwrap();
    }
    let _cpu = cpu(0);
    let nr_steps = steps_of(|| assert!((512..4096).any(|page| is_refused(&space, AT + page * PAGE))));
    assert!(nr_steps > 3 * nr_cpus as u64, "{nr_steps} steps");
    drop(space);
}
