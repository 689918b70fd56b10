//! Unsuccessful looks are bounded, and are noted, so that the next search looks elsewhere.

use super::block::Block;
use super::offers::LOST;
use super::summary::Kind;
use super::want::{Content, Fill, Search};
use super::{BLOCK_WORDS, Frames};
use crate::addr::{Access, BLOCK_FRAMES, BlockId, OptBlock, Order};
use crate::machine::CpuId;
use crate::policy::huge::{Enabled, SizeEnabled};
use crate::space::Vm;
use crate::testing::{FIXED_PRIVATE, Plain, RW, be, vm, vm_of};
use crate::tunables::Tunables;
use crate::tunables::huge::HugeKnobs;
use std::vec::Vec;

/// Blocks that one search for a run looks at, as `batch.rs` says.
const BLOCKS_PER_LOOK: usize = 4;
const NR_BLOCKS: u32 = 100;

fn blocks(frames: &Frames) -> impl Iterator<Item = Block<'_>> {
    frames.blocks.names().iter().map(|b| frames.blocks.at(b))
}

/// A frame of each 16 is in use, which nobody has noticed yet.
fn fragmented() -> Vm<Plain> {
    let vm = vm(u64::from(NR_BLOCKS) * BLOCK_FRAMES, Tunables::default());
    for block in blocks(&vm.frames) {
        (0..BLOCK_WORDS).for_each(|w| _ = block.claim_exact(w, 0x0001_0001_0001_0001 & block.free_word(w)));
    }
    vm
}

fn nr_lost(vm: &Vm<Plain>) -> usize {
    blocks(&vm.frames).filter(|block| block.state.get() & LOST != 0).count()
}

#[test]
fn a_search_for_a_run_looks_at_four_blocks_and_the_next_one_at_others() {
    let vm = fragmented();
    let summary = &vm.frames.blocks.summary;
    let nr_named = vm.frames.blocks.names().iter().filter(|b| summary.says(Kind::Run4, *b)).count();
    assert!(nr_named >= 90);
    for nr_searches in 1..=nr_named.div_ceil(BLOCKS_PER_LOOK) {
        assert!(vm.obtain_batch(Order(4), 0).is_err());
        assert_eq!(nr_lost(&vm), (nr_searches * BLOCKS_PER_LOOK).min(nr_named), "search {nr_searches}");
    }
    assert!(!summary.has(Kind::Run4), "the next search asks one word");
    assert!(blocks(&vm.frames).all(|block| block.owner() == 0), "a block that was looked at in vain is kept");
    // The next size is still there.
    assert!(vm.obtain_batch(Order(3), 0).is_ok());
    assert!(blocks(&vm.frames).all(|block| block.is_told()), "I40");
}

/// Blocks that are reserved are named for nothing.
#[test]
fn a_cpu_asks_its_own_block_as_well() {
    let vm = fragmented();
    let own = vm.frames.blocks.at(BlockId(60));
    own.release_words(0..BLOCK_WORDS, 0x0001_0001_0001_0001, Content::Zero);
    for b in vm.frames.blocks.names().iter().filter(|b| b.0 != 60) {
        vm.frames.blocks.at(b).lose_runs();
    }
    let run = Order(4);
    assert!(vm.may_have_run(run));
    vm.claim_batch(run).unwrap();
    assert!(!vm.frames.blocks.summary.has(Kind::Run4) && vm.may_have_run(run));
    vm.claim_batch(run).unwrap();
    // Compaction may have it.
    own.unreserve(own.owner());
    assert!(own.reserve(0xffff) && !vm.may_have_run(run), "each fault asks for it in vain");
    own.unreserve(0xffff);
    assert!(vm.may_have_run(run));
    vm.claim_batch(run).unwrap();
    // The rest is spoilt, and nobody has noticed.
    (0..BLOCK_WORDS).for_each(|w| _ = own.claim_exact(w, 0x0001_0001_0001_0001 & own.free_word(w)));
    assert!(vm.may_have_run(run));
    assert_eq!(vm.claim_batch(run), None);
    assert!(!vm.may_have_run(run), "each fault looks at it again");
    assert!(vm.may_have_run(Order(3)) && vm.claim_batch(Order(3)).is_some());
}

/// A turn more would count the fault as a holder.
#[test]
fn a_size_that_nobody_has_costs_no_turn() {
    const AT: u64 = 1 << 30;
    let vm = fragmented();
    let mut knobs = HugeKnobs::DEFAULT.with_enabled(Enabled::Always);
    knobs.sizes.fill(SizeEnabled::Never);
    knobs.sizes[2] = SizeEnabled::Always;
    vm.set_huge_knobs(&knobs).unwrap();
    blocks(&vm.frames).for_each(|block| block.lose_runs());
    let space = vm.new_space().unwrap();
    space.mmap(AT, 1 << 21, RW, FIXED_PRIVATE).unwrap();
    let touch = |i: u64| {
        let before = vm.cpu(CpuId(0)).held.get();
        space.handle_fault(AT + i * (1 << 16), Access::Write).unwrap();
        vm.cpu(CpuId(0)).held.get() != before
    };
    assert!(touch(0), "it needs a table");
    assert!((1..32).all(|i| !touch(i)), "a turn for a run that nobody has");
    assert_eq!(vm.huge_stat(Order(4)).unwrap().anon_fault_fallback, 32);
}

#[test]
fn a_search_for_a_small_huge_page_looks_at_64_blocks() {
    let vm = fragmented();
    let is_named = |block: &Block<'_>| block.nr_free_exact() >= 16;
    assert!(blocks(&vm.frames).filter(is_named).count() > 64);
    assert_eq!(vm.claim_huge(16), None);
    assert_eq!(nr_lost(&vm), 64);
    assert_eq!(vm.claim_huge(16), None);
    assert!(nr_lost(&vm) > 64, "it looks at the same blocks again");
}

#[test]
fn a_run_that_was_lost_is_named_again_when_it_is_back() {
    let vm = fragmented();
    let block = vm.frames.blocks.at(BlockId(50));
    block.lose_runs();
    let is_named = |kind: Kind| vm.frames.blocks.summary.says(kind, BlockId(50));
    assert_eq!([Kind::Run3, Kind::Run4, Kind::Run5].map(is_named), [true, false, false]);
    block.release(3, 1 << 16, Content::Zero);
    assert_eq!([Kind::Run3, Kind::Run4, Kind::Run5].map(is_named), [true, true, false]);
    block.release(3, 1, Content::Zero);
    assert_eq!([Kind::Run4, Kind::Run5].map(is_named), [true, true]);
    assert!(block.is_told());
}

/// A CPU that goes on to another block leaves the last one to others.
#[test]
fn the_block_that_is_left_is_reserved_no_more() {
    let vm = vm(u64::from(NR_BLOCKS) * BLOCK_FRAMES, Tunables::default());
    let own = || OptBlock::from_word(vm.cpu(CpuId(0)).batch_block.get()).get();
    vm.obtain_batch(Order(4), 0).unwrap();
    let first = own().unwrap();
    assert_eq!(vm.frames.blocks.at(first).owner(), 1);
    while own() == Some(first) {
        vm.obtain_batch(Order(4), 0).unwrap();
    }
    assert_eq!(vm.frames.blocks.at(first).owner(), 0, "nobody gets what comes back there");
    assert_eq!(vm.frames.blocks.at(own().unwrap()).owner(), 1);
}

/// The count of a block is raised before its bits are cleared: he who gives back is not waited
/// for.
#[test]
fn counts_without_frames_end_a_search() {
    let vm = vm(20 * BLOCK_FRAMES, Tunables::default());
    while vm.obtain(Fill::Raw).is_ok() {}
    vm.steal_caches();
    let summary = &vm.frames.blocks.summary;
    for b in vm.frames.blocks.names().iter().skip(8) {
        let block = vm.frames.blocks.at(b);
        block.state.set(block.state.get() - 64);
        [Kind::Room, Kind::Any].into_iter().for_each(|kind| summary.offer(kind, b));
    }
    assert!(vm.refill(Fill::Raw, Search::Blocks).is_err());
    let owned = blocks(&vm.frames).filter(|block| block.owner() != 0).count();
    assert!(owned <= 1, "{owned} blocks are kept");
}

/// The block had something when it was named, and has nothing any more.
#[test]
fn a_block_that_is_named_in_vain_is_named_no_more() {
    let vm = vm(20 * BLOCK_FRAMES, Tunables::default());
    while vm.obtain(Fill::Raw).is_ok() {}
    let all = &vm.frames.blocks;
    for kind in [Kind::Any, Kind::Room, Kind::Spare, Kind::Whole, Kind::Run4] {
        [3, 7, 12].into_iter().for_each(|b| all.summary.offer(kind, BlockId(b)));
        assert_eq!(all.offering(kind, all.names(), BlockId(5)).next(), None);
        assert!(!all.summary.has(kind), "{kind:?}: each search looks at the block again");
        [3, 7, 12].into_iter().for_each(|b| all.summary.offer(kind, BlockId(b)));
        assert_eq!(all.offering_last(kind, all.names()).next(), None);
        assert!(!all.summary.has(kind), "{kind:?}: each search from the end looks at it again");
    }
}

/// I28: an allocation that refuses asks marked CPUs alone.
#[test]
fn caches_get_no_frame_without_a_mark() {
    let vm = vm_of(2, 8 * BLOCK_FRAMES, Tunables::default()).unwrap();
    let is_seen = || vm.frames.is_marked(CpuId(0)) || vm.cpu(CpuId(0)).nr_in_caches() == 0;
    let robbed = || {
        be(1);
        let turn = vm.last_resort();
        let _ = turn.holders();
        vm.steal_in_last_resort();
        be(0);
        assert!(!vm.frames.is_marked(CpuId(0)));
    };
    let frames: Vec<_> = (0..2 * BLOCK_FRAMES).map(|_| vm.obtain(Fill::Zeroed).unwrap()).collect();
    for pfn in frames.into_iter().step_by(16) {
        robbed();
        // An emptied frame cache is that of the first word of memory.
        vm.cpu(CpuId(0)).zeroed.base.set(u64::from(pfn.0) & !63);
        vm.give_back(pfn, Fill::Zeroed);
        assert!(is_seen(), "{pfn:?} went into a frame cache");
    }
    robbed();
    vm.refill(Fill::Zeroed, Search::Blocks).unwrap();
    assert!(vm.cpu(CpuId(0)).nr_in_caches() > 0 && is_seen(), "frames of a refill");
}

/// I40: a claim of several words that fails leaves the block as it was, and what others may have
/// noted meanwhile is looked at again.
#[test]
fn a_claim_of_words_is_all_or_nothing() {
    let vm = vm(4 * BLOCK_FRAMES, Tunables::default());
    let block = vm.frames.blocks.at(BlockId(2));
    block.claim_exact(5, 1 << 7).unwrap();
    for words in [0..8, 4..6, 5..6, 2..8] {
        assert!(!block.claim_words(words.clone(), !0), "{words:?}");
        assert_eq!((block.nr_free(), block.nr_free_exact()), (511, 511), "{words:?}");
        assert!(block.is_told());
    }
    assert!(block.claim_words(0..5, !0));
    assert_eq!((block.nr_free(), block.nr_free_exact()), (511 - 320, 511 - 320));
    // All words are dirty, or all are clean.
    block.release_words(0..5, !0, Content::Unknown);
    assert_eq!(block.dirty.each_ref().map(|w| w.get()), [!0, !0, !0, !0, !0, 0, 0, 0]);
    assert!(block.claim_words(0..4, !0));
    block.release_words(0..4, !0, Content::Zero);
    assert_eq!(block.dirty.each_ref().map(|w| w.get()), [0, 0, 0, 0, !0, 0, 0, 0]);
    assert_eq!((block.nr_free(), block.nr_free_exact()), (511, 511));
    assert!(block.is_told());
}

/// CPUs in turn take runs of 16 KiB to 1 MiB by chance, 73 frames on average; returns the CPUs that have taken
/// from which block.
fn takers(nr_cpus: usize, nr_blocks: u64, nr_each: u64) -> Vec<Vec<u16>> {
    let vm = vm_of(nr_cpus, nr_blocks * BLOCK_FRAMES, Tunables::default()).unwrap();
    let mut takers: Vec<Vec<u16>> = (0..nr_blocks).map(|_| Vec::new()).collect();
    let mut seed = 3u64;
    for _ in 0..nr_each {
        for cpu in 0..nr_cpus as u16 {
            be(cpu);
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let Some(first) = vm.claim_batch(Order(2 + (seed >> 33) as u8 % 7)) else { continue };
            let of = &mut takers[BlockId::of(first).0 as usize];
            if !of.contains(&cpu) {
                of.push(cpu);
            }
        }
    }
    be(0);
    takers
}

#[test]
fn cpus_take_sizes_between_from_blocks_of_their_own() {
    for nr_cpus in [4, 64, 512] {
        let nr_blocks = nr_cpus as u64 * 8;
        // A CPU takes 4 of the 8 blocks that are its own.
        let in_half = takers(nr_cpus, nr_blocks, 25);
        assert!(in_half.iter().filter(|of| !of.is_empty()).count() > 3 * nr_cpus);
        assert_eq!(in_half.iter().filter(|of| of.len() > 1).count(), 0, "{nr_cpus} CPUs");
        // At last 9 of 10 frames of all memory are taken.
        let in_most = takers(nr_cpus, nr_blocks, 50);
        assert_eq!(in_most.iter().filter(|of| of.len() > 3).count(), 0, "{nr_cpus} CPUs");
    }
}
