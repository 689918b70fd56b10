//! The search for frames of a refill: which blocks it tries, and in which order.
//!
//! Frames for anything but private pages come from blocks of their class (`stays`).
//!
//! The order of the search: the CPU's reserved block, an unreserved home block with some free
//! frames, any unreserved block with some, any unreserved block, any block. A refill is refused
//! only after the frame caches of other CPUs were emptied, too.
//!
//! A search may try several blocks without success, so it answers other CPUs meanwhile. After an answer the
//! caller may run on another CPU. So home blocks are kept as values, and a block is reserved for
//! the current CPU.
//!
//! Locks on entry: none, no section. The caller is counted as a holder.

use super::Frames;
use super::Memory;
use super::blocks::word_base;
use super::class::Class;
use super::runs::BLOCK_WORDS;
use super::summary::Kind;
use super::want::Fill;
use crate::addr::{BlockId, BlockRange, OptBlock};
use crate::cpu::CpuData;
use crate::machine::Machine;
use crate::pace::Pace;
use crate::sync::Ordering;

/// Blocks that a CPU reserves without success in one search before it takes frames from any block.
const MOST_BLOCKS: usize = 4;

/// Up to 64 frames that were just claimed.
pub(super) struct Claim {
    pub(super) base: u64,
    pub(super) mask: u64,
    pub(super) zero: u64,
}

impl<M: Machine> Memory<M> {
    #[inline(always)]
    pub(super) fn this_cpu_data(&self) -> &CpuData {
        self.cpu(self.machine.this_cpu())
    }

    /// The home blocks of this CPU.
    pub(super) fn home_range(&self) -> BlockRange {
        let cpu = self.this_cpu_data();
        cpu.home_range()
    }

    /// Claims up to `most` frames of one bitmap word of any block.
    #[inline(never)]
    pub(super) fn search(&self, fill: Fill, most: u64) -> Option<Claim> {
        let frames = &self.frames;
        let mut pace = Pace::new(&self.machine);
        if fill.class() != Class::Movable {
            let near = self.claim_marked(fill.class(), most, &mut pace);
            // In any block, which the claim marks with the class.
            let anywhere = |b| {
                pace.step();
                frames.claim_marked_in(b, most, fill.class())
            };
            return near.or_else(|| self.any_block().find_map(anywhere));
        }
        // If a block's count exceeds its clear bits, another CPU is freeing frames there. The
        // search does not wait for it.
        for _ in 0..MOST_BLOCKS {
            let cpu = self.this_cpu_data();
            if let Some(claim) = frames.claim_own(cpu, most) {
                return Some(claim);
            }
            if let Some(b) = OptBlock::from_word(cpu.block.get()).get() {
                frames.blocks.at(b).unreserve(cpu.locality.tag());
                cpu.block.set(0);
            }
            if !self.reserve_next(&mut pace) {
                break;
            }
        }
        self.any_block().find_map(|b| {
            pace.step();
            frames.claim_in(b, 0, most).map(|(_, claim)| claim)
        })
    }

    fn any_block(&self) -> impl Iterator<Item = BlockId> {
        let blocks = &self.frames.blocks;
        blocks.offering(Kind::Any, blocks.names(), self.home_range().start)
    }

    /// Reserves a block for the CPU. Home blocks come first, unless few frames are free there: frames
    /// that this CPU freed have their descriptors in its cache. Where there are too few blocks for
    /// all CPUs, it uses its cluster's block.
    fn reserve_next(&self, pace: &mut Pace<'_, M>) -> bool {
        if self.frames.nr_cluster > 1 && self.join_cluster() {
            return true;
        }
        let (home_range, all) = (self.home_range(), self.frames.blocks.names());
        let search = self.this_cpu_data().search_from();
        [(home_range, Kind::Room), (all, Kind::Room), (home_range, Kind::Spare), (all, Kind::Spare)]
            .into_iter()
            .chain(Class::Movable.lenders().map(|kind| (all, kind)))
            .flat_map(|(some, kind)| self.frames.blocks.offering(kind, some, search))
            .any(|b| {
                pace.step();
                self.reserve_here(b)
            })
    }

    /// Uses the block that the cluster has reserved, if it has free frames left; returns whether it
    /// has.
    fn join_cluster(&self) -> bool {
        let cpu = self.this_cpu_data();
        let first = self.cpu(cpu.locality.first_of_cluster());
        let Some(b) = OptBlock::from_word(first.cluster_block.load(Ordering::Relaxed)).get() else { return false };
        let block = self.frames.blocks.at(b);
        let is_ours = cpu.block.get() == 0 && block.owner() == cpu.locality.tag() && block.nr_free() > 0;
        if is_ours {
            cpu.block.set(OptBlock::some(b).to_word());
            cpu.word.set(0);
        }
        is_ours
    }

    /// Reserves block `b` for the current CPU, unless that has a block: then the caller has changed
    /// CPUs during an answer.
    pub(super) fn reserve_here(&self, b: BlockId) -> bool {
        let id = self.machine.this_cpu();
        let cpu = self.cpu(id);
        if cpu.block.get() != 0 {
            return true;
        }
        let is_ours = self.frames.blocks.at(b).reserve(cpu.locality.tag());
        if is_ours {
            if self.frames.nr_cluster > 1 {
                let first = self.cpu(cpu.locality.first_of_cluster());
                first.cluster_block.store(OptBlock::some(b).to_word(), Ordering::Relaxed);
            }
            cpu.block.set(OptBlock::some(b).to_word());
            cpu.word.set(0);
            cpu.search.set(u64::from(b.0) + 1);
        }
        is_ours
    }
}

impl Frames {
    /// Claims from the block that is reserved for the CPU, from the word of the last claim on.
    /// Compaction or another class may have taken the block since.
    #[inline]
    pub(super) fn claim_own(&self, cpu: &CpuData, most: u64) -> Option<Claim> {
        let b = OptBlock::from_word(cpu.block.get()).get()?;
        let (block, tag) = (self.blocks.at(b), cpu.locality.tag());
        if block.owner() != tag && (block.class() != Class::Movable || !block.reserve(tag)) {
            return None;
        }
        let (w, claim) = self.claim_in(b, cpu.word.get() as usize, most)?;
        cpu.word.set(w as u64);
        Some(claim)
    }

    /// Claims some frames of block `b`, from word `from` on.
    pub(super) fn claim_in(&self, b: BlockId, from: usize, most: u64) -> Option<(usize, Claim)> {
        let block = self.blocks.at(b);
        (from..BLOCK_WORDS).find_map(|w| {
            let (mask, zero) = block.claim_some(w, most);
            (mask != 0).then(|| (w, Claim { base: word_base(b, w), mask, zero }))
        })
    }

    /// Like `claim_in` for a class with a mark, and marks the block.
    pub(super) fn claim_marked_in(&self, b: BlockId, most: u64, class: Class) -> Option<Claim> {
        let block = self.blocks.at(b);
        (0..BLOCK_WORDS).find_map(|w| {
            let (mask, zero) = block.claim_marked(w, most, class);
            (mask != 0).then(|| Claim { base: word_base(b, w), mask, zero })
        })
    }
}
