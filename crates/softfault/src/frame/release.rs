//! Frees frames: returns them to the bitmaps.
//!
//! Locks on entry: none.

use super::blocks::word_base;
use super::runs::BLOCK_WORDS;
use super::want::Content;
use super::{Frames, Memory};
use crate::addr::{BLOCK_FRAMES, BlockId, Pfn};
use crate::machine::Machine;
use crate::sync::Ordering;

impl<M: Machine> Memory<M> {
    /// Frames were claimed from the blocks; or so many fewer, wrapping around. Counted on the
    /// calling CPU, which may have claimed other frames than it gives back (I43).
    #[inline(always)]
    pub(crate) fn count_taken(&self, nr: u64) {
        self.this_cpu_data().batches.nr_taken.add_owned(nr);
    }

    pub(crate) fn release_one(&self, pfn: Pfn, content: Content) {
        self.release_word(u64::from(pfn.0) & !63, 1 << (pfn.0 & 63), content);
    }

    pub(crate) fn release_word(&self, base: u64, mask: u64, content: Content) {
        self.count_taken(u64::from(mask.count_ones()).wrapping_neg());
        if self.frames.blocks.at(BlockId::of(Pfn(base as u32))).release((base / 64 % 8) as usize, mask, content) {
            self.frames.nr_emptied.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Gives back frames of a word of a block, of which these are dirty.
    pub(super) fn release_as_known(&self, (b, w): (BlockId, usize), frames: u64, dirty: u64) {
        for (mask, content) in [(frames & dirty, Content::Unknown), (frames & !dirty, Content::Zero)] {
            if mask != 0 {
                self.release_word(word_base(b, w), mask, content);
            }
        }
    }

    /// Gives back adjacent frames, aligned to their number, whose descriptors say
    /// that they are free already.
    pub(crate) fn release_run(&self, first: Pfn, nr: u64, content: Content) {
        if nr != BLOCK_FRAMES {
            for (b, w, mask) in words_of(first, nr) {
                self.release_word(word_base(b, w), mask, content);
            }
            return;
        }
        self.count_taken(BLOCK_FRAMES.wrapping_neg());
        self.release_uncounted(BlockId::of(first), content);
    }

    /// Frees all frames of a block, which are not counted as taken.
    pub(super) fn release_uncounted(&self, b: BlockId, content: Content) {
        if self.frames.blocks.at(b).release_words(0..BLOCK_WORDS, !0, content) {
            self.frames.nr_emptied.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Frames {
    /// The content of the run, which was just claimed.
    pub(super) fn content(&self, first: Pfn, nr: u64) -> Content {
        Content::zero_if(self.is_clean(first, nr))
    }

    /// Whether all frames of the run, which was just claimed, are zero.
    pub(super) fn is_clean(&self, first: Pfn, nr: u64) -> bool {
        words_of(first, nr).all(|(b, w, mask)| self.blocks.at(b).dirty[w].get() & mask == 0)
    }
}

/// The bitmap words that a run of frames, aligned to its length, has a part in:
/// block, word, bits.
fn words_of(first: Pfn, nr: u64) -> impl Iterator<Item = (BlockId, usize, u64)> {
    let first = u64::from(first.0);
    let mask = (!0u64 >> (64 - nr.min(64))) << (first % 64);
    (first / 64..(first + nr).div_ceil(64))
        .map(move |word| (BlockId((word / BLOCK_WORDS as u64) as u32), (word % BLOCK_WORDS as u64) as usize, mask))
}
