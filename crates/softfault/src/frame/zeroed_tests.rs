//! I20: a run and a block that are said to be zero are zero to their last frame.

use super::tests::{is_zero, soil};
use super::want::Content;
use crate::addr::{Order, Pfn};
use crate::space::Vm;
use crate::testing::{Plain, vm};
use crate::tunables::Tunables;
use std::vec::Vec;

const NR_FRAMES: u64 = 4096;

/// All frames of the blocks that are wholly free hold something.
fn soil_free_blocks(vm: &Vm<Plain>) {
    let huge: Vec<_> = vm.frames.blocks.names().iter().filter_map(|b| vm.claim_whole(b)).collect();
    assert!(huge.len() > 2);
    for huge in &huge {
        (0..512).for_each(|i| soil(vm, Pfn(huge.first.0 + i)));
    }
    huge.iter().for_each(|huge| vm.give_back_huge(huge.first, Content::Unknown));
}

#[test]
fn a_run_of_dirty_frames_is_zeroed_wherever_it_lies() {
    for order in [2, 4, 5, 6, 8].map(Order) {
        let vm = vm(NR_FRAMES, Tunables::default());
        soil_free_blocks(&vm);
        for nr in 0..512 >> order.0 {
            let first = vm.obtain_batch(order, 0).unwrap();
            let dirty = (0..order.nr_pages() as u32).find(|i| !is_zero(&vm, Pfn(first.0 + i)));
            assert_eq!(dirty, None, "{order:?}, run {nr}");
        }
    }
}

#[test]
fn a_block_zeroed_ahead_is_zero_to_its_end() {
    let vm = vm(NR_FRAMES, Tunables::default());
    soil_free_blocks(&vm);
    assert_eq!(vm.zero_ahead(2), 2);
    let mut nr_zero = 0;
    for huge in vm.frames.blocks.names().iter().filter_map(|b| vm.claim_whole(b)) {
        if huge.content.is_zero() {
            assert!((0..512).all(|i| is_zero(&vm, Pfn(huge.first.0 + i))), "{huge:?}");
            nr_zero += 1;
        }
    }
    assert_eq!(nr_zero, 2);
}
