//! Calls of others while a folio is zeroed whose place is claimed.

use crate::addr::{Access, Order};
use crate::fault::FaultError;
use crate::linux::MapFlags;
use crate::policy::folio::FolioOrders;
use crate::space::Vm;
use crate::space::ops::ObjectPart;
use crate::testing::{Plain, RW, be, on_relax, vm_of};
use crate::tunables::Tunables;
use std::boxed::Box;
use std::cell::Cell;
use std::rc::Rc;
use std::vec;

const PAGE: u64 = 4096;
const AT: u64 = 0x10_0000_0000;
const LARGE: u64 = 512;

/// The last mapping goes meanwhile, after the handle: the fault is the last who knows the object, and its end is the
/// object's. Nothing is kept.
#[test]
fn the_object_of_a_fill_ends_after_it() {
    let vm: &'static Vm<Plain> = Box::leak(Box::new(vm_of(2, 8192, Tunables::default()).unwrap()));
    let space: &'static _ = Box::leak(Box::new(vm.new_space().unwrap()));
    let before = vm.vmstat().nr_free_pages;
    let orders = FolioOrders::new(Order(0), Order::PMD).unwrap();
    let object = vm.new_shared_object_of(LARGE * PAGE, orders).unwrap();
    let (flags, part) = (MapFlags::SHARED | MapFlags::FIXED, ObjectPart::new(&object));
    space.mmap_object(AT, LARGE * PAGE, RW, flags, part).unwrap();
    // All free memory is dirty, and takes turns to be zeroed.
    vm.frames.blocks.there().for_each(|b| (0..8).for_each(|w| vm.frames.blocks.at(b).dirty[w].set(!0)));
    space.handle_fault(AT, Access::Write).unwrap();
    object.discard(0..LARGE);
    drop(object);
    let nr_ends = Rc::new(Cell::new(0));
    let ends = nr_ends.clone();
    on_relax(move || {
        if nr_ends.replace(1) == 0 {
            be(1);
            space.munmap(AT, LARGE * PAGE).unwrap();
            be(0);
        }
    });
    assert_eq!(space.handle_fault(AT + PAGE, Access::Write), Err(FaultError::NotMapped));
    on_relax(|| ());
    assert_eq!(ends.get(), 1, "somebody was let in while the folio was zeroed");
    vm.check_in_test(&[space], &mut vec![0; vm.nr_frames() as usize]).unwrap();
    assert!(before - vm.vmstat().nr_free_pages < 8, "what a space keeps once it has grown");
}
