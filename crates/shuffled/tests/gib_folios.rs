//! A folio of 1 GiB: two who want it and a remover; and what splits it where it is, against stores, pins and removers.
//! Loom has the races of folios of 2 MiB (`large_folios`); here are those with 512 blocks and two nodes.
//!
//! Ways to fail: two come, or one takes small pages in its place; a store goes to a frame that is nobody's, or is lost
//! with its entry; a remover passes by a word that becomes a node.

use common::{RW, Shuffled, access, run, shuffled, vm_of_fresh_memory};
use shuttle::rand::Rng;
use softfault_shuffled::addr::Pfn;
use softfault_shuffled::policy::folio::FolioOrders;
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{
    AddressSpace, Event, FaultError, MapFlags, ObjectPart, Order, SharedObject, Term, Tunables, Vm,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const NR_CPUS: usize = 3;
/// Three CPUs have their home blocks in the first five GiB or so: others are whole.
const NR_FRAMES: u64 = 6 * GIB;
const GIB: u64 = 1 << 18;
const AT: u64 = 1 << 32;
/// Pages to which the two programs store, and one that goes, fails or moves.
const STORED: [u64; 2] = [77 * 512 + 5, GIB - 1];
const GOES: u64 = 77 * 512 + 9;

/// Turns that a remover may wait: about as many as a folio takes to come.
const MOST_TURNS: u64 = 20_000;

type Machine = Shuffled<X86_64>;

#[derive(Clone, Copy)]
struct World {
    vm: &'static Vm<Machine>,
    space: &'static AddressSpace<'static, Machine>,
    object: &'static SharedObject<'static, Machine>,
}

fn world() -> World {
    let vm = vm_of_fresh_memory(NR_CPUS, NR_FRAMES, Tunables::default());
    let orders = FolioOrders::new(Order::BASE, Order::PUD).unwrap();
    let object: &SharedObject<'static, Machine> =
        Box::leak(Box::new(vm.new_shared_object_of(GIB * 4096, orders).unwrap()));
    let space: &AddressSpace<'static, Machine> = Box::leak(Box::new(vm.new_space().unwrap()));
    let flags = MapFlags::SHARED.union(MapFlags::FIXED);
    space.mmap_object(AT, GIB * 4096, RW, flags, ObjectPart::new(object)).unwrap();
    World { vm, space, object }
}

fn order_of(w: World, page: u64) -> Option<u8> {
    w.object.object_page_state(page).map(|state| state.order.0)
}

fn content(w: World, page: u64) -> u64 {
    let mut bytes = [0; 8];
    assert_eq!(w.object.read(page * 4096, &mut bytes), 8);
    u64::from_le_bytes(bytes)
}

/// Counts a page's word up through the program's own accesses.
fn count_up(w: World, page: u64) -> Box<dyn FnOnce() + Send> {
    Box::new(move || {
        let active = w.space.activate();
        for value in 1..=4 {
            let at = AT + page * 4096;
            assert_eq!(access(w.space, w.vm, at, None), Ok(value - 1), "page {page}");
            assert_eq!(access(w.space, w.vm, at, Some(value)), Ok(value), "page {page}");
        }
        drop(active);
    })
}

/// Checks that the stores of two programs are there, and that the object has so many pages.
fn finish(w: World, nr_resident: u64) {
    assert_eq!(STORED.map(|page| content(w, page)), [4; 2]);
    assert_eq!(w.object.nr_resident_pages(), nr_resident);
}

/// One folio comes, no matter which CPU wants it. A remover takes some pages of it out, or was there before it.
#[test]
fn two_who_want_it_and_a_remover() {
    static NR_CUT: AtomicU64 = AtomicU64::new(0);
    static NR_WHOLE: AtomicU64 = AtomicU64::new(0);
    shuffled(24, || {
        let w = world();
        let nr_gone = shuttle::rand::thread_rng().gen_range(1..4);
        let nr_turns = shuttle::rand::thread_rng().gen_range(0..MOST_TURNS);
        let remover = move || {
            (0..nr_turns).for_each(|_| shuttle::thread::yield_now());
            w.object.discard(GOES..GOES + nr_gone);
        };
        run(NR_CPUS, vec![count_up(w, STORED[0]), count_up(w, STORED[1]), Box::new(remover)]);
        let is_whole = order_of(w, GOES) == Some(18);
        finish(w, if is_whole { GIB } else { GIB - nr_gone });
        assert_eq!(order_of(w, GIB - 1), Some(if is_whole { 18 } else { 9 }));
        (if is_whole { &NR_WHOLE } else { &NR_CUT }).fetch_add(1, Relaxed);
        w.object.discard(0..GIB);
        assert_eq!(w.object.nr_resident_pages(), 0);
    });
    let nr = [&NR_CUT, &NR_WHOLE].map(|nr| nr.load(Relaxed));
    assert!(nr.iter().all(|nr| *nr > 0), "removers after it, and before: {nr:?}");
}

/// A page goes to the swap area, moves or fails, while two programs store to others.
#[test]
fn stores_against_a_split() {
    static NR: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
    shuffled(24, || {
        let w = world();
        w.object.write(0, &[0; 8]).unwrap();
        assert_eq!(order_of(w, GOES), Some(18));
        w.space.handle_fault(AT, softfault_shuffled::addr::Access::Read).unwrap();
        let first = w.space.translate_at_rest(AT).unwrap().pfn;
        let pfn = Pfn(first.0 + GOES as u32);
        let how = shuttle::rand::thread_rng().gen_range(0..3);
        let splits = move || match how {
            0 => assert_eq!(w.vm.swap_out_frame(pfn), Ok(0)),
            1 => assert!(w.vm.migrate_frame(pfn).is_ok()),
            _ => assert_eq!(w.vm.poison_frame(pfn), Ok(0)),
        };
        run(NR_CPUS, vec![count_up(w, STORED[0]), count_up(w, STORED[1]), Box::new(splits)]);
        finish(w, if how == 1 { GIB } else { GIB - 1 });
        assert_eq!(order_of(w, GIB - 1), Some(9));
        assert_eq!(w.object.next_poisoned(0..GIB), (how == 2).then_some(GOES));
        let nr_moved = w.vm.vmstat().get(Event::FolioMovedInPart);
        assert_eq!(nr_moved, u64::from(how == 1));
        NR[how as usize].fetch_add(1, Relaxed);
        w.object.discard(0..GIB);
        assert_eq!((w.object.nr_resident_pages(), w.object.nr_swapped_pages()), (0, 0));
    });
    assert!(NR.iter().all(|nr| nr.load(Relaxed) > 0), "{NR:?}");
}

/// A page of it is pinned, and one is taken out: either the split is refused, or the pin is of a smaller folio.
#[test]
fn a_pin_and_a_remover_against_a_split() {
    static NR_SPLIT: AtomicU64 = AtomicU64::new(0);
    shuffled(16, || {
        let w = world();
        w.object.write(0, &[0; 8]).unwrap();
        w.space.handle_fault(AT, softfault_shuffled::addr::Access::Read).unwrap();
        let pfn = Pfn(w.space.translate_at_rest(AT).unwrap().pfn.0 + GOES as u32);
        let splits = move || {
            if w.vm.swap_out_frame(pfn).is_ok() {
                NR_SPLIT.fetch_add(1, Relaxed);
            }
        };
        let pins = move || {
            let active = w.space.activate();
            let pin = w.space.pin_page_mut(AT + STORED[0] * 4096, Term::Short).unwrap();
            pin.write(0, &4u64.to_le_bytes());
            drop(pin);
            drop(active);
        };
        let removes = move || {
            w.object.discard(GIB - 700..GIB - 600);
            for page in [GIB - 700, GIB - 601] {
                match w.space.handle_fault(AT + page * 4096, softfault_shuffled::addr::Access::Read) {
                    Ok(_) | Err(FaultError::Poisoned) => assert_eq!(content(w, page), 0),
                    Err(other) => panic!("{other}"),
                }
            }
        };
        run(NR_CPUS, vec![Box::new(splits), Box::new(pins), Box::new(removes)]);
        assert_eq!(content(w, STORED[0]), 4);
        w.object.discard(0..GIB);
        assert_eq!((w.object.nr_resident_pages(), w.object.nr_swapped_pages()), (0, 0));
        w.object.write(0, &[1]).unwrap();
        let mut counts = vec![0; NR_FRAMES as usize + common::NR_SLOTS];
        static IS_CHECKED: AtomicU64 = AtomicU64::new(0);
        if IS_CHECKED.fetch_add(1, Relaxed).is_multiple_of(8) {
            w.vm.check_in_test(&[w.space], &mut counts).unwrap();
        }
    });
    assert!(NR_SPLIT.load(Relaxed) > 0, "pinned whenever it was to be split");
}
