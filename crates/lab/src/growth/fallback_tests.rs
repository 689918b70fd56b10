//! Compares the words touched by two faults: one that may use a larger size but finds none free,
//! and one of a small page.

use super::call::{self, BASE, HUGE_BYTES, PAGE_BYTES};
use super::count::Counter;
use super::options::State;
use super::state;
use super::what::What;
use crate::conflicts::machine::{self, Simulated};
use softfault_recorded::addr::Access;
use softfault_recorded::policy::huge::{Enabled, SizeEnabled};
use softfault_recorded::{FaultDone, HugeKnobs, Order, Tunables, Vm};

const NR_TOUCHES: u64 = 400;
const MEMORY_BYTES: u64 = 1 << 30;

/// From here on all of memory has been looked at if each touch asked for a run.
const LATE: u64 = 200;
const ORDER_64K: Order = Order(4);

/// The touches of one run that were given a small page.
#[derive(Debug, Default)]
struct Small {
    nr: u64,
    /// The most words that one touched.
    worst: u64,
    /// The same of the late ones.
    worst_late: u64,
    sum: u64,
    /// How often a run of 64 KiB was not found.
    nr_fallbacks: u64,
}

/// Touches pages so far apart, in memory in that state.
fn touch(memory: State, knobs: HugeKnobs, apart: u64) -> Small {
    machine::become_cpu(0);
    let simulated = Simulated::new(1, MEMORY_BYTES / PAGE_BYTES).unwrap();
    let vm = Vm::new(simulated, Tunables::default()).unwrap();
    state::simulate(&vm, memory);
    vm.set_huge_knobs(&knobs).unwrap();
    let space = vm.new_space().unwrap();
    call::map(&space, What::Touch4K, NR_TOUCHES * HUGE_BYTES).unwrap();
    let mut counter = Counter::new();
    let active = space.activate();
    let mut small = Small::default();
    for i in 0..NR_TOUCHES {
        let before = counter.total;
        let done = counter.count(|| space.handle_fault(BASE + i * apart, Access::Write)).unwrap();
        let steps = counter.total - before;
        if !matches!(done, FaultDone::Folio(_)) {
            small.nr += 1;
            small.sum += steps;
            small.worst = small.worst.max(steps);
            small.worst_late = if i < LATE { 0 } else { small.worst_late.max(steps) };
        }
    }
    drop(active);
    small.nr_fallbacks = vm.huge_stat(ORDER_64K).unwrap().anon_fault_fallback;
    small
}

fn with_sizes(sizes: &[usize]) -> HugeKnobs {
    let mut knobs = HugeKnobs::DEFAULT.with_enabled(Enabled::Always);
    knobs.sizes.fill(SizeEnabled::Never);
    sizes.iter().for_each(|size| knobs.sizes[*size] = SizeEnabled::Always);
    knobs
}

/// The pages of a touch come one after the other, or each needs a table.
#[test]
fn a_touch_that_falls_back_costs_at_most_twice_a_small_one() {
    for memory in [State::Fragmented, State::Aged] {
        for apart in [HUGE_BYTES, PAGE_BYTES] {
            let (plain, found) = (touch(memory, with_sizes(&[]), apart), touch(memory, with_sizes(&[2]), apart));
            let what = format!("{}, {apart} apart: {plain:?}, where 64 KiB are allowed {found:?}", memory.name());
            assert!(found.nr > 0 && found.worst <= 2 * plain.worst, "{what}");
            if memory == State::Fragmented {
                assert_eq!((plain.nr, found.nr), (NR_TOUCHES, NR_TOUCHES), "{what}");
            }
            if apart == HUGE_BYTES {
                // The entries of 64 KiB, a word for the CPU's block and some for all others.
                assert!(memory == State::Aged || found.worst_late <= plain.worst_late + 32, "{what}");
                assert_eq!((plain.nr_fallbacks, found.nr_fallbacks), (0, found.nr), "{what}");
            }
        }
    }
}

/// With all sizes the entries of 1 MiB are looked at, which are 256 words. A fault that looks
/// for a size and found none looks for no other; each block is looked at once.
#[test]
fn a_touch_for_which_all_sizes_are_allowed_looks_for_one_in_vain() {
    let plain = touch(State::Fragmented, with_sizes(&[]), HUGE_BYTES);
    let found = touch(State::Fragmented, with_sizes(&[0, 1, 2, 3, 4, 5, 6]), HUGE_BYTES);
    assert!(found.worst <= 2 * plain.worst + 256, "{plain:?}, with all sizes {found:?}");
    let nr_blocks = MEMORY_BYTES / HUGE_BYTES;
    assert!((1..=nr_blocks / 4).contains(&found.nr), "others have found 16 or 32 KiB: {found:?}");
}
