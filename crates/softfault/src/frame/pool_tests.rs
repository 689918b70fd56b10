//! A page that changes its size between a look at it and the attempt to take it.

use crate::addr::{BlockId, Order};
use crate::frame::summary::Kind;
use crate::testing::vm;
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
