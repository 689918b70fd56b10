//! A page that changes its size between a look at it and the attempt to take it.

use crate::addr::{BlockId, Order};
use crate::check::Broken;
use crate::frame::summary::Kind;
use crate::testing::{vm, vm_of};
use crate::tunables::Tunables;

/// A CPU that saw a page of 1 GiB there takes no page of 2 MiB that it has become.
#[test]
fn a_page_of_another_size_is_not_taken() {
    let vm = vm(4096, Tunables::default());
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 1), Ok(1));
    let b = (0..8).map(BlockId).find(|b| vm.frames.blocks.at(*b).is_free_in_pool()).unwrap();
    let block = vm.frames.blocks.at(b);
    assert!(!block.take_page(Kind::Pool1G) && block.is_free_in_pool());
    assert!(block.take_page(Kind::Pool2M) && !block.is_free_in_pool());
    assert!(!block.take_page(Kind::Pool2M));
    block.put_page(Kind::Pool2M);
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 0), Ok(0));
}

/// The checker sees a free page that no search finds, and a mark where no page of a pool is.
#[test]
fn a_free_page_that_no_search_finds() {
    // Of several CPUs, so that there is a word above the bits.
    let vm = vm_of(8, 4096, Tunables::default()).unwrap();
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 2), Ok(2));
    let free = |b: &BlockId| vm.frames.blocks.at(*b).is_free_in_pool();
    let b = (0..8).map(BlockId).find(free).unwrap();
    let summary = &vm.frames.blocks.summary;
    let check = || vm.check_in_test(&[], &mut [0; 4096]);
    summary.hide(Kind::Pool2M, b);
    assert_eq!(check(), Err(Broken::Pool(b.first_frame())));
    summary.assure(Kind::Pool2M, b, 0);
    assert_eq!(check(), Ok(()));
    let other = (0..8).map(BlockId).find(|b| vm.frames.blocks.at(*b).pool_order().is_none()).unwrap();
    summary.offer(Kind::Pool2M, other);
    assert!(check().is_err());
    assert!(summary.take(Kind::Pool2M, other));
    assert_eq!(check(), Ok(()));
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 0), Ok(0));
}
