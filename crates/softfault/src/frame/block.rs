//! 512 frames, 2 MiB: what is free among them, and what of that is not zero.

use super::Frames;
use super::folio::FolioData;
use super::want::Content;
use crate::addr::{BLOCK_FRAMES, BlockId, BlockRange, Pfn};
use crate::mem::FrameArray;
use crate::sync::{Ordering, Word};

/// Words of a bitmap over a block.
pub(crate) const BLOCK_WORDS: usize = 8;

const COUNT: u64 = 0xffff;
const RESERVED_SHIFT: u32 = 16;
const RESERVED: u64 = 0xffff << RESERVED_SHIFT;
const FIXED: u64 = 1 << 32;

/// One block. Three lines, so that a CPU at work in its own block writes no
/// line that another CPU at work in its own writes.
#[repr(C, align(64))]
pub struct BlockData {
    /// Frames in use, bits 0..16 (a hint between operations, exact at rest);
    /// reserving CPU + 1, bits 16..32; whether frames that stay where they are
    /// are kept here, bit 32. Zero is a block that is wholly free, so that blocks
    /// need no line written before they are first used.
    pub(crate) state: Word,
    /// The folio that fills the block, if there is one.
    pub(crate) folio: FolioData,
    /// Bit clear: the frame is free. The only authority.
    used: [Word; BLOCK_WORDS],
    /// Bit set: the frame, if it is free, may hold anything; clear: it is all
    /// zero. Says nothing of frames in use, so that taking one need not write it.
    pub(crate) dirty: [Word; BLOCK_WORDS],
}

impl BlockData {
    /// Free frames, as last counted.
    pub(crate) fn nr_free(&self) -> u64 {
        BLOCK_FRAMES.saturating_sub(self.state.load(Ordering::Relaxed) & COUNT)
    }
    /// The free frames of word `w`, a bit each.
    pub(crate) fn free_word(&self, w: usize) -> u64 {
        !self.used[w].load(Ordering::Relaxed)
    }
    /// For the map of fields.
    #[cfg(any(test, feature = "hooks"))]
    pub(crate) const USED_OFFSET: usize = core::mem::offset_of!(BlockData, used);
    /// At the very beginning: frames that are not there to be used, and what is not
    /// zero of the others.
    pub(crate) fn init(&self, w: usize, unusable: u64, content: Content) {
        if unusable != 0 {
            self.used[w].set(unusable);
            self.state.set(self.state.get() + u64::from(unusable.count_ones()));
        }
        if content == Content::Unknown {
            self.dirty[w].set(!unusable);
        }
    }
    pub(crate) fn nr_free_exact(&self) -> u64 {
        (0..BLOCK_WORDS).map(|w| u64::from(self.free_word(w).count_ones())).sum()
    }
    /// Reserves it for CPU number `tag` - 1; `false` where another has it.
    pub(crate) fn reserve(&self, tag: u64) -> bool {
        let seen = self.state.load(Ordering::Relaxed);
        seen & RESERVED == 0
            && self
                .state
                .compare_exchange(seen, seen | tag << RESERVED_SHIFT, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }
    /// Whether a CPU takes its small frames from it.
    pub(crate) fn is_reserved(&self) -> bool {
        self.state.load(Ordering::Relaxed) & RESERVED != 0
    }
    /// From now on frames come from here that will stay where they are.
    pub(crate) fn set_fixed(&self) {
        self.state.fetch_or(FIXED, Ordering::AcqRel);
    }
    pub(crate) fn is_fixed(&self) -> bool {
        self.state.load(Ordering::Relaxed) & FIXED != 0
    }
    /// Whether all frames that are free are zero.
    pub(crate) fn is_clean(&self) -> bool {
        self.dirty.iter().all(|w| w.load(Ordering::Relaxed) == 0)
    }
    pub(crate) fn unreserve(&self) {
        self.state.fetch_and(!RESERVED, Ordering::AcqRel);
    }

    /// Claims all free frames of word `w`, at most `most` of them, lowest first:
    /// (their bits, those of them that are zero).
    pub(crate) fn claim_some(&self, w: usize, most: u64) -> (u64, u64) {
        let mut seen = self.used[w].load(Ordering::Relaxed);
        loop {
            let mask = lowest_bits(!seen, most);
            if mask == 0 {
                return (0, 0);
            }
            match self.used[w].compare_exchange(seen, seen | mask, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return (mask, self.count_claim(w, mask)),
                Err(now) => seen = now,
            }
        }
    }

    /// Claims exactly the frames `mask` of word `w`, or none.
    pub(crate) fn claim_exact(&self, w: usize, mask: u64) -> Option<u64> {
        let mut seen = self.used[w].load(Ordering::Relaxed);
        while seen & mask == 0 {
            match self.used[w].compare_exchange(seen, seen | mask, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(self.count_claim(w, mask)),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Counts frames that were just claimed; which of them are zero.
    fn count_claim(&self, w: usize, mask: u64) -> u64 {
        self.state.fetch_add(u64::from(mask.count_ones()), Ordering::Relaxed);
        mask & !self.dirty[w].load(Ordering::Relaxed)
    }

    /// Gives back the frames `mask` of word `w`. Whether all of the block is free
    /// now, as far as its count knows.
    pub(crate) fn release(&self, w: usize, mask: u64, content: Content) -> bool {
        // Before the bit, which releases it: whoever claims the frame sees
        // what is said of it.
        let zeroed = content.is_zero();
        let dirty = self.dirty[w].load(Ordering::Relaxed) & mask;
        if zeroed && dirty != 0 {
            self.dirty[w].fetch_and(!mask, Ordering::Relaxed);
        } else if !zeroed && dirty != mask {
            self.dirty[w].fetch_or(mask, Ordering::Relaxed);
        }
        let nr = u64::from(mask.count_ones());
        let state = self.state.fetch_sub(nr, Ordering::Relaxed);
        let nr_used = (state & COUNT).wrapping_sub(nr);
        if nr_used == 0 && state & FIXED != 0 {
            self.state.fetch_and(!FIXED, Ordering::Relaxed);
        }
        let before = self.used[w].fetch_and(!mask, Ordering::AcqRel);
        debug_assert_eq!(before & mask, mask, "I12: a frame was freed twice");
        nr_used == 0
    }
}

/// The lowest `most` set bits.
fn lowest_bits(bits: u64, most: u64) -> u64 {
    if u64::from(bits.count_ones()) <= most {
        return bits;
    }
    let mut rest = bits;
    (0..most).for_each(|_| rest &= rest - 1);
    bits & !rest
}

/// All blocks.
pub(crate) struct Blocks(pub(crate) FrameArray<BlockData>);

impl Blocks {
    /// One of them.
    ///
    /// # Panics
    ///
    /// If there is none: numbers are checked where they come from outside.
    #[inline(always)]
    pub(crate) fn at(&self, b: BlockId) -> &BlockData {
        self.0.at(b.0 as usize)
    }
    pub(crate) fn nr(&self) -> u64 {
        self.0.len() as u64
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = &BlockData> {
        self.0.iter()
    }
    /// The numbers of all.
    pub(crate) fn names(&self) -> BlockRange {
        BlockRange { start: BlockId(0), end: BlockId(self.nr() as u32) }
    }
    /// Number `n`, where the first one follows the last.
    pub(crate) fn around(&self, n: u64) -> BlockId {
        BlockId((n % self.nr()) as u32)
    }
}

/// First of the 64 frames that word `w` of a block's bitmap describes.
pub(crate) const fn word_base(b: BlockId, w: usize) -> u64 {
    b.first_frame().0 as u64 + w as u64 * 64
}

impl Frames {
    /// The folio of the block that the frame lies in.
    #[inline]
    pub(crate) fn folio(&self, pfn: Pfn) -> &FolioData {
        &self.blocks.at(BlockId::of(pfn)).folio
    }
}
