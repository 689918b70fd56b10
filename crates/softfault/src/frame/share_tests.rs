//! CPUs and their blocks: shares, clusters, and what becomes of a block that its CPU has left.

use super::class::Class;
use super::summary::Kind;
use super::want::{Fill, Search};
use crate::addr::{BLOCK_FRAMES, BlockId, OptBlock};
use crate::machine::{CpuId, CpuSet};
use crate::space::Vm;
use crate::testing::{Plain, be, vm_of};
use crate::tunables::Tunables;
use std::vec::Vec;

const NR_BLOCKS: u32 = 8;

fn vm(nr_cpus: usize) -> Vm<Plain> {
    vm_of(nr_cpus, u64::from(NR_BLOCKS) * 512, Tunables::default()).unwrap()
}

/// Takes a frame on that CPU; the block that the CPU has afterwards.
fn begin(vm: &Vm<Plain>, id: u16) -> BlockId {
    be(id);
    vm.refill(Fill::Raw, Search::Blocks).unwrap();
    own(vm, id).unwrap()
}

fn own(vm: &Vm<Plain>, id: u16) -> Option<BlockId> {
    OptBlock::from_word(vm.cpu(CpuId(id)).block.get()).get()
}

#[test]
fn home_ranges_are_equal_though_the_metadata_lie_in_one() {
    let vm = vm(2);
    let home_ranges: Vec<u32> = (0..2)
        .map(|id| vm.cpu(CpuId(id)).home_range())
        .map(|home_range| home_range.end.0 - home_range.start.0)
        .collect();
    assert_eq!(home_ranges, [4, 4]);
}

#[test]
fn neighbours_share_a_block_where_there_are_fewer_than_four_for_each() {
    let vm = vm(4);
    assert_eq!(vm.frames.nr_cluster, 2);
    let blocks: Vec<BlockId> = (0..4).map(|id| begin(&vm, id)).collect();
    assert!(blocks[0] == blocks[1] && blocks[2] == blocks[3] && blocks[0] != blocks[2], "{blocks:?}");
    let alone = self::vm(2);
    assert_ne!(begin(&alone, 0), begin(&alone, 1));
}

#[test]
fn who_lost_a_block_takes_no_more_frames_from_it() {
    let vm = vm(1);
    let before = begin(&vm, 0);
    let block = vm.frames.blocks.at(before);
    block.unreserve(1);
    assert!(block.reserve(9));
    assert_ne!(begin(&vm, 0), before);
    assert_eq!(block.owner(), 9, "the reservation of another");
    block.unreserve(9);
    // Nobody has taken this one.
    let now = own(&vm, 0).unwrap();
    vm.frames.blocks.at(now).unreserve(1);
    assert_eq!((begin(&vm, 0), vm.frames.blocks.at(now).owner()), (now, 1));
}

#[test]
fn compaction_may_have_the_block_of_an_idle_cpu() {
    let vm = vm(2);
    let b = begin(&vm, 1);
    be(0);
    assert!(vm.claim_rest(b, vm.hold()).is_none(), "it has frames of it");
    let mut robbed = CpuSet::EMPTY;
    robbed.insert(CpuId(1));
    vm.end_reservations(&robbed);
    assert!(vm.claim_rest(b, vm.hold()).is_none(), "it still has");
    vm.steal_caches();
    assert!(vm.claim_rest(b, vm.hold()).is_some());
    // It was given back, and the CPU goes on.
    assert_eq!(begin(&vm, 1), b);
}

/// Clusters are CPUs 0 and 1, 2 and 3.
#[test]
fn a_block_stays_with_the_cluster_while_one_of_it_has_frames() {
    let vm = vm(4);
    let blocks = [1, 3].map(|id| begin(&vm, id));
    be(2);
    assert_eq!((vm.frames.nr_cluster, begin(&vm, 2)), (2, blocks[1]));
    be(0);
    vm.cpu(CpuId(1)).raw.replace(0, 0);
    vm.cpu(CpuId(2)).raw.replace(0, 0);
    vm.end_reservations(&CpuSet::first(4));
    assert_eq!(blocks.map(|b| vm.frames.blocks.at(b).owner()), [0, 3], "CPU 3 still has some");
}

/// 512 CPUs of 32 MiB are four clusters.
#[test]
fn a_thief_asks_each_cpu_of_a_cluster_once() {
    let vm = vm_of(512, 16 * BLOCK_FRAMES, Tunables::default()).unwrap();
    assert_eq!(vm.frames.nr_cluster, 128);
    // One turn for 96 steps.
    let nr_turns = |nr_robbed| {
        let before = vm.machine.nr_relaxed.get();
        vm.end_reservations(&CpuSet::first(nr_robbed));
        vm.machine.nr_relaxed.get() - before
    };
    assert!((5..=6).contains(&nr_turns(512)), "no others have frames");
    (0..512).for_each(|id| vm.frames.mark(CpuId(id)));
    assert!((10..=11).contains(&nr_turns(512)), "{}", nr_turns(512));
    assert!(nr_turns(16) <= 2, "those of one cluster");
}

#[test]
fn where_all_blocks_are_begun_one_is_given_up_for_what_stays() {
    let vm = vm(1);
    let b = begin(&vm, 0);
    let others = (0..NR_BLOCKS).map(BlockId).filter(|other| *other != b);
    others.for_each(|other| assert!(vm.frames.blocks.at(other).reserve(9)));
    vm.refill(Fill::Fixed, Search::Blocks).unwrap();
    let block = vm.frames.blocks.at(b);
    assert_eq!((block.class(), block.owner(), own(&vm, 0)), (Class::Fixed, 0, None));
    // The next ones come from there, on any CPU.
    vm.cpu(CpuId(0)).fixed_block.set(0);
    vm.refill(Fill::Fixed, Search::Blocks).unwrap();
    assert_eq!(OptBlock::from_word(vm.cpu(CpuId(0)).fixed_block.get()).get(), Some(b));
}

/// 128 CPUs of 256 MiB have four neighbourhoods.
#[test]
fn what_stays_comes_from_the_block_of_a_neighbour() {
    let vm = vm(4);
    let fixed = |id| {
        be(id);
        vm.refill(Fill::Fixed, Search::Blocks).unwrap();
        OptBlock::from_word(vm.cpu(CpuId(id)).fixed_block.get()).get()
    };
    let first = fixed(3);
    assert_eq!([fixed(2), fixed(1), fixed(0)], [first; 3]);
}

/// A CPU begins its next block for what stays before the last frames of the one that it has
/// are used, so that the trees do not hear that there is none.
#[test]
fn there_is_always_a_block_for_tables_with_some_frames_left() {
    let vm = vm_of(1, 8 * BLOCK_FRAMES, Tunables::default()).unwrap();
    let summary = &vm.frames.blocks.summary;
    for nr in 0..4 * BLOCK_FRAMES {
        vm.obtain(Fill::Fixed).unwrap();
        assert!(summary.has(Kind::Fixed), "after {nr}");
    }
    // Hardly more blocks than it takes.
    let nr_fixed = vm.frames.blocks.iter().filter(|block| block.class() == Class::Fixed).count();
    assert!(nr_fixed <= 5, "{nr_fixed}");
}

/// It is begun only when there are no others: eight frames are worth less.
#[test]
fn the_last_whole_block_is_not_begun_for_a_few_frames() {
    let vm = vm(1);
    vm.obtain(Fill::Fixed).unwrap();
    let own = OptBlock::from_word(vm.cpu(CpuId(0)).fixed_block.get()).get().unwrap();
    vm.steal_caches();
    let blocks = &vm.frames.blocks;
    let last = blocks.names().iter().find(|b| *b != own && blocks.at(*b).nr_free() == BLOCK_FRAMES).unwrap();
    for b in blocks.names().iter().filter(|b| *b != last) {
        let most = if b == own { 63 } else { 64 };
        (0..8).for_each(|w| _ = blocks.at(b).claim_some(w, most));
    }
    let nr_left = blocks.at(own).nr_free();
    assert!((1..=8).contains(&nr_left));
    (0..nr_left).for_each(|_| _ = vm.obtain(Fill::Fixed).unwrap());
    assert_eq!((blocks.at(own).nr_free(), blocks.at(last).nr_free()), (0, BLOCK_FRAMES));
    vm.obtain(Fill::Fixed).unwrap();
    assert!(blocks.at(last).nr_free() < BLOCK_FRAMES);
}

/// Each block has a few free frames, and nothing stays in any.
#[test]
fn what_stays_is_marked_wherever_it_lies() {
    let vm = vm(1);
    let blocks = &vm.frames.blocks;
    for b in blocks.names().iter() {
        let nr_kept = if blocks.at(b).class() == Class::Fixed { 0 } else { 8 };
        (0..8).for_each(|w| _ = blocks.at(b).claim_some(w, if w == 0 { 64 - nr_kept } else { 64 }));
    }
    let mut nr = 0;
    while let Ok(pfn) = vm.obtain(Fill::Fixed) {
        assert_eq!(blocks.at(BlockId::of(pfn)).class(), Class::Fixed, "frame {nr}");
        nr += 1;
    }
    assert!(nr >= 8 * (NR_BLOCKS - 2), "{nr}");
}

/// The same where each of them is somebody's.
#[test]
fn what_stays_is_marked_in_blocks_of_others() {
    let vm = vm(2);
    let blocks = &vm.frames.blocks;
    for b in blocks.names().iter() {
        (0..8).for_each(|w| _ = blocks.at(b).claim_some(w, if w == 0 { 56 } else { 64 }));
        let _ = blocks.at(b).reserve(2);
    }
    be(0);
    let pfn = vm.obtain(Fill::Fixed).unwrap();
    assert_eq!(blocks.at(BlockId::of(pfn)).class(), Class::Fixed);
}

/// Though the CPU has one for its pages, with as few.
#[test]
fn tables_go_to_blocks_of_nobody() {
    let vm = vm(1);
    let own = begin(&vm, 0);
    vm.steal_caches();
    let blocks = &vm.frames.blocks;
    for b in blocks.names().iter() {
        let nr_kept = if blocks.at(b).class() == Class::Fixed { 0 } else { 8 };
        (0..8).for_each(|w| _ = blocks.at(b).claim_some(w, if w == 0 { 64 - nr_kept } else { 64 }));
    }
    assert!(blocks.at(own).reserve(1) || blocks.at(own).owner() == 1);
    let pfn = vm.obtain(Fill::Fixed).unwrap();
    assert_ne!(BlockId::of(pfn), own);
}

/// A CPU keeps no more frames for tables than it has used, and begins anew when they are taken from it.
#[test]
fn refills_for_tables_grow_with_what_a_cpu_uses() {
    let vm = vm_of(1, 16 * BLOCK_FRAMES, Tunables::default()).unwrap();
    let cpu = vm.cpu(CpuId(0));
    // How many a refill took, of those of its word, and how many the next one may take.
    let refill = || {
        vm.refill(Fill::Fixed, Search::Blocks).unwrap();
        (cpu.fixed.mask.get().count_ones(), cpu.tables_at_once(64))
    };
    vm.steal_caches();
    assert_eq!([(); 3].map(|()| refill()), [(8, 16), (16, 32), (32, 64)]);
    assert!((0..20).all(|_| refill().1 == 64));
    vm.steal_caches();
    assert_eq!(refill(), (8, 16));
}
