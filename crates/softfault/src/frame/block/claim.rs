//! Frames of a block become a CPU's: their bits first, each word by one read-modify-write,
//! then the count.
//!
//! Locks on entry: none.

use super::Block;
use crate::frame::class::Class;
use crate::frame::offers::{LOST, changed, more_used};
use crate::frame::runs::lowest_bits;
use crate::sync::Ordering;
use core::ops::Range;

impl Block<'_> {
    /// Claims all free frames of word `w`, at most `most` of them, lowest first:
    /// (their bits, those of them that are zero).
    pub(crate) fn claim_some(&self, w: usize, most: u64) -> (u64, u64) {
        let mask = self.take_some(w, most);
        if mask != 0 {
            self.count(mask.count_ones().into());
        }
        (mask, self.zero_of(w, mask))
    }

    /// The same for a class with a mark. One change of the state: a block of which a part
    /// is in use, without a mark, is so rare at first that all levels would be told.
    pub(crate) fn claim_marked(&self, w: usize, most: u64, class: Class) -> (u64, u64) {
        let mask = self.take_some(w, most);
        if mask != 0 {
            self.count_marked(mask.count_ones().into(), class);
        }
        (mask, self.zero_of(w, mask))
    }

    fn count_marked(&self, nr: u64, class: Class) {
        let mut before = self.state.load(Ordering::Relaxed);
        let after = |state: u64| (state + nr) | class.mark();
        while let Err(now) = self.state.compare_exchange(before, after(before), Ordering::AcqRel, Ordering::Relaxed) {
            before = now;
        }
        self.note(changed(before, after(before)));
        self.weigh(more_used(before, after(before)));
    }

    fn take_some(&self, w: usize, most: u64) -> u64 {
        let mut seen = self.used[w].load(Ordering::Relaxed);
        loop {
            let mask = lowest_bits(!seen, most);
            if mask == 0 {
                return 0;
            }
            match self.used[w].compare_exchange(seen, seen | mask, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return mask,
                Err(now) => seen = now,
            }
        }
    }

    /// Claims exactly the frames `mask` of word `w`, or none.
    pub(crate) fn claim_exact(&self, w: usize, mask: u64) -> Option<u64> {
        self.take(w, mask).then(|| {
            self.count(mask.count_ones().into());
            self.zero_of(w, mask)
        })
    }

    /// Claims the frames `mask` of each of some words, or none. Counted once: a block that
    /// is taken whole is never one of which a part is free, which all of memory would be told.
    pub(crate) fn claim_words(&self, words: Range<usize>, mask: u64) -> bool {
        for w in words.clone() {
            if !self.take(w, mask) {
                (words.start..w).for_each(|w| _ = self.used[w].fetch_and(!mask, Ordering::AcqRel));
                let is_missed = self.state.load(Ordering::Relaxed) & LOST != 0;
                self.note(if is_missed { self.find_runs() } else { 0 });
                return false;
            }
        }
        self.count(words.len() as u64 * u64::from(mask.count_ones()));
        true
    }

    fn take(&self, w: usize, mask: u64) -> bool {
        let mut seen = self.used[w].load(Ordering::Relaxed);
        while seen & mask == 0 {
            match self.used[w].compare_exchange(seen, seen | mask, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Which of the frames are zero, that were just taken.
    fn zero_of(&self, w: usize, mask: u64) -> u64 {
        mask & !self.dirty[w].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn count(&self, nr: u64) {
        let before = self.state.fetch_add(nr, Ordering::Relaxed);
        self.note(changed(before, before + nr));
        self.weigh(more_used(before, before + nr));
    }
}
