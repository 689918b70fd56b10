//! Moves of pages of pools: the sections that they wait for, and a page that is another's after the look.

use crate::addr::{BlockId, Order, Pfn};
use crate::compact::MigrateRefusal;
use crate::policy::folio::FolioOrders;
use crate::space::Vm;
use crate::testing::{Plain, be, on_enter, on_relax, vm_of};
use crate::tunables::Tunables;
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::vec::Vec;

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

/// The page leaves its pool after so many sections, and a folio of another object comes to its frames: the pool does not get that.
fn leaves_after(nr_sections: u64) -> bool {
    let vm: &'static Vm<Plain> = Box::leak(Box::new(vm_of(2, 4096, Tunables::default()).unwrap()));
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 1), Ok(1));
    let from = (0..8).map(|b| Pfn(b * 512)).find(|first| vm.frames.is_of_pool(*first)).unwrap();
    let file = Box::leak(Box::new(vm.new_hugetlb_object(512 * 4096, Order::PMD).unwrap()));
    file.write(0, &[7]).unwrap();
    let new = || vm.new_shared_object_of(512 * 4096, FolioOrders::only(Order::PMD)).unwrap();
    let other: &'static _ = Box::leak(Box::new(new()));
    // One block is left, for the target.
    let nr_whole = (0..8).map(BlockId).filter(|b| vm.frames.blocks.at(*b).nr_free() == 512).count();
    let ballast: Vec<_> = (1..nr_whole).map(|_| new()).collect();
    ballast.iter().for_each(|object| object.write(0, &[1]).unwrap());
    let (turn, has_left) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let (at, leaves) = (turn.clone(), has_left.clone());
    on_enter(move || {
        at.set(at.get() + 1);
        if at.get() == nr_sections + 1 {
            be(1);
            file.discard(0..512);
            vm.set_nr_hugepages(Order::PMD, 0).unwrap();
            _ = other.write(0, &[9]);
            leaves.set(!vm.frames.is_of_pool(from) && vm.frames.desc(from).state().order() == Order::PMD);
            be(0);
        }
    });
    let moved = vm.migrate_frame(from);
    on_enter(|| ());
    if has_left.get() {
        let refusals = [MigrateRefusal::Raced, MigrateRefusal::NotInUse];
        assert!(moved.is_ok_and(|to| !vm.frames.is_of_pool(to)) || moved.is_err_and(|why| refusals.contains(&why)));
        assert_eq!(vm.hugetlb_counts(Order::PMD).map(|counts| (counts.nr, counts.free)), Ok((0, 0)));
        vm.check_in_test(&[], &mut std::vec![0; 4096]).unwrap();
    }
    has_left.get()
}

#[test]
fn a_page_that_is_of_no_pool_any_more() {
    // Later the page is marked, and a CPU that takes it out waits for the move.
    assert!((0..3).any(leaves_after));
}

/// For others such a frame is neither free nor gone: it may come back.
#[test]
fn an_isolated_frame_is_not_in_use() {
    let vm = vm_of(1, 2 << 15, Tunables::default()).unwrap();
    let range = crate::machine::FrameRange { first: Pfn(1 << 15), nr_frames: 1 << 15 };
    let emptied = vm.begin_to_empty(range).map_err(|_| ()).unwrap();
    let pfn = Pfn((1 << 15) + 77);
    assert_eq!((emptied.isolate(pfn), vm.is_isolated(pfn), vm.is_isolated(Pfn(3))), (true, true, false));
    assert_eq!(vm.migrate_frame(pfn), Err(MigrateRefusal::NotInUse));
    assert_eq!(vm.soft_offline_frame(pfn), Err(MigrateRefusal::NotInUse));
    let nr_free = vm.vmstat().nr_free_pages;
    drop(emptied);
    assert_eq!((vm.vmstat().nr_free_pages, vm.is_isolated(pfn)), (nr_free + (1 << 15), false));
    assert_eq!(vm.soft_offline_frame(pfn), Ok(()));
    vm.check_in_test(&[], &mut std::vec![0; 2 << 15]).unwrap();
}

/// An allocation is about to be refused while memory is emptied: that ends, and gives the memory back.
#[test]
fn emptying_ends_for_an_allocation() {
    let vm: &'static Vm<Plain> = Box::leak(Box::new(vm_of(2, 2 << 15, Tunables::default()).unwrap()));
    // There is one in the range.
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 100), Ok(100));
    let range = crate::machine::FrameRange { first: Pfn(1 << 15), nr_frames: 1 << 15 };
    let nr_free = vm.vmstat().nr_free_pages;
    let turn = vm.last_resort();
    let refused = vm.offline_memory(range);
    assert_eq!(refused.map_err(|why| why.event()), Err(crate::frame::RemoveMemoryRefusal::LastResort.event()));
    drop(turn);
    assert_eq!(vm.vmstat().nr_free_pages, nr_free);
}
