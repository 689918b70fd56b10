//! Memory of any size in any state: bitmaps are set block by block, and no descriptor is written, so that a simulated
//! terabyte costs the host little.
//!
//! Frames are taken and given back the way an operation does it, summaries included. A frame that is taken here is in
//! use for the bitmaps and free for its descriptor: nobody can have it, and compaction leaves it where it is.
//! [`Vm::check`] would call it lost; [`check_summaries`](Vm::check_summaries_at_rest) is for such memory.
//!
//! Call all of these at rest.

use crate::addr::{BLOCK_FRAMES, BlockId, Pfn};
use crate::check::Broken;
use crate::frame::{BLOCK_WORDS, Class, Content, FrameKind, Kind, word_base};
use crate::machine::{CpuId, Machine};
use crate::space::Vm;
use core::ops::Range;

/// A bit for each frame of a block of 2 MiB, the lowest first.
pub type BlockBits = [u64; BLOCK_WORDS];

/// Content of a frame that is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Holds {
    /// Zeroes: as frames that were never used.
    Zeroes,
    /// Anything.
    Anything,
}

impl<M: Machine> Vm<M> {
    /// Blocks of 2 MiB that memory consists of.
    pub fn nr_blocks(&self) -> u32 {
        self.frames.blocks.nr() as u32
    }

    /// The blocks that the CPU looks at first.
    pub fn home_blocks(&self, cpu: CpuId) -> Range<u32> {
        let home_range = self.cpu(cpu).home_range();
        home_range.start.0..home_range.end.0
    }

    /// The frames of a block that no CPU has in its cache and nobody uses.
    ///
    /// # Panics
    ///
    /// If there is no such block.
    pub fn free_bits(&self, block: u32) -> BlockBits {
        let block = self.frames.blocks.at(BlockId(block));
        core::array::from_fn(|w| block.free_word(w))
    }

    /// Takes those of the frames that are free.
    ///
    /// # Panics
    ///
    /// If there is no such block.
    pub fn take_bits(&self, block: u32, bits: &BlockBits) {
        let block = self.frames.blocks.at(BlockId(block));
        for (w, mask) in bits.iter().enumerate() {
            let mask = mask & block.free_word(w);
            if mask != 0 && block.claim_exact(w, mask).is_some() {
                self.count_taken(mask.count_ones().into());
            }
        }
    }

    /// Gives back those of the frames that [`take_bits`](Self::take_bits) took.
    ///
    /// # Panics
    ///
    /// If there is no such block.
    pub fn give_bits(&self, block: u32, bits: &BlockBits, holds: Holds) {
        self.empty_caches();
        let b = BlockId(block);
        let content = Content::zero_if(holds == Holds::Zeroes);
        for (w, mask) in bits.iter().enumerate() {
            let base = word_base(b, w);
            let nr = (self.nr_frames().saturating_sub(base)).min(64);
            let mask = mask & !self.frames.blocks.at(b).free_word(w);
            let is_taken = |i: &u64| mask & 1 << i != 0 && self.is_nobodys(Pfn((base + i) as u32));
            let taken = (0..nr).filter(is_taken).fold(0, |bits, i| bits | 1 << i);
            if taken != 0 {
                self.release_word(base, taken, content);
            }
        }
    }

    fn is_nobodys(&self, pfn: Pfn) -> bool {
        self.frames.desc(pfn).state().kind() == FrameKind::Free
            && self.frames.folio(pfn).state().kind() == FrameKind::Free
    }

    /// From now on the free frames of the block may hold anything, as after use.
    ///
    /// # Panics
    ///
    /// If there is no such block.
    pub fn soil_free(&self, block: u32) {
        let b = BlockId(block);
        for w in 0..BLOCK_WORDS {
            let mask = self.frames.blocks.at(b).free_word(w);
            if mask != 0 && self.frames.blocks.at(b).claim_exact(w, mask).is_some() {
                self.count_taken(mask.count_ones().into());
                self.release_word(word_base(b, w), mask, Content::Unknown);
            }
        }
    }

    /// Marks the block as one with frames that stay where they are, as a table in it would.
    ///
    /// # Panics
    ///
    /// If there is no such block.
    pub fn fix_block(&self, block: u32) {
        self.frames.blocks.at(BlockId(block)).mark(Class::Fixed);
    }

    /// Whether nothing of the subsystem's own is in the block: pages of programs and free frames.
    ///
    /// # Panics
    ///
    /// If there is no such block.
    pub fn has_pages_only(&self, block: u32) -> bool {
        let first = BlockId(block).first_frame().0;
        let end = (u64::from(first) + BLOCK_FRAMES).min(self.nr_frames()) as u32;
        let is_page = |p: u32| {
            let kind = self.frames.find_desc_at_rest(Pfn(p)).map(|desc| desc.state().kind());
            matches!(kind, Some(FrameKind::Free | FrameKind::Anon))
        };
        (first..end).all(is_page)
    }

    /// The class of the block.
    ///
    /// # Panics
    ///
    /// If there is no such block.
    pub fn block_class(&self, block: u32) -> Class {
        self.frames.blocks.at(BlockId(block)).class()
    }

    /// Takes all frames that are free.
    pub fn take_all(&self) {
        self.empty_caches();
        let blocks = &self.frames.blocks;
        for b in blocks.offering(Kind::Any, blocks.names(), BlockId(0)) {
            self.take_bits(b.0, &[!0; BLOCK_WORDS]);
        }
    }

    /// Gives the frames in the caches of all CPUs back to the blocks.
    pub fn empty_caches(&self) {
        self.call();
        self.steal_caches();
    }

    /// Recomputes what each block offers and compares the summaries with it.
    ///
    /// # Errors
    ///
    /// [`Broken::Untold`].
    pub fn check_summaries_at_rest(&self) -> Result<(), Broken> {
        self.check_summaries()
    }
}
