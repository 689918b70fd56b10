//! A claimed block: compaction, while it empties the rest, or pre-zeroing owns all of its free
//! frames.
//!
//! Such frames count as held: an allocation waits for them before it is refused (`last_resort`,
//! I28). The holder allocates nothing and waits for no CPU that allocates.
//!
//! Locks on entry: none, no section.

use super::blocks::word_base;
use super::runs::BLOCK_WORDS;
use super::{Content, Held, HugeFrame, Memory};
use crate::addr::{BLOCK_FRAMES, BlockId, Pfn};
use crate::machine::Machine;

/// In the place of a CPU's tag in a block's reservation.
const COMPACTION: u64 = 0xffff;

impl<M: Machine> Memory<M> {
    /// Claims the free frames of a block, if the block exists, no CPU has reserved it, and no
    /// allocation has the last-resort turn.
    pub(crate) fn claim_rest<'a>(&'a self, b: BlockId, held: Held<'a>) -> Option<ClaimedBlock<'a, M>> {
        let frames = &self.frames;
        if !frames.blocks.is_there(b) || frames.is_last_resort_active() || !frames.blocks.at(b).reserve(COMPACTION) {
            held.in_vain();
            return None;
        }
        let mut claimed = ClaimedBlock { memory: self, b, ours: [0; BLOCK_WORDS], zero: [0; BLOCK_WORDS], _held: held };
        claimed.claim_more();
        Some(claimed)
    }
}

/// A claimed block. Dropping this frees what was claimed.
pub(crate) struct ClaimedBlock<'a, M: Machine> {
    memory: &'a Memory<M>,
    b: BlockId,
    ours: [u64; BLOCK_WORDS],
    /// Of these, the ones that are zero.
    zero: [u64; BLOCK_WORDS],
    // Declared last: the frames are free before the hold ends.
    _held: Held<'a>,
}

impl<M: Machine> ClaimedBlock<'_, M> {
    /// Claims the frames that are free now.
    pub(crate) fn claim_more(&mut self) {
        let block = self.memory.frames.blocks.at(self.b);
        for w in 0..BLOCK_WORDS {
            let (mask, zero) = block.claim_some(w, 64);
            self.memory.count_taken(mask.count_ones().into());
            self.ours[w] |= mask;
            self.zero[w] |= zero;
        }
    }

    fn place(&self, pfn: Pfn) -> (usize, u64) {
        debug_assert_eq!(BlockId::of(pfn), self.b);
        (pfn.0 as usize / 64 % BLOCK_WORDS, 1 << (pfn.0 % 64))
    }

    /// Adds a frame of the block that the caller owns alone.
    pub(crate) fn add(&mut self, pfn: Pfn) {
        let (w, bit) = self.place(pfn);
        self.ours[w] |= bit;
    }

    /// Claims one that may have been freed; returns whether it did.
    pub(crate) fn claim_one(&mut self, pfn: Pfn) -> bool {
        let (w, bit) = self.place(pfn);
        if let Some(zero) = self.memory.frames.blocks.at(self.b).claim_exact(w, bit) {
            self.memory.count_taken(1);
            self.ours[w] |= bit;
            self.zero[w] |= zero;
        }
        self.ours[w] & bit != 0
    }

    /// Number of frames claimed.
    pub(crate) fn nr_ours(&self) -> u64 {
        self.ours.iter().map(|w| u64::from(w.count_ones())).sum()
    }

    /// The frames of a word that are not.
    pub(crate) fn rest(&self, w: usize) -> impl Iterator<Item = Pfn> + use<M> {
        let base = word_base(self.b, w);
        let rest = !self.ours[w];
        (0..64).filter(move |i| rest & 1 << i != 0).map(move |i| Pfn((base + i) as u32))
    }

    /// Turns it into one huge frame; `Err(self)` if not all frames are claimed.
    #[allow(clippy::result_large_err)] // who fails keeps the claim; a box there is not
    pub(crate) fn into_huge(mut self) -> Result<HugeFrame, Self> {
        let first = self.b.first_frame();
        if self.nr_ours() < BLOCK_FRAMES || !self.memory.frames.blocks.at(self.b).folio.reserve(first) {
            return Err(self);
        }
        self.memory.frames.blocks.at(self.b).unmark();
        let content = Content::zero_if(self.zero.iter().all(|w| *w == !0));
        self.memory.frames.note_run_used(first, BLOCK_FRAMES);
        // In use from now on, so `Drop` must not free it.
        self.ours = [0; BLOCK_WORDS];
        Ok(HugeFrame { first, content })
    }
}

impl<M: Machine> Drop for ClaimedBlock<'_, M> {
    fn drop(&mut self) {
        for w in 0..BLOCK_WORDS {
            for (mask, content) in
                [(self.ours[w] & self.zero[w], Content::Zero), (self.ours[w] & !self.zero[w], Content::Unknown)]
            {
                if mask != 0 {
                    self.memory.release_word(word_base(self.b, w), mask, content);
                }
            }
        }
        self.memory.frames.blocks.at(self.b).unreserve(COMPACTION);
    }
}
