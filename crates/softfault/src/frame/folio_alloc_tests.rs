//! Folios of objects: which frames are found, when nobody may look for any (I28), and when the
//! caller is refused.

use super::class::Class;
use super::freeze_tests::{MANY, end_freeze, held, set_freeze};
use super::offers::LOST;
use super::summary::Kind;
use super::want::{Content, Fill};
use super::{BLOCK_WORDS, OutOfFrames};
use crate::addr::{Access, BLOCK_FRAMES, BlockId, OptBlock, Order, Pfn};
use crate::linux::MapFlags;
use crate::machine::CpuId;
use crate::policy::folio::FolioOrders;
use crate::source::handle::SharedObject;
use crate::space::AddressSpace;
use crate::space::Vm;
use crate::space::ops::ObjectPart;
use crate::testing::{Plain, RW, be, on_enter, on_relax, vm, vm_of};
use crate::tunables::Tunables;
use std::boxed::Box;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc;
use std::vec::Vec;

const PAGE: u64 = 4096;
const AT: u64 = 0x10_0000_0000;

/// An object of 512 pages with folios of these sizes, mapped at `AT`, with a page and the tables.
fn with_folios(
    vm: &'static Vm<Plain>,
    least: u8,
    most: u8,
) -> (&'static AddressSpace<'static, Plain>, SharedObject<'static, Plain>) {
    let space: &'static AddressSpace<'static, Plain> = Box::leak(Box::new(vm.new_space().unwrap()));
    let orders = FolioOrders::new(Order(least), Order(most)).unwrap();
    let object = vm.new_shared_object_of(512 * PAGE, orders).unwrap();
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    space.mmap_object(AT, 512 * PAGE, RW, flags, ObjectPart::new(&object)).unwrap();
    space.handle_fault(AT, Access::Write).unwrap();
    (space, object)
}

/// Sizes that need not be are given up, and the least one waits.
#[test]
fn folios_wait_for_the_end_of_freeze() {
    for (least, most, is_fault) in [(3, 3, true), (3, 3, false), (0, 8, true), (0, 8, false), (2, 8, false)] {
        let vm: &'static Vm<Plain> = Box::leak(Box::new(vm(8192, Tunables::default())));
        let (space, object) = with_folios(vm, least, most);
        let had = object.nr_resident_pages();
        vm.steal_caches();
        set_freeze(vm);
        let before = held(vm);
        let nr_waits = Rc::new(Cell::new(0));
        let counted = nr_waits.clone();
        on_relax(move || {
            counted.set(counted.get() + 1);
            if counted.get() == MANY {
                assert_eq!(
                    held(vm),
                    before,
                    "I28: holds frames, or did, though a last-resort allocation wants a freeze"
                );
                end_freeze(vm);
            }
        });
        if is_fault {
            space.handle_fault(AT + 300 * PAGE, Access::Write).unwrap();
        } else {
            object.write(300 * PAGE, &[1]).unwrap();
        }
        on_relax(|| ());
        assert!(nr_waits.get() >= MANY, "I28: takes frames from a last-resort allocation");
        assert_eq!(object.nr_resident_pages() - had, 1 << least, "a size that it can do without");
    }
}

/// CPU 1 faults again and again on a page for whose folio there are no frames, as often as CPU 0
/// does anything.
#[test]
fn refused_folios_delay_no_refusal() {
    let vm: &'static Vm<Plain> = Box::leak(Box::new(vm_of(2, 8192, Tunables::default()).unwrap()));
    let (space, _object) = with_folios(vm, 3, 3);
    let _all: Vec<_> = core::iter::from_fn(|| vm.obtain(Fill::Raw).ok()).collect();
    let (go, told) = mpsc::channel::<()>();
    let (tell, is_waiting) = mpsc::channel();
    let other = std::thread::spawn(move || {
        be(1);
        let tell_once = tell.clone();
        on_relax(move || {
            // It waits for a turn. Nobody may be there to hear it.
            _ = tell_once.send(true);
            std::thread::yield_now();
        });
        while told.recv().is_ok() {
            assert!(space.handle_fault(AT + 8 * PAGE, Access::Write).is_err());
            _ = tell.send(false);
        }
    });
    let (mut waits, mut nr_faults) = (false, 0);
    on_enter(move || {
        if !waits {
            go.send(()).unwrap();
            waits = is_waiting.recv().unwrap();
            nr_faults += 1;
            assert!(nr_faults < MANY, "I28: a refusal that does not end");
        }
    });
    assert!(vm.obtain(Fill::Raw).is_err());
    on_enter(|| ());
    other.join().unwrap();
}

/// Only if it has claimed no frame, not even for a moment: see
/// `a_claim_that_was_lost_leaves_its_trace`.
#[test]
fn a_folio_that_is_not_found_leaves_no_trace() {
    let vm: &'static Vm<Plain> = Box::leak(Box::new(vm(4096, Tunables::default())));
    let _all: Vec<_> = core::iter::from_fn(|| vm.obtain(Fill::Raw).ok()).collect();
    let has_left_a_trace = |order| {
        let before = held(vm);
        assert_eq!(vm.obtain_folio_if_found(Order(order), 0).err(), Some(OutOfFrames::Block(Order(order))));
        held(vm) != before
    };
    let block = vm.frames.blocks.at(BlockId(4));
    assert_eq!((block.nr_free(), block.class()), (0, Class::Movable));
    block.release_words(2..4, !0, Content::Unknown);
    block.release_words(6..7, !0, Content::Unknown);
    // It has pages of objects, and goes on naming a run of 128 frames that it has no more.
    block.mark(Class::Shared);
    block.see_runs();
    block.claim_exact(3, 1 << 63).unwrap();
    assert!(block.may_have_run(0, Order(7)));
    assert!((7..=9).all(|order| !has_left_a_trace(order)), "the first of two words was claimed");
    // It says that it is wholly free: somebody's claim is in progress, or was a moment ago.
    block.release_words(0..2, !0, Content::Unknown);
    block.state.set(0);
    vm.frames.blocks.summary.offer(Kind::Whole, BlockId(4));
    assert!(has_left_a_trace(9), "I28: frames were out of sight, and nobody has held any");
}

/// The frames of a folio are in the frame cache of another CPU.
#[test]
fn a_folio_is_found_in_a_cache() {
    for is_least in [true, false] {
        let vm = vm_of(2, 4096, Tunables::default()).unwrap();
        let _all: Vec<_> = core::iter::from_fn(|| vm.obtain(Fill::Raw).ok()).collect();
        let first = 5 * BLOCK_FRAMES + 64;
        (0..8).for_each(|i| vm.frames.desc(Pfn((first + i) as u32)).clear());
        vm.frames.mark(CpuId(1));
        assert_eq!(vm.cpus.at(1).zeroed.replace(first, 0xff).1, 0);
        let found = if is_least { vm.obtain_folio(Order(3), 0) } else { vm.obtain_folio_if_found(Order(3), 0) };
        assert_eq!(found.ok().map(|(pfn, _held)| u64::from(pfn.0)), is_least.then_some(first));
    }
}

/// Every other frame of all blocks is free, and 64 adjacent ones in one block. The blocks are of
/// that class.
fn with_one_run(class: Class, b: BlockId) -> Vm<Plain> {
    let vm = vm_of(2, 256 * BLOCK_FRAMES, Tunables::default()).unwrap();
    vm.steal_caches();
    let blocks = &vm.frames.blocks;
    for block in blocks.names().iter().map(|b| blocks.at(b)) {
        for w in 0..BLOCK_WORDS {
            let (mask, _) = block.claim_some(w, 64);
            if mask & EVEN != 0 {
                block.release(w, mask & EVEN, Content::Unknown);
            }
        }
        if class != Class::Movable {
            block.mark(class);
        }
    }
    blocks.at(b).release(3, !EVEN, Content::Unknown);
    assert!(blocks.at(b).largest_run() == 6 && blocks.at(b).class() == class);
    vm
}

const EVEN: u64 = 0x5555_5555_5555_5555;

/// I28: nobody is refused a folio for which there are frames, wherever they lie: further on than
/// the searches of one allocation come.
#[test]
fn a_run_far_away_is_found() {
    let all = [(Class::Movable, 1), (Class::Movable, 3), (Class::Shared, 4), (Class::Pinned, 6), (Class::Fixed, 3)];
    // Of blocks with marks an earlier search may have seen the runs.
    let seen = all.into_iter().filter(|(class, _)| *class != Class::Movable).map(|some| (some, true));
    for ((class, order), is_seen) in all.into_iter().map(|some| (some, false)).chain(seen) {
        let vm = with_one_run(class, BlockId(230));
        if is_seen {
            vm.frames.blocks.names().iter().for_each(|b| vm.frames.blocks.at(b).see_runs());
        }
        let orders = FolioOrders::new(Order(order), Order(order)).unwrap();
        let object = vm.new_shared_object_of(512 * PAGE, orders).unwrap();
        let nr_turns = vm.frames.turns.get();
        assert_eq!(object.write(0, &[1]), Ok(()), "{class:?} {order} {is_seen}");
        assert_eq!(object.nr_resident_pages(), 1 << order);
        assert_eq!(vm.frames.turns.get(), nr_turns, "the block says that it has a run");
        while vm.obtain_folio(Order(3), 0).is_ok() {}
        let has_some = [Kind::Run3, Kind::Stay3].map(|kind| vm.frames.blocks.summary.has(kind));
        assert_eq!(has_some, [false; 2], "the next search looks at the same blocks again");
        assert!(vm.frames.blocks.names().iter().all(|b| vm.frames.blocks.at(b).is_told()), "I40");
    }
}

/// It spoils no block of tables or pins.
#[test]
fn a_folio_prefers_blocks_of_objects() {
    let vm = with_one_run(Class::Fixed, BlockId(100));
    let shared = vm.frames.blocks.at(BlockId(200));
    shared.release(5, !EVEN, Content::Unknown);
    shared.weaken(Class::Fixed, Class::Shared);
    assert_eq!(vm.obtain_folio(Order(3), 0).ok().map(|(pfn, _held)| BlockId::of(pfn)), Some(BlockId(200)));
}

/// Another CPU has reserved the block, and none of its frames are in frame caches.
#[test]
fn a_run_in_a_reserved_block_is_found() {
    let vm = with_one_run(Class::Movable, BlockId(230));
    let cpu = vm.cpus.at(1);
    cpu.batch_block.set(OptBlock::some(BlockId(230)).to_word());
    vm.frames.mark(CpuId(1));
    assert!(vm.frames.blocks.at(BlockId(230)).reserve(0xffff));
    assert_eq!(vm.obtain_folio(Order(3), 0).ok().map(|(pfn, _held)| BlockId::of(pfn)), Some(BlockId(230)));
}

/// A size that the caller can do without costs a bounded number of looks, and the next search
/// looks at others.
#[test]
fn a_search_for_a_larger_size_is_bounded() {
    for (class, most) in [(Class::Movable, 8), (Class::Fixed, 64), (Class::Shared, 130)] {
        let vm = with_one_run(class, BlockId(230));
        let blocks = &vm.frames.blocks;
        let nr_lost = || blocks.names().iter().filter(|b| blocks.at(*b).state.get() & LOST != 0).count();
        assert!(vm.obtain_folio_if_found(Order(3), 0).is_err());
        let nr_first = nr_lost();
        assert!((most / 2..=most).contains(&nr_first), "{class:?}: {nr_first}");
        let is_found = vm.obtain_folio_if_found(Order(3), 0).is_ok();
        assert!(is_found || nr_lost() > nr_first, "{class:?}: it looks at the same blocks again");
        while !is_found && vm.obtain_folio_if_found(Order(3), 0).is_err() {}
    }
}

/// A refusal looks at no block: none says that it has a run.
#[test]
fn a_refused_folio_costs_no_look_at_blocks() {
    let looks = |nr_blocks: u64| {
        let vm = vm(nr_blocks * BLOCK_FRAMES, Tunables::default());
        vm.steal_caches();
        let blocks = &vm.frames.blocks;
        for block in blocks.names().iter().map(|b| blocks.at(b)) {
            block.mark(Class::Fixed);
            for w in 0..BLOCK_WORDS {
                let (mask, _) = block.claim_some(w, 64);
                block.release(w, mask & EVEN, Content::Unknown);
            }
        }
        assert!(vm.obtain_folio(Order(3), 0).is_err());
        let steps = Rc::new(Cell::new(0));
        let counted = steps.clone();
        on_relax(move || counted.set(counted.get() + 1));
        let nr_turns = vm.frames.turns.get();
        assert!(vm.obtain_folio(Order(3), 0).is_err());
        assert!(vm.frames.turns.get() > nr_turns, "I28: refused without a turn");
        on_relax(|| ());
        steps.get()
    };
    assert_eq!(looks(2048), looks(128));
}
