//! Each way of zeroing: all of the frames, nothing beside them; plans that ask for
//! more than there is.

use super::batch::lowest;
use super::{
    BatchPlan, BatchPlans, By, ClearOrder, ClearTable, Scratch, Ways, Zeroing, calibrate, clear_folio, zero_batch,
};
use crate::addr::{Order, Pfn};
use crate::machine::{CpuId, FrameRange};
use crate::mem::{self, ways};
use crate::space::Vm;
use crate::sync::Word;
use crate::testing::{Plain, vm, without_vector_registers};
use crate::tunables::Tunables;
use std::vec::Vec;

/// Frames at the end of the `Vm`'s memory, as in `tests.rs`.
const AT: Pfn = Pfn(2048);
const NR_FRAMES: u64 = 4096;

fn soil(vm: &Vm<Plain>, first: Pfn, nr: u64) {
    (0..nr).for_each(|i| words(vm, first, i).iter().for_each(|word| word.set(!0)));
}

fn words(vm: &Vm<Plain>, first: Pfn, i: u64) -> &[Word; 512] {
    mem::view(vm.machine(), Pfn(first.0 + i as u32), 0)
}

fn is_all(vm: &Vm<Plain>, first: Pfn, i: u64, value: u64) -> bool {
    words(vm, first, i).iter().all(|word| word.get() == value)
}

fn plans() -> Vec<BatchPlan> {
    let pairs = Zeroing::ALL.into_iter().flat_map(|near| Zeroing::ALL.map(|far| (near, far)));
    let of = |(near, far)| [0, 1, 5, 63, 64, 65, u64::MAX].map(|nr_near| BatchPlan { nr_near, near, far });
    pairs.flat_map(of).collect()
}

#[test]
fn each_way_zeroes_the_frames_and_nothing_beside_them() {
    let vm = vm(NR_FRAMES, Tunables::default());
    let ways = Ways::of(vm.machine());
    for way in Zeroing::ALL {
        for nr in (1..=17).chain([63, 64, 65, 200, 511, 512]) {
            soil(&vm, Pfn(AT.0 - 1), nr + 2);
            ways::zero_frames(vm.machine(), ways, way, AT, nr);
            mem::stream::done();
            assert!((0..nr).all(|i| is_all(&vm, AT, i, 0)), "{way:?} {nr}");
            assert!(is_all(&vm, Pfn(AT.0 - 1), 0, !0) && is_all(&vm, AT, nr, !0), "{way:?} {nr}");
        }
    }
}

#[test]
fn a_plan_zeroes_the_frames_of_the_mask_whatever_it_says() {
    let vm = vm(NR_FRAMES, Tunables::default());
    let masks = [0, 1, 1 << 63, !0, 0xff00_00ff_f0f0_0001, 0x8000_0000_0000_0001, 0x5555_5555_5555_5555];
    for plan in plans() {
        for ways in [Ways::of(vm.machine()), Ways::STORES] {
            for mask in masks {
                soil(&vm, Pfn(AT.0 - 1), 66);
                zero_batch(vm.machine(), ways, plan, u64::from(AT.0), mask);
                let is_right = |i: u64| is_all(&vm, AT, i, if mask & 1 << i == 0 { !0 } else { 0 });
                assert!((0..64).all(is_right), "{plan:?} {ways:?} {mask:#x}");
                assert!(is_all(&vm, Pfn(AT.0 - 1), 0, !0) && is_all(&vm, AT, 64, !0), "{plan:?} {mask:#x}");
            }
        }
    }
}

#[test]
fn the_lowest_frames_are_near() {
    let cases = [(0, 5, 0), (0b1011, 0, 0), (0b1011, 2, 0b11), (0b1011, 3, 0b1011), (0b1011, u64::MAX, 0b1011)];
    for (mask, nr, near) in
        cases.into_iter().chain([(!0, 1, 1), (!0, 63, !0 >> 1), (!0, 64, !0), (1 << 63, 1, 1 << 63)])
    {
        assert_eq!(lowest(mask, nr), near, "{mask:#x} {nr}");
    }
}

#[test]
fn large_pages_are_zeroed_by_any_pair_of_ways() {
    let vm = vm(NR_FRAMES, Tunables::default());
    for (near, far) in Zeroing::ALL.into_iter().flat_map(|near| Zeroing::ALL.map(|far| (near, far))) {
        for how in ClearOrder::ALL {
            soil(&vm, Pfn(AT.0 - 1), 514);
            let by = By { ways: Ways::of(vm.machine()), near, far };
            clear_folio(vm.machine(), AT, Order::PMD, Some(300), how, by);
            assert!((0..512).all(|i| is_all(&vm, AT, i, 0)), "{how:?} {near:?} {far:?}");
            assert!(is_all(&vm, Pfn(AT.0 - 1), 0, !0) && is_all(&vm, AT, 512, !0), "{how:?} {near:?} {far:?}");
        }
    }
}

#[test]
fn vector_registers_are_used_with_the_machines_leave_only() {
    let vm = vm(NR_FRAMES, Tunables::default());
    let with_leave = Ways::of(vm.machine());
    let without = without_vector_registers(|| Ways::of(vm.machine()));
    assert!(!without.has(Zeroing::Vector), "{without:?}");
    assert_eq!(
        with_leave.iter().filter(|way| *way != Zeroing::Vector).collect::<Vec<_>>(),
        without.iter().collect::<Vec<_>>()
    );
    #[cfg(target_arch = "x86_64")]
    assert_eq!(with_leave.has(Zeroing::Vector), std::is_x86_feature_detected!("avx2"));
}

#[test]
fn plain_stores_are_always_there_and_stand_in_for_the_rest() {
    assert_eq!(Ways::STORES.iter().collect::<Vec<_>>(), [Zeroing::Stores]);
    assert!(Zeroing::ALL.into_iter().all(|way| Ways::STORES.or_stores(way) == Zeroing::Stores));
    let vm = vm(NR_FRAMES, Tunables::default());
    let ways = Ways::of(vm.machine());
    assert!(ways.has(Zeroing::Stores));
    assert!(ways.iter().all(|way| ways.or_stores(way) == way));
}

#[test]
fn names_are_read_back() {
    for way in Zeroing::ALL {
        assert_eq!(Zeroing::named(way.name()), Some(way));
    }
    assert_eq!(Zeroing::named("rep"), None);
}

#[test]
fn calibration_picks_ways_that_the_machine_has() {
    for nr_frames in [1, 7, 8, 63, 64, 1000] {
        let mut machine = vm(NR_FRAMES, Tunables::default()).into_machine();
        let mut scratch = Scratch::new(&mut machine, FrameRange { first: AT, nr_frames }).unwrap();
        let ways = scratch.ways();
        let table = calibrate(&mut scratch);
        for nr in [1, 8, 64] {
            assert_eq!(table.batch(nr).is_some(), nr <= nr_frames, "{nr} of {nr_frames}");
            for plan in table.batch(nr).iter().flat_map(|both| [both.dense, both.sparse]) {
                assert!(ways.has(plan.near) && ways.has(plan.far) && plan.nr_near <= nr, "{plan:?}");
            }
            let measured = |way: &Zeroing| table.batch_cost(nr, *way).is_some();
            let wanted: Vec<_> = ways.iter().filter(|_| nr <= nr_frames).collect();
            assert_eq!(Zeroing::ALL.into_iter().filter(measured).collect::<Vec<_>>(), wanted);
        }
        assert_eq!((table.batch(2), table.batch(0), table.batch(u64::MAX)), (None, None, None));
    }
}

const DENSE: BatchPlan = BatchPlan::all(Zeroing::Stores);
const SPARSE: BatchPlan = BatchPlan { nr_near: 1, near: Zeroing::Stores, far: Zeroing::Streaming };

/// Zeroes batches of 64 whose program takes `times`, in nanoseconds, after a batch of
/// either plan; gives how many were zeroed for sparse programs.
fn refill(vm: &Vm<Plain>, nr: u64, times: [u64; 2], dirty: u64) -> u64 {
    let cpu = vm.cpu(CpuId(0));
    let mut nr_sparse = 0;
    for _ in 0..nr {
        soil(vm, AT, 64);
        vm.zero_for_programs(cpu, 64, u64::from(AT.0), dirty);
        assert!((0..64).all(|i| is_all(vm, AT, i, if dirty & 1 << i == 0 { !0 } else { 0 })));
        let is_sparse = cpu.batches.last.get() & 1;
        nr_sparse += is_sparse;
        vm.machine().clock.add_owned(times[is_sparse as usize]);
    }
    nr_sparse
}

fn learning() -> Vm<Plain> {
    let vm = vm(NR_FRAMES, Tunables::default());
    vm.set_zeroing(&ClearTable::default().with_batches(BatchPlans { dense: DENSE, sparse: SPARSE }));
    vm
}

#[test]
fn refills_follow_the_program() {
    let vm = learning();
    let nr_sparse = refill(&vm, 400, [6000, 4000], !0);
    assert!(nr_sparse >= 360, "{nr_sparse}");
    refill(&vm, 100, [10_000, 15_000], !0);
    let nr_sparse = refill(&vm, 400, [10_000, 15_000], !0);
    assert!((1..=40).contains(&nr_sparse), "{nr_sparse}");
    refill(&vm, 100, [6000, 4000], !0);
    let nr_sparse = refill(&vm, 400, [6000, 4000], !0);
    assert!(nr_sparse >= 360, "{nr_sparse}");
}

#[test]
fn batches_of_which_part_was_zero_teach_nothing() {
    let vm = learning();
    for dirty in [0, 1, !0 >> 1, 0xff00] {
        refill(&vm, 100, [6000, 4000], dirty);
        assert_eq!((vm.cpu(CpuId(0)).batches.learned.get(), vm.cpu(CpuId(0)).batches.last.get()), (0, 0), "{dirty:#x}");
    }
    // Nor does the time from such a batch to one that was dirty.
    refill(&vm, 1, [6000, 4000], !0);
    assert_eq!(vm.cpu(CpuId(0)).batches.learned.get(), 0);
}

#[test]
fn nothing_is_timed_where_nothing_depends_on_it() {
    for tunables in [Tunables::default(), Tunables::default().with_zeroing(Some(Zeroing::Streaming))] {
        let vm = vm(NR_FRAMES, tunables);
        if tunables.zeroing.is_some() {
            vm.set_zeroing(&ClearTable::default().with_batches(BatchPlans { dense: DENSE, sparse: SPARSE }));
        }
        vm.machine().clock_step.set(1);
        let before = vm.machine().clock.get();
        refill(&vm, 10, [0, 0], !0);
        assert_eq!(vm.machine().clock.get(), before);
        assert_eq!(vm.cpu(CpuId(0)).batches.learned.get(), 0);
    }
}

#[test]
fn large_pages_are_cleared_by_the_ways_for_parts_of_them() {
    let by = |vm: &Vm<Plain>| (vm.clear_by().near, vm.clear_by().far);
    let fresh = vm(NR_FRAMES, Tunables::default());
    assert_eq!(by(&fresh), (Zeroing::Stores, Zeroing::Streaming));
    let fast = BatchPlan::all(Zeroing::Vector);
    for (sparse, far) in [(fast, Zeroing::Streaming), (BatchPlan { far: Zeroing::Clzero, ..SPARSE }, Zeroing::Clzero)] {
        fresh.set_zeroing(&ClearTable::default().with_batches(BatchPlans { dense: fast, sparse }));
        assert_eq!(by(&fresh), (Zeroing::Vector, far));
    }
    let forced = vm(NR_FRAMES, Tunables::default().with_zeroing(Some(Zeroing::Clzero)));
    assert_eq!(by(&forced), (Zeroing::Clzero, Zeroing::Clzero));
}
