//! Moves of pages of pools, and the sections that they wait for.

use crate::addr::{Order, Pfn};
use crate::testing::{be, on_relax, vm_of};
use crate::tunables::Tunables;
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The target's frames of descriptors become others' when no section is left that may have found one. The page is free, so nothing
/// else makes the move wait.
#[test]
fn former_descriptors_of_the_target_outlive_sections() {
    let vm: &'static _ = Box::leak(Box::new(vm_of(2, 4096, Tunables::default()).unwrap()));
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 1), Ok(1));
    let free = (0..8).map(|b| Pfn(b * 512)).find(|first| vm.frames.is_of_pool(*first)).unwrap();
    be(1);
    let section = Rc::new(RefCell::new(Some(vm.section())));
    be(0);
    let nr_turns = Rc::new(Cell::new(0));
    let (open, turns) = (section.clone(), nr_turns.clone());
    on_relax(move || {
        turns.set(turns.get() + 1);
        if turns.get() == 3 {
            be(1);
            open.borrow_mut().take();
            be(0);
        }
    });
    let before = vm.vmstat().nr_free_pages;
    assert!(vm.migrate_frame(free).is_ok());
    assert!(section.borrow().is_none() && nr_turns.get() >= 3, "the move has not waited");
    assert_eq!(vm.vmstat().nr_free_pages, before);
}
