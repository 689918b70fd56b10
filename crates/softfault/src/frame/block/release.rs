//! Frames of a block come back: what they hold, the count, their bits, and last the summaries.
//!
//! Locks on entry: none.

use super::Block;
use crate::frame::class::CLASS_MARKS;
use crate::frame::offers::{COUNT, DIRTY, LOST, SEEN, changed, more_used};
use crate::frame::summary::Kind;
use crate::frame::want::Content;
use crate::sync::Ordering;
use core::ops::Range;

impl Block<'_> {
    /// Gives back the frames `mask` of word `w`. Whether all of the block is free
    /// now, as far as its count knows.
    pub(crate) fn release(&self, w: usize, mask: u64, content: Content) -> bool {
        self.release_words(w..w + 1, mask, content)
    }

    /// Releases frames of some words. Counts them once, as they were claimed.
    #[inline(always)]
    pub(crate) fn release_words(&self, words: Range<usize>, mask: u64, content: Content) -> bool {
        // Before the bit, which releases it: a CPU that claims the frame sees
        // what is said of it.
        let zeroed = content.is_zero();
        for w in words.clone() {
            let dirty = self.dirty[w].load(Ordering::Relaxed) & mask;
            if zeroed && dirty != 0 {
                self.dirty[w].fetch_and(!mask, Ordering::Relaxed);
            } else if !zeroed && dirty != mask {
                self.dirty[w].fetch_or(mask, Ordering::Relaxed);
            }
        }
        let nr = words.len() as u64 * u64::from(mask.count_ones());
        let before = self.state.fetch_sub(nr, Ordering::Relaxed);
        let is_whole = before & COUNT == nr;
        let kinds = changed(before, before - nr) | self.end_traces(before - nr, content);
        for w in words {
            let used = self.used[w].fetch_and(!mask, Ordering::AcqRel);
            debug_assert_eq!(used & mask, mask, "I12: a frame was freed twice");
        }
        let runs = if self.state.load(Ordering::Relaxed) & LOST == 0 { 0 } else { self.find_runs() };
        self.note((kinds | runs) & !Kind::Any.bit());
        // A CPU that frees is not counted as a holder: the frame must not be invisible to others,
        // not even while others of the block come and go.
        self.summary.assure(Kind::Any, self.b, kinds);
        self.weigh(more_used(before, before - nr));
        is_whole
    }

    /// Updates the rest of the state when frames come back, and returns the kinds that may have changed.
    #[inline(always)]
    fn end_traces(&self, state: u64, content: Content) -> u32 {
        let mut kinds = 0;
        if content == Content::Unknown && state & DIRTY == 0 {
            let seen = self.state.fetch_or(DIRTY, Ordering::Relaxed);
            kinds |= changed(seen, seen | DIRTY);
        }
        // Wholly free: no class has frames in it any more, unless a CPU takes some.
        if state & COUNT == 0 {
            let gone = CLASS_MARKS | SEEN | if self.is_clean() { DIRTY } else { 0 };
            let mut seen = self.state.load(Ordering::Relaxed);
            while seen & COUNT == 0 && seen & gone != 0 {
                match self.state.compare_exchange(seen, seen & !gone, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => return kinds | changed(seen, seen & !gone),
                    Err(now) => seen = now,
                }
            }
        }
        kinds
    }
}
