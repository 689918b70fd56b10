//! Faults under a policy that says anything at any time.

use super::prealloc::{Need, Prealloc};
use crate::account::Event;
use crate::addr::{Access, Order, Pfn};
use crate::frame::{Advance, Content};
use crate::linux::{MapFlags, Prot};
use crate::policy::fault::{FaultPlan, FaultQuestion};
use crate::policy::huge::{Enabled, SizeEnabled};
use crate::testing::{ask, vm};
use crate::tunables::Tunables;
use crate::tunables::huge::HugeKnobs;
use std::cell::Cell;
use std::vec;

const HUGE: u64 = 2 << 20;
const PRIVATE_RW: (Prot, MapFlags) = (Prot::READ.union(Prot::WRITE), MapFlags::PRIVATE.union(MapFlags::ANONYMOUS));

std::thread_local! {
    static TURN: Cell<u64> = const { Cell::new(0) };
}

/// Another answer each time, good or not: in the middle of a fault, too.
fn hostile(_: &FaultQuestion) -> FaultPlan {
    let turn = TURN.get();
    TURN.set(turn + 1);
    // A sequence that does not repeat soon.
    match turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61 {
        0 | 1 => FaultPlan::NewFolio(Order::PMD),
        2 | 3 => FaultPlan::HugeZero,
        4 => FaultPlan::NewFolio(Order((turn % 20) as u8)),
        5 => FaultPlan::ZeroFrame,
        6 => FaultPlan::NewFolio(Order(4)),
        _ => FaultPlan::NewFrame,
    }
}

/// The frames that are wanted change between the turns of one fault, so that what was brought
/// for one plan is in the preallocation under another: nothing of it is lost.
#[test]
fn a_hostile_policy_costs_no_frame() {
    ask(hostile);
    let mut thp = HugeKnobs { enabled: Enabled::Always, ..HugeKnobs::DEFAULT };
    thp.sizes.fill(SizeEnabled::Always);
    for round in 0..40 {
        TURN.set(round * 1000);
        let vm = vm(16 * 512, Tunables { thp, ..Tunables::default() });
        let before = vm.vmstat().nr_free_pages;
        let mut counts = vec![0; vm.nr_frames() as usize];
        {
            let space = vm.new_space().unwrap();
            let base = space.mmap(0, 6 * HUGE, PRIVATE_RW.0, PRIVATE_RW.1).unwrap();
            for step in 0..60 {
                let page = (step * 1009 + round * 17) % (6 * 512);
                let access = if (step + round) % 3 == 0 { Access::Write } else { Access::Read };
                space.handle_fault(base + page * 4096, access).unwrap();
                vm.check_in_test(&[&space], &mut counts).unwrap();
            }
        }
        let nr_zero = 512 * vm.event(Event::ThpZeroPageAlloc);
        assert_eq!(vm.vmstat().nr_free_pages + nr_zero, before, "round {round}");
    }
}

/// I47: between two turns of a fault the mapping of an object was replaced by a private one. Frames that came for the object
/// become private pages, none of which is older than the fault.
#[test]
fn private_pages_in_place_of_a_folio_are_all_young() {
    const ORDER: Order = Order(4);
    let vm = vm(16 * 512, Tunables::default());
    // Else it would come from a block that is wholly free, all of whose frames are noted.
    let blocks = &vm.frames.blocks;
    blocks.names().iter().for_each(|b| _ = blocks.at(b).claim_exact(7, 1 << 63));
    for _ in 0..2 {
        while vm.advance_generation(100) != Advance::Done {}
    }
    let mut prealloc = Prealloc::new(&vm);
    prealloc.bring(Need::Folio { order: ORDER, sub_page: 3, least: ORDER }).unwrap();
    let first = prealloc.private_batch(ORDER).unwrap();
    let now = vm.frames.ages.now().of_age(0);
    let ages = (first.0..).take(1 << ORDER.0).map(|pfn| vm.frames.generation_of(Pfn(pfn)));
    assert!(ages.into_iter().all(|generation| generation == now));
    vm.release_run(first, ORDER.nr_pages(), Content::Zero);
}
