//! 512 frames, 2 MiB: what is free among them, and what of that is not zero.

use super::Frames;
use super::folio::FolioData;
use super::offers::{
    COUNT, DIRTY, FIXED, LOST, LOST_SHIFT, RESERVED, RESERVED_SHIFT, changed, has_run, more_used, offers, weight,
};
use super::runs::{BLOCK_WORDS, RUN_ORDER, largest_run, lowest_bits};
use super::summary::{Kind, Summary};
use super::want::Content;
use crate::addr::{BLOCK_FRAMES, BlockId, BlockRange, Order, Pfn};
use crate::mem::FrameArray;
use crate::sync::{Ordering, Word};
use core::ops::{Deref, Range};

/// One block. Three lines, so that a CPU at work in its own block writes no
/// line that another CPU at work in its own writes.
#[repr(C, align(64))]
pub struct BlockData {
    /// `offers.rs` has its bits.
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
    pub(crate) fn nr_free_exact(&self) -> u64 {
        (0..BLOCK_WORDS).map(|w| u64::from(self.free_word(w).count_ones())).sum()
    }
    /// The tag of whoever has reserved it, 0 if nobody has.
    pub(crate) fn owner(&self) -> u64 {
        (self.state.load(Ordering::Relaxed) & RESERVED) >> RESERVED_SHIFT
    }
    pub(crate) fn is_fixed(&self) -> bool {
        self.state.load(Ordering::Relaxed) & FIXED != 0
    }
    /// Whether whoever `tag` stands for may find 2^order free frames beside each other, as far
    /// as the state says.
    pub(crate) fn may_have_run(&self, tag: u64, order: Order) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        let owner = (state & RESERVED) >> RESERVED_SHIFT;
        (owner == tag || owner == 0) && has_run(state, order.0.into())
    }
    fn largest_run(&self) -> u32 {
        largest_run(core::array::from_fn(|w| self.free_word(w)))
    }
    /// Whether all frames that are free are zero.
    pub(crate) fn is_clean(&self) -> bool {
        self.dirty.iter().all(|w| w.load(Ordering::Relaxed) == 0)
    }
}

/// One of the [`Blocks`]: every change of its state goes through this, and is noted in the
/// summaries (I40).
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    data: &'a BlockData,
    b: BlockId,
    summary: &'a Summary,
}

impl Deref for Block<'_> {
    type Target = BlockData;
    #[inline(always)]
    fn deref(&self) -> &BlockData {
        self.data
    }
}

impl Block<'_> {
    /// At the very beginning: frames that are not there to be used, and what is not
    /// zero of the others.
    pub(crate) fn init(&self, w: usize, unusable: u64, content: Content) {
        if unusable != 0 {
            self.used[w].set(unusable);
            self.state.set(self.state.get() + u64::from(unusable.count_ones()));
        }
        if content == Content::Unknown && unusable != !0 {
            self.dirty[w].set(!unusable);
            self.state.set(self.state.get() | DIRTY);
        }
    }

    /// Tells the summaries, which begin with blocks that are free and zero, of what has
    /// been [set](Self::init). Of a block with frames that stay they have heard before all of
    /// it was set.
    pub(crate) fn tell_of_init(&self) {
        let heard = if self.is_fixed() { Kind::Fixed.bit() } else { 0 };
        self.note(offers(0) ^ offers(self.state.get()) | heard);
        self.weigh(more_used(0, self.state.get()));
    }

    /// Reserves it for whoever `tag` stands for; `false` where another has it.
    pub(crate) fn reserve(&self, tag: u64) -> bool {
        let seen = self.state.load(Ordering::Relaxed);
        let ours = seen | tag << RESERVED_SHIFT;
        let is_ours = seen & RESERVED == 0
            && self.state.compare_exchange(seen, ours, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_ours {
            self.note(changed(seen, ours));
        }
        is_ours
    }

    /// Ends the reservation of `tag`, if it has not ended.
    pub(crate) fn unreserve(&self, tag: u64) {
        let mut seen = self.state.load(Ordering::Relaxed);
        while (seen & RESERVED) >> RESERVED_SHIFT == tag {
            match self.state.compare_exchange(seen, seen & !RESERVED, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return self.note(changed(seen, seen & !RESERVED)),
                Err(now) => seen = now,
            }
        }
    }

    /// From now on frames come from here that will stay where they are.
    pub(crate) fn set_fixed(&self) {
        let before = self.state.fetch_or(FIXED, Ordering::AcqRel);
        self.note(changed(before, before | FIXED));
    }

    /// Claims all free frames of word `w`, at most `most` of them, lowest first:
    /// (their bits, those of them that are zero).
    pub(crate) fn claim_some(&self, w: usize, most: u64) -> (u64, u64) {
        let mask = self.take_some(w, most);
        (mask, if mask == 0 { 0 } else { self.count_claim(w, mask) })
    }

    /// The same for what stays where it is. One change of the state: a block of which a part
    /// is in use, and nothing stays, is so rare at first that all levels would be told.
    pub(crate) fn claim_fixed(&self, w: usize, most: u64) -> (u64, u64) {
        let mask = self.take_some(w, most);
        if mask == 0 {
            return (0, 0);
        }
        let nr = u64::from(mask.count_ones());
        let mut before = self.state.load(Ordering::Relaxed);
        let after = |state: u64| (state + nr) | FIXED;
        while let Err(now) = self.state.compare_exchange(before, after(before), Ordering::AcqRel, Ordering::Relaxed) {
            before = now;
        }
        self.note(changed(before, after(before)));
        self.weigh(more_used(before, after(before)));
        (mask, mask & !self.dirty[w].load(Ordering::Relaxed))
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
        self.take(w, mask).then(|| self.count_claim(w, mask))
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

    /// Which of the frames that were just taken are zero.
    fn count_claim(&self, w: usize, mask: u64) -> u64 {
        self.count(u64::from(mask.count_ones()));
        mask & !self.dirty[w].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn count(&self, nr: u64) {
        let before = self.state.fetch_add(nr, Ordering::Relaxed);
        self.note(changed(before, before + nr));
        self.weigh(more_used(before, before + nr));
    }

    /// Gives back the frames `mask` of word `w`. Whether all of the block is free
    /// now, as far as its count knows.
    pub(crate) fn release(&self, w: usize, mask: u64, content: Content) -> bool {
        self.release_words(w..w + 1, mask, content)
    }

    /// Those of each of some words. Counted once, as they were claimed.
    #[inline(always)]
    pub(crate) fn release_words(&self, words: Range<usize>, mask: u64, content: Content) -> bool {
        // Before the bit, which releases it: whoever claims the frame sees
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
        // Whoever gives back is counted nowhere: the frame may be out of nobody's sight, not
        // even while others of the block come and go.
        self.summary.assure(Kind::Any, self.b, kinds);
        self.weigh(more_used(before, before - nr));
        is_whole
    }

    /// What else changes when frames come back; gives the kinds that may have changed.
    #[inline(always)]
    fn end_traces(&self, state: u64, content: Content) -> u32 {
        let mut kinds = 0;
        if content == Content::Unknown && state & DIRTY == 0 {
            let seen = self.state.fetch_or(DIRTY, Ordering::Relaxed);
            kinds |= changed(seen, seen | DIRTY);
        }
        // Wholly free: nothing stays in it any more, unless somebody takes frames that will.
        if state & COUNT == 0 {
            let gone = if self.is_clean() { FIXED | DIRTY } else { FIXED };
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

    /// Frames came back where runs had been lost: there may be some again. Gives the kinds
    /// that may have changed.
    #[inline(never)]
    fn find_runs(&self) -> u32 {
        // A change, so that of two who bring the halves of a run the later one sees both.
        self.state.fetch_add(0, Ordering::AcqRel);
        let largest = self.largest_run();
        self.set_lost(|lost| lost.min(RUN_ORDER.saturating_sub(largest)))
    }

    /// No run of the order that was wanted was found: notes what there is, and looks again.
    /// Frames that come back meanwhile are seen: either the second look, which writes, comes
    /// after their words were written, or whoever gave them back sees that runs are lost.
    pub(crate) fn lose_runs(&self) {
        self.lose_runs_above(self.largest_run());
    }

    /// Whether 2^order free frames lie beside each other. If not, it loses runs.
    pub(crate) fn has_run(&self, order: Order) -> bool {
        let largest = self.largest_run();
        let has = largest >= order.0.into();
        if !has {
            self.lose_runs_above(largest);
        }
        has
    }

    fn lose_runs_above(&self, largest: u32) {
        let kinds = self.set_lost(|_| RUN_ORDER.saturating_sub(largest));
        let again = largest_run(core::array::from_fn(|w| !self.used[w].fetch_or(0, Ordering::AcqRel)));
        let more = if again > largest { self.find_runs() } else { 0 };
        self.note(kinds | more);
    }

    fn set_lost(&self, to: impl Fn(u32) -> u32) -> u32 {
        let mut seen = self.state.load(Ordering::Relaxed);
        loop {
            let lost = to(((seen & LOST) >> LOST_SHIFT) as u32);
            let new = seen & !LOST | u64::from(lost) << LOST_SHIFT;
            match self.state.compare_exchange(seen, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return changed(seen, new),
                Err(now) => seen = now,
            }
        }
    }

    /// Tells the summaries of kinds that a change of the state gave or took, after it.
    #[inline(always)]
    fn note(&self, kinds: u32) {
        if kinds != 0 {
            self.note_kinds(kinds);
        }
    }

    /// Tells the summaries of frames that are in use now (I41).
    #[inline(always)]
    fn weigh(&self, more_used: u64) {
        if more_used != 0 {
            self.summary.weigh(self.b, more_used);
        }
    }

    /// Frames in use, as the summaries count them.
    pub(crate) fn weight(&self) -> u64 {
        weight(self.state.load(Ordering::Acquire))
    }

    /// What the state says now counts: whoever changes it after this look says so.
    #[inline(never)]
    fn note_kinds(&self, kinds: u32) {
        let now = || offers(self.state.load(Ordering::Relaxed));
        let seen = now();
        for kind in Kind::ALL.into_iter().filter(|kind| kinds & kind.bit() != 0) {
            if seen & kind.bit() != 0 {
                self.summary.offer(kind, self.b);
            } else {
                self.summary.withdraw(kind, self.b, || now() & kind.bit() != 0);
            }
        }
    }

    /// I40, at rest: its state counts its frames, denies no run that is there, and the trees
    /// deny nothing that the state offers.
    pub(crate) fn is_told(&self) -> bool {
        let state = self.state.load(Ordering::Acquire);
        let free = core::array::from_fn(|w| self.free_word(w));
        let lost = ((state & LOST) >> LOST_SHIFT) as u32;
        let is_in_trees = |kind: Kind| offers(state) & kind.bit() == 0 || self.summary.says(kind, self.b);
        self.nr_free() == self.nr_free_exact()
            && largest_run(free).min(RUN_ORDER) <= RUN_ORDER - lost.min(RUN_ORDER)
            && Kind::ALL.into_iter().all(is_in_trees)
    }

    /// Whether the trees name it for something that it does not have: a search would come in
    /// vain, once.
    #[cfg(test)]
    pub(crate) fn is_named_in_vain(&self) -> bool {
        let offered = offers(self.state.load(Ordering::Acquire));
        Kind::ALL.into_iter().any(|kind| offered & kind.bit() == 0 && self.summary.says(kind, self.b))
    }

    /// Whether it offers that, for who was sent here. If not, it is taken back what was
    /// said too late.
    pub(crate) fn offers(&self, kind: Kind) -> bool {
        let has = offers(self.state.load(Ordering::Relaxed)) & kind.bit() != 0;
        if !has {
            self.note_kinds(kind.bit());
        }
        has
    }
}

/// All blocks.
pub(crate) struct Blocks {
    pub(crate) data: FrameArray<BlockData>,
    pub(crate) summary: Summary,
}

impl Blocks {
    /// One of them.
    ///
    /// # Panics
    ///
    /// If there is none: numbers are checked where they come from outside.
    #[inline(always)]
    pub(crate) fn at(&self, b: BlockId) -> Block<'_> {
        Block { data: self.data.at(b.0 as usize), b, summary: &self.summary }
    }
    pub(crate) fn nr(&self) -> u64 {
        self.data.len() as u64
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = &BlockData> {
        self.data.iter()
    }
    /// The numbers of all.
    pub(crate) fn names(&self) -> BlockRange {
        BlockRange { start: BlockId(0), end: BlockId(self.nr() as u32) }
    }
    /// Those of some blocks that offer it, from `from` on and around. Each is looked up
    /// when it is asked for.
    pub(crate) fn offering(&self, kind: Kind, some: BlockRange, from: BlockId) -> impl Iterator<Item = BlockId> {
        let from = if some.contains(from) { from } else { some.start };
        let parts = [BlockRange { start: from, ..some }, BlockRange { end: from, ..some }];
        parts.into_iter().flat_map(move |mut part| {
            core::iter::from_fn(move || {
                let b = self.summary.first_in(kind, &part)?;
                part.start = BlockId(b.0 + 1);
                Some(b)
            })
            .filter(move |b| self.at(*b).offers(kind))
        })
    }
    /// The same from the end on.
    pub(crate) fn offering_last(&self, kind: Kind, mut some: BlockRange) -> impl Iterator<Item = BlockId> {
        core::iter::from_fn(move || {
            some.end = self.summary.last_in(kind, &some)?;
            Some(some.end)
        })
        .filter(move |b| self.at(*b).offers(kind))
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
        &self.blocks.data.at(BlockId::of(pfn).0 as usize).folio
    }
}
