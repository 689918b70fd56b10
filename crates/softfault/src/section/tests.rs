//! The type of a token does not say whose it is; debug builds look.

use crate::addr::Vpn;
use crate::machine::Machine;
use crate::source::handle::SharedObject;
use crate::space::Vm;
use crate::testing::{self, Plain};
use crate::tunables::Tunables;

fn vm() -> Vm<Plain> {
    testing::vm(256, Tunables::default())
}

/// Looks a page of an object up.
fn look<M: Machine>(object: &SharedObject<'_, M>, section: &super::Section<'_>) -> bool {
    object.vm.object_slot(section.inside(), object.id, 0).page() != crate::source::slot::ObjectPage::Absent
}

#[test]
fn a_section_of_the_space_is_a_token() {
    let vm = vm();
    let space = vm.new_space().unwrap();
    let section = space.section();
    assert!(space.tree_in(section.inside()).lookup(Vpn(1)).is_none());
    assert!(space.mapped(section.inside(), Vpn(1)).is_none());
}

#[test]
fn any_section_of_the_vm_is_a_token_for_objects() {
    let vm = vm();
    let object = vm.new_shared_object(4096).unwrap();
    assert!(!look(&object, &vm.section()));
    object.write(0, &[1]).unwrap();
    assert!(look(&object, &vm.section()));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "a section of another space")]
fn a_section_of_another_space_is_no_token_for_a_tree() {
    let vm = vm();
    let (space, other) = (vm.new_space().unwrap(), vm.new_space().unwrap());
    space.tree_in(other.section().inside()).lookup(Vpn(1));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "a section of another space")]
fn a_section_of_no_space_is_no_token_for_tables() {
    let vm = vm();
    let space = vm.new_space().unwrap();
    space.mapped(vm.section().inside(), Vpn(1));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "the writer lock of another space")]
fn the_lock_of_another_space_is_no_token_for_tables() {
    let vm = vm();
    let (space, other) = (vm.new_space().unwrap(), vm.new_space().unwrap());
    space.mapped(&other.write_lock(), Vpn(1));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "the writer lock of another space")]
fn the_lock_of_another_space_is_no_token_for_a_tree() {
    let vm = vm();
    let (space, other) = (vm.new_space().unwrap(), vm.new_space().unwrap());
    space.tree(&other.write_lock()).lookup(Vpn(1));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "a section of another Vm")]
fn a_section_of_another_vm_is_no_token_for_an_object() {
    let (vm, other) = (vm(), vm());
    let object = vm.new_shared_object(4096).unwrap();
    look(&object, &other.section());
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "a section of another space")]
fn a_lookup_of_another_vm_is_no_token_for_a_founder() {
    let (vm, other) = (vm(), vm());
    vm.assert_lookup(&other.lookup_section());
}
