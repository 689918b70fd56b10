//! Folios of objects: which frames are found, when nobody may look for any (I28), and when the
//! caller is refused.

use super::OutOfFrames;
use super::class::Class;
use super::quiet_tests::{MANY, end_quiet, held, set_quiet};
use super::summary::Kind;
use super::want::{Content, Fill};
use crate::addr::{Access, BLOCK_FRAMES, BlockId, Order, Pfn};
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
fn folios_wait_for_the_end_of_quiet() {
    for (least, most, is_fault) in [(3, 3, true), (3, 3, false), (0, 8, true), (0, 8, false), (2, 8, false)] {
        let vm: &'static Vm<Plain> = Box::leak(Box::new(vm(8192, Tunables::default())));
        let (space, object) = with_folios(vm, least, most);
        let had = object.nr_resident_pages();
        vm.steal_groups();
        set_quiet(vm);
        let before = held(vm);
        let nr_waits = Rc::new(Cell::new(0));
        let counted = nr_waits.clone();
        on_relax(move || {
            counted.set(counted.get() + 1);
            if counted.get() == MANY {
                assert_eq!(held(vm), before, "I28: holds frames, or did, though somebody in need wants quiet");
                end_quiet(vm);
            }
        });
        if is_fault {
            space.handle_fault(AT + 300 * PAGE, Access::Write).unwrap();
        } else {
            object.write(300 * PAGE, &[1]).unwrap();
        }
        on_relax(|| ());
        assert!(nr_waits.get() >= MANY, "I28: takes frames from somebody in need");
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
    block.claim_exact(3, 1 << 63).unwrap();
    assert!((7..=9).all(|order| !has_left_a_trace(order)), "the first of two words was claimed");
    // It says that it is wholly free: somebody's claim is under way, or was a moment ago.
    block.release_words(0..2, !0, Content::Unknown);
    block.state.set(0);
    vm.frames.blocks.summary.offer(Kind::Whole, BlockId(4));
    assert!(has_left_a_trace(9), "I28: frames were out of sight, and nobody has held any");
}

/// The frames of a folio are in the group of another CPU.
#[test]
fn a_folio_is_found_in_a_group() {
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
