//! Steps of the machine: the work of a kernel's daemons, its settings, and failures.

use super::bytes::Bytes;
use super::storage::Fails;
use super::world::World;
use crate::hosted::knobs;
use crate::op::KnobBits;
use softfault::Order;
use softfault::policy::compact::CompactBudget;

/// No clock decides what is done.
const BUDGET: CompactBudget = CompactBudget::BACKGROUND;

pub(super) fn run(world: &World<'_>, bytes: &mut Bytes<'_>) {
    let vm = world.vm;
    match bytes.below(16) {
        0 => _ = vm.compact_step(&BUDGET),
        1 => _ = vm.zero_ahead(2),
        2 => _ = vm.shrink_underused(u64::MAX),
        3 => _ = vm.drop_clean(bytes.below(64)),
        4..8 => {
            // A run of frames, as a pager finds them.
            let first = world.frame(bytes);
            (0..1 + bytes.below(12) as u32)
                .for_each(|i| _ = vm.swap_out_frame(softfault::Pfn(first.0.wrapping_add(i))));
        }
        8..11 => _ = vm.migrate_frame(world.frame(bytes)),
        11 => vm.split_folio(world.frame(bytes)),
        12 => _ = vm.poison_frame(world.frame(bytes)),
        13 => _ = vm.soft_offline_frame(world.frame(bytes)),
        14 => _ = world.space().khugepaged_scan(super::bytes::BASE, 2048),
        _ => vm.empty_caches(),
    }
}

pub(super) fn set(world: &World<'_>, bytes: &mut Bytes<'_>) {
    let vm = world.vm;
    match bytes.below(8) {
        0..3 => _ = vm.set_huge_knobs(&knobs(KnobBits(bytes.below(KnobBits::COUNT)))),
        3..6 => _ = vm.set_nr_hugepages(Order::PMD, bytes.below(5)),
        6 => _ = vm.set_nr_overcommit_hugepages(Order::PMD, bytes.below(4)),
        _ => _ = vm.demote_hugepages(1),
    }
}

/// Lets something fail soon, or nothing any more.
pub(super) fn fail(world: &World<'_>, bytes: &mut Bytes<'_>) {
    let (what, after) = (bytes.below(10), bytes.byte() % 16);
    let nr = u64::from(after);
    match what {
        0..2 => world.vm.fail_allocation(if after == 15 { None } else { Some(nr) }),
        2 => world.vm.fail_runs(if after < 8 { Some(Order(after + 2)) } else { None }),
        3 => world.vm.machine().fail_swap(nr & 1 != 0, nr & 2 != 0),
        4 => world.vm.machine().fail_copy(if after == 15 { None } else { Some(nr) }),
        5 | 6 => world.storage.fail(Fails::Fill, after),
        7 => world.storage.fail(Fails::Write, after),
        8 => world.storage.fail(Fails::Room, after),
        _ => world.storage.fail(Fails::Hole, after),
    }
}
