//! Folios of the least size whose words somebody is still at work on.

use super::*;
use crate::addr::Access;
use crate::linux::MapFlags;
use crate::policy::folio::FolioOrders;
use crate::source::object_slot::ObjectSlot;
use crate::source::slot::ObjectPage;
use crate::space::Vm;
use crate::space::ops::ObjectPart;
use crate::testing::{Plain, RW, be, on_enter, on_relax, vm_of};
use crate::tunables::Tunables;
use std::boxed::Box;
use std::cell::Cell;
use std::rc::Rc;

const PAGE: u64 = 4096;
const AT: u64 = 0x10_0000_0000;
/// Turns of a wait after which the remover goes on.
const MANY: u64 = 1000;

/// Calls `f` with the word of a page that has a node.
fn at(vm: &Vm<Plain>, id: ObjectId, index: u64, f: impl FnOnce(PageSlot<'_>)) {
    let section = vm.section();
    let ObjectSlot::Page(slot) = vm.object_slot(section.inside(), id, index) else { panic!("no node") };
    f(slot);
}

/// The remover was stopped when it had emptied a word, first or not. A CPU that wants the page answers
/// while it waits, and takes no frame before there is a place for it.
#[test]
fn who_wants_a_page_waits_for_the_rest_of_its_folio() {
    for (is_fault, emptied) in [(true, 8), (true, 13), (false, 8), (false, 13)] {
        let vm: &'static Vm<Plain> = Box::leak(Box::new(vm_of(2, 8192, Tunables::default()).unwrap()));
        let space = vm.new_space().unwrap();
        let orders = FolioOrders::new(Order(3), Order(3)).unwrap();
        let object = vm.new_shared_object_of(512 * PAGE, orders).unwrap();
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        space.mmap_object(AT, 512 * PAGE, RW, flags, ObjectPart::new(&object)).unwrap();
        space.handle_fault(AT, Access::Write).unwrap();
        object.write(8 * PAGE, &[1]).unwrap();
        let id = object.id;
        at(vm, id, 8, |slot| {
            let ObjectPage::Frame(frame) = slot.page() else { panic!("{:?}", slot.page()) };
            assert!(slot.begin_to_leave(frame));
        });
        at(vm, id, emptied, |slot| slot.empty_all(Order::BASE));
        let holds = move || vm.cpus.iter().fold(0, |sum: u64, cpu| sum.wrapping_add(cpu.held.get()));
        let before = holds();
        let nr_turns = Rc::new(Cell::new(0));
        let (entered, waited) = (nr_turns.clone(), Cell::new(0));
        on_enter(move || {
            entered.set(entered.get() + 1);
            assert!(entered.get() < 10 * MANY, "a wait that answers nobody");
        });
        on_relax(move || {
            waited.set(waited.get() + 1);
            assert_eq!(holds(), before, "I28: frames are taken for a page that somebody is about to take out");
            if waited.get() == MANY {
                be(1);
                at(vm, id, 8, |slot| slot.empty_all(Order(3)));
                be(0);
            }
        });
        if is_fault {
            space.handle_fault(AT + emptied * PAGE, Access::Write).unwrap();
        } else {
            object.write(emptied * PAGE, &[1]).unwrap();
        }
        on_enter(|| ());
        on_relax(|| ());
        assert!(nr_turns.get() > MANY);
        assert_eq!(object.nr_resident_pages(), 16);
    }
}
