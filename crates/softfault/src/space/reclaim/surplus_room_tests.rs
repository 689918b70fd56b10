//! The waits of a caller that makes room for surplus pages, and what others see of it meanwhile.

use super::*;
use crate::addr::{Access, Order};
use crate::sync::Ordering;
use crate::testing::{FIXED_PRIVATE, Plain, RW, on_relax, vm};
use crate::tunables::Tunables;
use std::boxed::Box;
use std::cell::Cell;
use std::rc::Rc;

const NR_FRAMES: u64 = 10 << 9;
const AT: u64 = 1 << 30;

fn vm_with_overcommit(nr: u64) -> &'static Vm<Plain> {
    let vm = Box::leak(Box::new(vm(NR_FRAMES, Tunables::default())));
    vm.set_nr_overcommit_hugepages(Order::PMD, nr).unwrap();
    vm
}

/// The pool refused it.
#[derive(PartialEq, Debug)]
struct Refused;

fn reserve_at_once(vm: &Vm<Plain>, nr: u64) -> Result<(), Refused> {
    vm.hugetlb_reserve(PoolId::Of2M, nr).map_err(|_| Refused)
}

fn reserve(vm: &Vm<Plain>, nr: u64) -> Result<(), Refused> {
    vm.with_room_for_surplus(Some(PoolId::Of2M), &|_| nr, Refused, &mut || reserve_at_once(vm, nr))
}

/// No surplus page comes during a freeze. A caller that was refused for that reason waits for its end.
#[test]
fn room_waits_for_the_end_of_a_freeze() {
    let vm = vm_with_overcommit(1);
    vm.frames.freeze.store(1, Ordering::Relaxed);
    let turns = Rc::new(Cell::new(0));
    let counted = Rc::clone(&turns);
    on_relax(move || {
        counted.set(counted.get() + 1);
        if counted.get() == 5 {
            vm.frames.freeze.store(0, Ordering::Relaxed);
        }
    });
    assert_eq!(reserve_at_once(vm, 1), Err(Refused), "memory is free, but frozen");
    assert_eq!(turns.get(), 0);
    assert_eq!(reserve(vm, 1), Ok(()));
    assert!(turns.get() >= 5);
    vm.hugetlb_unreserve(PoolId::Of2M, 1);
    vm.check_in_test(&[], &mut [0; NR_FRAMES as usize]).unwrap();
}

/// While the second block is made, the first one is free to anybody who needs it.
#[test]
fn a_block_is_free_while_the_next_one_is_made() {
    let vm = vm_with_overcommit(2);
    let space = vm.new_space().unwrap();
    let nr = vm.vmstat().nr_free_pages - 300;
    space.mmap(AT, nr * 4096, RW, FIXED_PRIVATE).unwrap();
    (0..nr).for_each(|page| assert!(space.handle_fault(AT + page * 4096, Access::Write).is_ok()));
    (0..nr).filter(|page| page % 8 != 0).for_each(|page| space.munmap(AT + page * 4096, 4096).unwrap());
    assert!(!vm.seems_to_have(Order::PMD, 1));
    let seen = Rc::new(Cell::new(false));
    let told = Rc::clone(&seen);
    on_relax(move || told.set(told.get() || vm.seems_to_have(Order::PMD, 1) && !vm.seems_to_have(Order::PMD, 2)));
    assert_eq!(reserve(vm, 2), Ok(()));
    assert!(seen.get());
    vm.hugetlb_unreserve(PoolId::Of2M, 2);
    vm.check_in_test(&[&space], &mut [0; NR_FRAMES as usize]).unwrap();
}
