//! The index against frames counted one by one.

use super::{Fragmentation, usable_in};
use crate::addr::{BLOCK_FRAMES, BlockId, Order, Pfn};
use crate::frame::Content;
use crate::machine::Machine;
use crate::space::Vm;
use crate::testing::vm;
use crate::tunables::Tunables;
use std::vec;

/// Every frame looked at, every run tried.
fn counted<M: Machine>(vm: &Vm<M>, order: Order) -> Fragmentation {
    let blocks = &vm.frames.blocks;
    let is_free = |p: u64| {
        let block = blocks.at(BlockId::of(Pfn(p as u32)));
        block.free_word((p % BLOCK_FRAMES / 64) as usize) & 1 << (p % 64) != 0
    };
    let end = blocks.nr() * BLOCK_FRAMES;
    let size = order.nr_pages();
    let runs = (0..end / size).filter(|i| (i * size..(i + 1) * size).all(is_free)).count() as u64;
    Fragmentation { nr_free: (0..end).filter(|p| is_free(*p)).count() as u64, nr_usable: runs * size }
}

#[test]
fn the_index_agrees_with_counting_one_by_one() {
    for (free_of_64, seed) in [(64, 1), (63, 2), (60, 3), (32, 4), (4, 5), (0, 6)] {
        let vm = vm(8192, Tunables::default());
        vm.age(free_of_64, seed);
        let mut last = 0;
        for order in (0..=Order::MAX.0).map(Order) {
            let seen = vm.fragmentation(order);
            assert_eq!(seen, counted(&vm, order), "{order:?} with {free_of_64} of 64 free");
            assert!(seen.unusable_permille() >= last, "larger blocks are not easier to find");
            last = seen.unusable_permille();
        }
    }
}

#[test]
fn an_order_that_is_refused_and_memory_that_is_all_used() {
    let vm = vm(4096, Tunables::default());
    assert_eq!(vm.fragmentation(Order::BASE).unusable_permille(), 0);
    assert!(vm.fragmentation(Order::PMD).unusable_permille() < 500, "most of it is whole blocks");
    for order in [Order(19), Order(64), Order(255)] {
        assert_eq!(vm.fragmentation(order).unusable_permille(), 1000);
    }
    vm.age(0, 1);
    assert_eq!(vm.fragmentation(Order::BASE), Fragmentation { nr_free: 0, nr_usable: 0 });
    assert_eq!(vm.fragmentation(Order::BASE).unusable_permille(), 1000);
}

#[test]
fn one_frame_held_in_each_block_leaves_none_whole() {
    let vm = vm(16 * 512, Tunables::default());
    let before = vm.fragmentation(Order::BASE);
    let nr_whole = vm.fragmentation(Order::PMD).nr_usable / BLOCK_FRAMES;
    assert!(nr_whole > 4);
    assert_eq!(vm.hold_one_in_each_block(0, 1), 0);
    let nr_held = vm.hold_one_in_each_block(100, 1);
    assert!(nr_held >= nr_whole);
    let after = vm.fragmentation(Order::BASE);
    assert_eq!(after.nr_free, before.nr_free - nr_held);
    assert_eq!(vm.fragmentation(Order::PMD).unusable_permille(), 1000);
    assert!(vm.fragmentation(Order(8)).unusable_permille() <= 600, "the other half of each block is whole");
    assert!(vm.obtain_huge().is_err());
    let mut counts = vec![0; vm.nr_frames() as usize];
    assert_eq!(vm.check_in_test(&[], &mut counts), Ok(()), "I12");
}

#[test]
fn half_of_the_blocks_when_asked_for_half() {
    let vm = vm(512 * 512, Tunables::default());
    let nr_whole = vm.fragmentation(Order::PMD).nr_usable / BLOCK_FRAMES;
    vm.hold_one_in_each_block(50, 7);
    let nr_left = vm.fragmentation(Order::PMD).nr_usable / BLOCK_FRAMES;
    assert!((nr_whole * 3 / 10..nr_whole * 7 / 10).contains(&nr_left), "{nr_left} of {nr_whole}");
}

#[test]
fn runs_begin_where_they_are_aligned() {
    let vm = vm(2048, Tunables::default());
    vm.age(0, 1);
    let block = vm.frames.blocks.at(BlockId(3));
    block.release(1, 0b0110_1100_0011, Content::Unknown);
    assert_eq!([0, 1, 2].map(|order| usable_in(&block, order)), [6, 4, 0]);
    block.release(1, 0b1111 << 12, Content::Unknown);
    assert_eq!([0, 1, 2, 3].map(|order| usable_in(&block, order)), [10, 8, 4, 0]);
    for w in 4..8 {
        block.release(w, !0, Content::Unknown);
    }
    assert_eq!([6, 7, 8, 9].map(|order| usable_in(&block, order)), [256, 256, 256, 0]);
}
