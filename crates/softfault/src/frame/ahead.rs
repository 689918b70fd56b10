//! Pre-zeroing of free blocks, on idle CPUs.
//!
//! A wholly free block is claimed, zeroed past the caches, and freed with its dirty bitmap clear;
//! nothing else has to know. While it is claimed no allocation is refused for lack of it
//! (`claimed`).
//!
//! Locks on entry: none, no section.

use super::summary::Kind;
use super::{Content, Memory};
use crate::addr::{BLOCK_FRAMES, BlockId, Pfn};
use crate::clear::CHUNK_FRAMES;
use crate::machine::Machine;
use crate::mem::stream;
use crate::pace::Pace;

impl<M: Machine> Memory<M> {
    /// Zeroes up to `max_blocks` free home blocks of this CPU, until
    /// [`zero_ahead_blocks`](crate::Tunables::zero_ahead_blocks) of them are zero. Returns the
    /// number zeroed; 0 if there is nothing to do for now.
    pub fn zero_ahead(&self, max_blocks: u64) -> u64 {
        if Self::NR_SUB_FRAMES != BLOCK_FRAMES {
            return 0;
        }
        self.call();
        let (blocks, home_range) = (&self.frames.blocks, self.home_range());
        let most = self.tunables.zero_ahead_blocks;
        let mut pace = Pace::new(&self.machine);
        let nr_ready = blocks
            .offering(Kind::Ready, home_range, home_range.start)
            .inspect(|_| pace.step())
            .take(most as usize)
            .count();
        let nr_wanted = max_blocks.min(most - nr_ready as u64);
        let whole = blocks.offering(Kind::Whole, home_range, home_range.start).inspect(|_| pace.step());
        let dirty = whole.filter(|b| !blocks.at(*b).offers(Kind::Ready));
        let zeroed = dirty.map_while(|b| self.zero_block(b)).filter(|is_zeroed| *is_zeroed);
        zeroed.take(nr_wanted as usize).count() as u64
    }

    /// Whether the block could be claimed; `None` while a last-resort allocation runs, which would refuse
    /// other blocks, too.
    fn zero_block(&self, b: BlockId) -> Option<bool> {
        let _held = self.hold_unless_last_resort()?;
        let Some(huge) = self.claim_whole(b) else { return Some(false) };
        for i in (0..BLOCK_FRAMES).step_by(CHUNK_FRAMES as usize) {
            stream::zero_frames(&self.machine, Pfn(huge.first.0 + i as u32), CHUNK_FRAMES);
            self.machine.relax();
        }
        stream::done();
        self.give_back_huge(huge.first, Content::Zero);
        Some(true)
    }
}
