//! I30 for objects: the header's frame, and those who look it up.

use super::*;
use crate::source::handle::SharedObject;
use crate::space::Vm;
use crate::testing::{Plain, kind, look_up_until_freed, vm, vm_of};
use crate::tunables::Tunables;

/// An object with one page, and the frame of that page.
fn with_page(vm: &Vm<Plain>) -> (SharedObject<'_, Plain>, Pfn) {
    let object = vm.new_shared_object(4096).unwrap();
    object.write(0, &[1]).unwrap();
    let frames = (1..vm.nr_frames() as u32).map(Pfn);
    let is_page = |pfn: &Pfn| vm.frames.desc(*pfn).state().kind() == FrameKind::Shared;
    (object, frames.into_iter().find(is_page).unwrap())
}

#[test]
fn a_walks_reference_keeps_the_object() {
    let vm = vm(1024, Tunables::default());
    let (object, pfn) = with_page(&vm);
    let header = Pfn(object.id.0 as u32);
    let (kept, page) = vm.object_of(pfn).unwrap();
    assert_eq!((kept.id, page), (object.id, 0));
    assert_eq!((object.nr_mapped_pages(), object.is_mapped()), (0, false), "a walk is no mapping");
    drop(object);
    assert_eq!((kind(&vm, header), kind(&vm, pfn)), (FrameKind::Meta, FrameKind::Shared));
    drop(kept);
    assert_eq!((kind(&vm, header), kind(&vm, pfn)), (FrameKind::Free, FrameKind::Free));
    assert!(vm.object_of(pfn).is_none());
    vm.check_in_test(&[], &mut std::vec![0; 1024]).unwrap();
}

/// The last reference goes while another CPU is between its look at the header's
/// frame and its compare-and-swap.
#[test]
fn a_lookup_of_an_object_is_waited_for() {
    let vm = vm_of(2, 1024, Tunables::default()).unwrap();
    let (object, _) = with_page(&vm);
    let (id, header) = (object.id, Pfn(object.id.0 as u32));
    let is_there = |lookup: &LookupSection<'_>| vm.is_object(lookup, header);
    let is_raised = |lookup: &LookupSection<'_>| vm.object_keep(lookup, id).is_some();
    look_up_until_freed(&vm, header, is_there, is_raised, object);
    assert_eq!(kind(&vm, header), FrameKind::Free);
    vm.check_in_test(&[], &mut std::vec![0; 1024]).unwrap();
}
