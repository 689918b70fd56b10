//! A block of 512 frames, 2 MiB: which are free, and which of these may not be zero.

use super::class::{CLASS_MARKS, Class};
use super::folio::FolioData;
use super::generations::AGE_WORDS;
use super::offers::{
    COUNT, DIRTY, LOST, LOST_SHIFT, RESERVED, RESERVED_SHIFT, SEEN, changed, has_run, more_used, offers, weight,
};
use super::runs::{BLOCK_WORDS, RUN_ORDER, largest_run};
use super::summary::{Kind, Summary};
use super::tails::Tails;
use super::want::Content;
use crate::addr::{BLOCK_FRAMES, BlockId, Order};

use crate::sync::{Ordering, Word};
use core::ops::Deref;

pub(super) mod age;
mod claim;
mod hole;
mod lost_runs;
mod pool;
mod release;

/// One block. It fills whole cache lines, so that CPUs that use different blocks write different
/// lines. A claim writes the state and a word of `used`, which share a line but for the last word.
#[repr(C, align(64))]
pub struct BlockData {
    /// `offers.rs` has its bits.
    pub(crate) state: Word,
    /// Bit clear: the frame is free. This bitmap alone decides.
    used: [Word; BLOCK_WORDS],
    /// The folio that fills the block, if there is one.
    pub(crate) folio: FolioData,
    /// Bit set: the frame, if it is free, may have any content; clear: it is all zero. Means
    /// nothing for frames in use, so that claiming one need not write it.
    pub(crate) dirty: [Word; BLOCK_WORDS],
    /// Bit set: the frame belongs to a folio of an object and is not its head.
    pub(crate) tails: Tails,
    /// Two bits of age of each frame: see `age.rs`.
    pub(crate) age: [Word; AGE_WORDS],
}

/// A line has the state and the first seven words.
const _: () = assert!(core::mem::offset_of!(BlockData, used) == 8 && core::mem::offset_of!(BlockData, dirty) == 128);

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
    /// The tag of the reservation's owner, 0 if there is none.
    pub(crate) fn owner(&self) -> u64 {
        (self.state.load(Ordering::Relaxed) & RESERVED) >> RESERVED_SHIFT
    }
    /// The class of the strongest mark.
    #[inline(always)]
    pub(crate) fn class(&self) -> Class {
        Class::of_state(self.state.load(Ordering::Relaxed))
    }
    /// Whether the owner of `tag` may find 2^order adjacent free frames, according to the state.
    pub(crate) fn may_have_run(&self, tag: u64, order: Order) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        let owner = (state & RESERVED) >> RESERVED_SHIFT;
        (owner == tag || owner == 0) && has_run(state, order.0.into())
    }
    /// Order of the largest run of free frames, at most 8. Reads the bitmap.
    pub(super) fn largest_run(&self) -> u32 {
        largest_run(core::array::from_fn(|w| self.free_word(w)))
    }
    /// Whether all frames that are free are zero.
    pub(crate) fn is_clean(&self) -> bool {
        self.dirty.iter().all(|w| w.load(Ordering::Relaxed) == 0)
    }
}

/// One of the [`Blocks`](super::Blocks): every change of its state goes through this, and is noted in the
/// summaries (I40).
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    pub(super) data: &'a BlockData,
    pub(super) b: BlockId,
    pub(super) summary: &'a Summary,
}

impl Deref for Block<'_> {
    type Target = BlockData;
    #[inline(always)]
    fn deref(&self) -> &BlockData {
        self.data
    }
}

impl Block<'_> {
    /// Initialises a word: frames that do not exist or are in use, and which of the others may not
    /// be zero.
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
        let fixed = Kind::Fixed.bit() | Kind::Unseen.bit();
        let heard = if self.class() == Class::Fixed { fixed } else { 0 };
        self.note(offers(0) ^ offers(self.state.get()) | heard);
        self.weigh(more_used(0, self.state.get()));
    }

    /// Reserves it for the owner of `tag`; `false` if another has reserved it.
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

    /// Adds the mark of a class: a frame in use is of that class now, or frames for it will come
    /// from here.
    pub(crate) fn mark(&self, class: Class) {
        if self.state.load(Ordering::Relaxed) & class.mark() != class.mark() {
            let before = self.state.fetch_or(class.mark(), Ordering::AcqRel);
            self.note(changed(before, before | class.mark()));
        }
    }

    /// Makes it of that class, unless it is of a stronger one. Returns whether it was of a weaker one.
    /// The caller has a frame of it.
    pub(crate) fn raise(&self, class: Class) -> bool {
        let was_weaker = self.class() < class;
        if was_weaker {
            self.mark(class);
        }
        was_weaker
    }

    /// Changes the class to `to` from `from`, which is stronger.
    pub(crate) fn weaken(&self, from: Class, to: Class) {
        self.mark(to);
        let before = self.state.fetch_and(!from.mark(), Ordering::AcqRel);
        self.note(changed(before, before & !from.mark()));
    }

    /// Its runs are looked for, and named from now on.
    pub(crate) fn see_runs(&self) {
        let before = self.state.fetch_or(SEEN, Ordering::AcqRel);
        self.note(changed(before, before | SEEN));
        self.lose_runs();
    }

    /// Clears all marks: the caller owns all frames.
    pub(crate) fn unmark(&self) {
        if self.state.load(Ordering::Relaxed) & CLASS_MARKS != 0 {
            let before = self.state.fetch_and(!(CLASS_MARKS | SEEN), Ordering::AcqRel);
            self.note(changed(before, before & !(CLASS_MARKS | SEEN)));
        }
    }

    /// Updates the summaries after a change of the state that added or removed kinds.
    #[inline(always)]
    fn note(&self, kinds: u32) {
        if kinds != 0 {
            self.note_kinds(kinds);
        }
    }

    /// Updates the summaries' count of frames in use (I41).
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

    /// The state counts as it is now: a CPU that changes it after this look updates the summaries.
    #[inline(never)]
    fn note_kinds(&self, kinds: u32) {
        let now = || offers(self.state.load(Ordering::Relaxed));
        let seen = now();
        for kind in Kind::of_bits(kinds) {
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

    /// Whether the summaries name it for a kind that it does not offer: one search would try it in
    /// vain.
    #[cfg(test)]
    pub(crate) fn is_named_in_vain(&self) -> bool {
        let offered = offers(self.state.load(Ordering::Acquire));
        let mut noted = Kind::ALL.into_iter().filter(|kind| !matches!(kind, Kind::Pool2M | Kind::Pool1G));
        noted.any(|kind| offered & kind.bit() == 0 && self.summary.says(kind, self.b))
    }

    /// Whether it offers the kind, for a search that was sent here. If not, clears the outdated
    /// bit.
    pub(crate) fn offers(&self, kind: Kind) -> bool {
        let has = offers(self.state.load(Ordering::Relaxed)) & kind.bit() != 0;
        if !has {
            self.note_kinds(kind.bit());
        }
        has
    }
}
