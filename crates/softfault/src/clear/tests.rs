//! Memory after clearing and copying; what happens when a source is poisoned.

use super::{CHUNK_FRAMES, ClearOrder, ClearTable, Poisoned, Scratch, calibrate, clear_folio, copy_folio};
use crate::addr::{Order, Pfn};
use crate::machine::FrameRange;
use crate::mem;
use crate::policy;
use crate::space::Vm;
use crate::sync::Word;
use crate::testing::{Plain, vm};
use crate::tunables::Tunables;
use std::vec::Vec;

/// Frames at the end of the `Vm`'s memory: nobody else looks at them in a test of
/// one thread that faults on nothing.
const TO: Pfn = Pfn(2048);
const FROM: Pfn = Pfn(3072);
const NR_FRAMES: u64 = 4096;

fn machine(tunables: Tunables) -> Vm<Plain> {
    vm(NR_FRAMES, tunables)
}

fn frame(vm: &Vm<Plain>, pfn: Pfn) -> &[Word; 512] {
    mem::view(vm.machine(), pfn, 0)
}

fn fill(vm: &Vm<Plain>, first: Pfn, nr: u64, value: impl Fn(u64) -> u64) {
    (0..nr).for_each(|i| frame(vm, Pfn(first.0 + i as u32)).iter().for_each(|w| w.set(value(i))));
}

/// Whether each word of frame `first + i` is `value`.
fn has(vm: &Vm<Plain>, first: Pfn, i: u64, value: u64) -> bool {
    frame(vm, Pfn(first.0 + i as u32)).iter().all(|w| w.get() == value)
}

fn cases() -> impl Iterator<Item = (ClearOrder, Order, u64)> {
    let of_order = |o: u8| [0, 1, 2, Order(o).nr_pages() / 2, Order(o).nr_pages() - 1].map(|hint| (Order(o), hint));
    let sizes = move || (0..=9).flat_map(of_order);
    ClearOrder::ALL.into_iter().flat_map(move |how| sizes().map(move |(order, hint)| (how, order, hint)))
}

#[test]
fn clearing_clears_the_page_and_nothing_beside_it() {
    let vm = machine(Tunables::default());
    for (how, order, hint) in cases() {
        let nr = order.nr_pages();
        fill(&vm, Pfn(TO.0 - 1), nr + 2, |i| !i);
        clear_folio(vm.machine(), TO, order, Some(hint), how, vm.clear_by());
        assert!((0..nr).all(|i| has(&vm, TO, i, 0)), "{how:?} {order:?} {hint}");
        assert!(has(&vm, Pfn(TO.0 - 1), 0, !0) && has(&vm, TO, nr, !(nr + 1)), "{how:?} {order:?} {hint}");
    }
}

#[test]
fn copying_asks_about_each_subpage_once_and_copies_it() {
    let vm = machine(Tunables::default());
    for (how, order, hint) in cases() {
        let nr = order.nr_pages();
        fill(&vm, FROM, nr, |i| i + 7);
        fill(&vm, Pfn(TO.0 - 1), nr + 2, |_| !0);
        let mut asked = Vec::new();
        let copied = copy_folio(vm.machine(), TO, FROM, order, Some(hint), how, &mut |i| {
            asked.push(i);
            Ok(())
        });
        assert_eq!(copied, Ok(()));
        assert_eq!(asked, how.plan(nr, Some(hint)).flat_map(|run| run.indices()).collect::<Vec<_>>());
        assert!((0..nr).all(|i| has(&vm, TO, i, i + 7) && has(&vm, FROM, i, i + 7)), "{how:?} {order:?} {hint}");
        assert!(has(&vm, Pfn(TO.0 - 1), 0, !0) && has(&vm, TO, nr, !0), "{how:?} {order:?} {hint}");
    }
}

#[test]
fn a_poisoned_source_stops_the_copy_and_is_reported() {
    let vm = machine(Tunables::default());
    let nr = Order::PMD.nr_pages();
    for how in ClearOrder::ALL {
        for poisoned in [0, 1, 200, 256, 257, 511] {
            fill(&vm, FROM, nr, |i| i + 7);
            fill(&vm, TO, nr, |_| !0);
            let mut asked = Vec::new();
            let copied = copy_folio(vm.machine(), TO, FROM, Order::PMD, Some(256), how, &mut |index| {
                asked.push(index);
                if index == poisoned { Err(Poisoned { index }) } else { Ok(()) }
            });
            assert_eq!(copied, Err(Poisoned { index: poisoned }), "{how:?}");
            assert_eq!(asked.pop(), Some(poisoned), "{how:?}: nothing is asked after the failure");
            assert!(has(&vm, TO, poisoned, !0), "{how:?}: the poisoned sub-page was read");
            let asked_for = |i: u64| asked.contains(&i);
            assert!((0..nr).all(|i| has(&vm, TO, i, !0) || asked_for(i) && has(&vm, TO, i, i + 7)), "{how:?}");
        }
    }
    let message = std::format!("{}", Poisoned { index: 3 });
    assert!(message.contains("sub-page 3") && message.contains("should be"), "{message}");
}

#[test]
fn the_machine_gets_a_word_in_between_chunks_and_only_there() {
    let vm = machine(Tunables::default());
    for (how, order, hint) in cases() {
        let before = vm.machine().nr_relaxed.get();
        clear_folio(vm.machine(), TO, order, Some(hint), how, vm.clear_by());
        let turns = vm.machine().nr_relaxed.get() - before;
        let at_least = (order.nr_pages() - 1) / CHUNK_FRAMES;
        assert!((at_least..=2 * at_least).contains(&turns), "{how:?} {order:?} {hint}: {turns}");
    }
}

#[test]
fn the_best_order_saves_a_twentieth_at_least() {
    let best = |ns: [u64; 4]| ClearTable::default().with(Order::PMD, ns).best(Order::PMD);
    assert_eq!(best([100, 100, 100, 100]), Some(ClearOrder::Forward));
    assert_eq!(best([100, 96, 97, 96]), Some(ClearOrder::Forward));
    assert_eq!(best([100, 90, 88, 87]), Some(ClearOrder::Converge));
    assert_eq!(best([100, 90, 80, 79]), Some(ClearOrder::Runs));
    assert_eq!(best([4000, 8000, 4100, 2400]), Some(ClearOrder::Hybrid));
    assert_eq!(best([0, 0, 0, 0]), Some(ClearOrder::Forward));
    assert_eq!(ClearTable::default().best(Order::PMD), None);
}

#[test]
fn the_order_is_the_tunables_else_the_tables_else_the_usual_one() {
    let all = |vm: &Vm<Plain>| (0..=Order::MAX.0).map(|o| vm.clear_order(Order(o))).collect::<Vec<_>>();
    let vm = machine(Tunables::default());
    let usual = all(&vm);
    assert_eq!(usual, (0..=Order::MAX.0).map(|o| policy::clear::usual(Order(o))).collect::<Vec<_>>());
    let table = ClearTable::default().with(Order(4), [9, 1, 9, 9]).with(Order::PMD, [9, 9, 1, 9]);
    vm.set_clear_orders(&table);
    for (o, how) in all(&vm).into_iter().enumerate() {
        let wanted = match o {
            // A size that was not measured is taken to be like the largest below.
            4..=8 => ClearOrder::Converge,
            9.. => ClearOrder::Runs,
            _ => usual[o],
        };
        assert_eq!(how, wanted, "order {o}");
    }
    let vm = machine(Tunables { clear_order: Some(ClearOrder::Forward), ..Tunables::default() });
    vm.set_clear_orders(&table);
    assert!(all(&vm).into_iter().all(|how| how == ClearOrder::Forward));
}

#[test]
fn calibration_measures_what_the_scratch_has_room_for() {
    let mut machine = machine(Tunables::default()).into_machine();
    let words = |machine: &Plain, i: u64| -> Vec<u64> {
        mem::view::<_, [Word; 512]>(machine, Pfn(TO.0 - 1 + i as u32), 0).iter().map(Word::get).collect()
    };
    for i in 0..66 {
        mem::view::<_, [Word; 512]>(&machine, Pfn(TO.0 - 1 + i), 0).iter().for_each(|w| w.set(!0));
    }
    let mut scratch = Scratch::new(&mut machine, FrameRange { first: TO, nr_frames: 64 }).unwrap();
    let table = calibrate(&mut scratch);
    for o in 0..=Order::MAX.0 {
        assert_eq!(table.ns(Order(o)).is_some(), (1..=6).contains(&o), "order {o}");
    }
    assert!((1..65).all(|i| words(&machine, i) == [0; 512]));
    assert!([0, 65].iter().all(|i| words(&machine, *i) == [!0; 512]), "frames beside the scratch were touched");
    let mut one = Scratch::new(&mut machine, FrameRange { first: TO, nr_frames: 1 }).unwrap();
    let table = calibrate(&mut one);
    assert!((0..=Order::MAX.0).all(|o| table.ns(Order(o)).is_none()));
}

#[test]
fn scratch_frames_are_the_machines() {
    let mut machine = machine(Tunables::default()).into_machine();
    let take = |machine: &mut Plain, first, nr_frames| {
        Scratch::new(machine, FrameRange { first: Pfn(first), nr_frames }).map(|scratch| scratch.range().nr_frames)
    };
    assert_eq!(take(&mut machine, 0, NR_FRAMES), Some(NR_FRAMES));
    assert_eq!(take(&mut machine, NR_FRAMES as u32, 0), Some(0));
    for (first, nr_frames) in [(0, NR_FRAMES + 1), (NR_FRAMES as u32, 1), (1 << 30, 1), (5, u64::MAX), (u32::MAX, 1)] {
        assert_eq!(take(&mut machine, first, nr_frames), None, "{first} {nr_frames}");
    }
}

#[test]
fn what_leaves_the_scratch_is_refused() {
    let how = ClearOrder::Forward;
    let refused = |call: &dyn Fn(&mut Scratch<'_, Plain>)| {
        let mut machine = machine(Tunables::default()).into_machine();
        let mut scratch = Scratch::new(&mut machine, FrameRange { first: TO, nr_frames: 64 }).unwrap();
        let call = std::panic::AssertUnwindSafe(|| call(&mut scratch));
        assert!(std::panic::catch_unwind(call).is_err());
    };
    for (at, order) in [(0, 7), (1, 6), (64, 0), (u64::MAX, 0), (0, 64), (0, 255)] {
        refused(&|scratch| scratch.clear(at, Order(order), None, how));
        refused(&|scratch| _ = scratch.copy(at, 0, Order(order), None, how, &mut |_| Ok(())));
        refused(&|scratch| _ = scratch.copy(0, at, Order(order), None, how, &mut |_| Ok(())));
    }
    refused(&|scratch| _ = scratch.copy(8, 9, Order(1), None, how, &mut |_| Ok(())));
    let mut machine = machine(Tunables::default()).into_machine();
    let scratch = Scratch::new(&mut machine, FrameRange { first: TO, nr_frames: 64 }).unwrap();
    let (low, high) = scratch.split_at(10);
    assert_eq!((low.range().nr_frames, high.range().nr_frames, high.range().first.0), (10, 54, TO.0 + 10));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| low.split_at(11))).is_err());
}
