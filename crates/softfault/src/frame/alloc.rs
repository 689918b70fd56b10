//! Runs of frames inside a block, counts of free frames, and batches of frames to be freed.

use super::runs::{BLOCK_WORDS, bits, run_starts};
use super::summary::Kind;
use super::want::{Content, Search};
use super::{FrameDesc, Frames, Memory, OutOfFrames};
use crate::addr::{BLOCK_FRAMES, BlockId, Pfn};
use crate::machine::Machine;
use crate::pace::Pace;
use crate::sync::Ordering;

impl<M: Machine> Memory<M> {
    /// Checks that so many single frames are free before the caller claims them one by one.
    /// `Search::Everywhere` empties the frame caches of other CPUs, as for one frame.
    pub(super) fn look_for(&self, nr_frames: u64, search: Search) -> Result<(), OutOfFrames> {
        if search == Search::Everywhere && !self.has_free(nr_frames) {
            self.steal_in_last_resort();
        }
        if self.has_free(nr_frames) { Ok(()) } else { Err(OutOfFrames::frames(nr_frames)) }
    }

    /// Counts until it has found so many, and reads no further frame cache or block.
    fn has_free(&self, nr_frames: u64) -> bool {
        let (blocks, marked) = (&self.frames.blocks, self.frames.marked());
        let mut pace = Pace::new(&self.machine);
        let mut left = nr_frames;
        let mut is_enough = |nr_free: u64| {
            pace.step();
            left = left.saturating_sub(nr_free);
            left == 0
        };
        blocks.offering(Kind::Any, blocks.names(), self.home_range().start).any(|b| is_enough(blocks.at(b).nr_free()))
            || marked.iter().any(|id| is_enough(self.cpu(id).nr_in_caches()))
    }
}

impl Frames {
    /// `nr` < 512 frames, a power of two, inside block `b`.
    pub(super) fn claim_part(&self, b: BlockId, nr: u64) -> Option<Pfn> {
        if self.blocks.at(b).nr_free() < nr {
            return None;
        }
        let block = self.blocks.at(b);
        // Only where all bits are clear: others may see a part of a claim that is undone.
        let is_free = |at: &u64| (at / 64..(at + nr) / 64).all(|w| block.free_word(w as usize) == !0);
        let starts = |w: usize| bits(run_starts(block.free_word(w), nr.ilog2())).map(move |i| w as u64 * 64 + i);
        let found = match nr {
            64.. => (0..BLOCK_FRAMES).step_by(nr as usize).filter(is_free).find(|at| self.claim_run(b, *at, nr)),
            _ => (0..BLOCK_WORDS).flat_map(starts).find(|at| self.claim_run(b, *at, nr)),
        };
        found.map(|at| Pfn(b.first_frame().0 + at as u32))
    }

    /// Frames `at..at + nr` of block `b`, all or none.
    pub(super) fn claim_run(&self, b: BlockId, at: u64, nr: u64) -> bool {
        let block = self.blocks.at(b);
        let mask = ones(nr.min(64)) << (at % 64);
        let words = (at / 64) as usize..(at + nr).div_ceil(64) as usize;
        let is_ours = block.claim_words(words, mask);
        if !is_ours && nr > 64 {
            self.nr_undone.fetch_add(1, Ordering::Relaxed);
        }
        is_ours
    }
}

/// The lowest `nr` bits, `nr` from 1 to 64.
fn ones(nr: u64) -> u64 {
    !0 >> (64 - nr)
}

/// Frames on their way back, gathered by bitmap word so that adjacent ones cost
/// one operation together.
pub(crate) struct FreeBatch<'a, M: Machine> {
    memory: &'a Memory<M>,
    base: u64,
    mask: u64,
}

impl<'a, M: Machine> FreeBatch<'a, M> {
    pub(crate) fn new(memory: &'a Memory<M>) -> FreeBatch<'a, M> {
        FreeBatch { memory, base: 0, mask: 0 }
    }
    /// Adds a frame that only the caller owns.
    #[inline]
    pub(crate) fn add(&mut self, pfn: Pfn) {
        self.add_described(pfn, self.memory.frames.desc(pfn));
    }
    /// Like `add`, when the caller already has its descriptor.
    #[inline(always)]
    pub(crate) fn add_described(&mut self, pfn: Pfn, desc: &FrameDesc) {
        desc.clear();
        let base = u64::from(pfn.0) & !63;
        if base != self.base {
            self.flush();
            self.base = base;
        }
        self.mask |= 1 << (pfn.0 & 63);
    }
    /// Out of line, so that `add` stays small enough to be inlined.
    #[inline(never)]
    fn flush(&mut self) {
        if self.mask != 0 {
            self.memory.release_word(self.base, core::mem::take(&mut self.mask), Content::Unknown);
        }
    }
}

impl<M: Machine> Drop for FreeBatch<'_, M> {
    fn drop(&mut self) {
        self.flush();
    }
}
