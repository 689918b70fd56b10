//! How long ago each frame was seen accessed, in generations, without a list (I47).
//!
//! ```text
//! generation   a count, which advances when the embedder says so
//! age of frame generation now - generation in which it was last seen accessed, 0 to 3
//! use          walks of page tables, and claims of frames, write the generation of now
//! advance      a pass over all blocks moves what is 3 old, in frames in use, to 2: the 3 of the
//!              next generation. Then no frame has the number (modulo 4) that is used next
//! ```
//! In steady state a claim reads one line, which has the ages of 256 frames, and the word of the
//! generation, and writes neither. Free frames have any age. A pass skips them, so memory that was
//! never used is never written.
//!
//! A frame may look younger than it is: a use is recorded in the generation in which the walk
//! began, or a later one. It looks older only to a reader that reads its age before its accessed
//! bit.
//!
//! Locks on entry: none.

use super::block::age::Noted;
use super::generations::{Generation, OLDEST_AGE};
use super::runs::BLOCK_WORDS;
use super::{Frames, Memory};
use crate::addr::{BLOCK_FRAMES, BlockId, Pfn};
use crate::machine::Machine;
use crate::pace::Pace;
use crate::sync;
use crate::table::format::Leaf;

/// Block, word and bit of a frame.
fn place_of(pfn: Pfn) -> (BlockId, usize, u32) {
    (BlockId::of(pfn), pfn.0 as usize / 64 % BLOCK_WORDS, pfn.0 % 64)
}

impl Frames {
    /// Records that the frames `mask` of the 64 from `base` are used or claimed now. Writes only
    /// what differs.
    #[inline]
    pub(crate) fn note_used(&self, base: u64, mask: u64) {
        let (b, w, _) = place_of(Pfn(base as u32));
        let block = self.blocks.at(b).data;
        loop {
            let seen = self.ages.now();
            let is_current = || self.ages.now().generation() == seen.generation();
            match block.set_generation(w, mask, seen.of_age(0), &is_current) {
                Noted::Same => return,
                Noted::Written => {
                    // A pass that has not seen it began by changing the state, before it looked:
                    // then it is seen here that the generation is an old one.
                    sync::fence();
                    if is_current() {
                        return;
                    }
                }
                Noted::Outdated => {}
            }
        }
    }

    /// The same of adjacent frames.
    pub(crate) fn note_run_used(&self, first: Pfn, nr: u64) {
        let (mut at, end) = (u64::from(first.0), u64::from(first.0) + nr);
        while at < end {
            let base = at & !63;
            let nr_here = (end - at).min(base + 64 - at);
            self.note_used(base, !0 >> (64 - nr_here) << (at - base));
            at += nr_here;
        }
    }

    /// Records that the pages of an entry are used now, `nr` from `first` on. A folio of an object
    /// has the age of its head, and is mapped page by page.
    pub(crate) fn note_mapping_used(&self, first: Pfn, nr: u64) {
        self.note_run_used(if nr == 1 { self.head(first) } else { first }, nr);
    }

    /// Records the accessed and dirty bits of an entry of an object's page that is being removed,
    /// in the frame's state and its age. Called before the page can leave its object.
    #[inline]
    pub(crate) fn note_removed(&self, leaf: &Leaf) {
        let head = self.head_of_named(leaf.pfn);
        self.desc(head).note_use(leaf);
        if leaf.accessed {
            self.note_run_used(head, 1);
        }
    }

    /// Records a read of an object's page that was not made through an entry.
    pub(crate) fn note_read(&self, head: Pfn) {
        self.note_run_used(head, 1);
        self.desc(head).note_referenced();
    }

    /// Gives frame `to`, which the caller owns alone, the age of `from`: the page has moved.
    pub(crate) fn carry_age(&self, from: Pfn, to: Pfn) {
        let (b, w, bit) = place_of(to);
        let block = self.blocks.at(b).data;
        loop {
            let seen = self.ages.now();
            let age = seen.age_of(self.generation_of(from));
            // During a pass no CPU writes the generation that it moves away.
            let age = if seen.is_passing() { age.min(OLDEST_AGE - 1) } else { age };
            let is_current = || self.ages.now() == seen;
            match block.set_generation(w, 1 << bit, seen.of_age(age), &is_current) {
                Noted::Same => return,
                Noted::Written => {
                    sync::fence();
                    if is_current() {
                        return;
                    }
                }
                Noted::Outdated => {}
            }
        }
    }

    pub(crate) fn generation_of(&self, pfn: Pfn) -> Generation {
        let (b, w, bit) = place_of(pfn);
        self.blocks.at(b).data.generation_of(w, bit)
    }

    /// Frames in use of one word that have at least that age.
    pub(crate) fn idle_in(&self, b: BlockId, w: usize, age: u32) -> u64 {
        let (block, state) = (self.blocks.at(b), self.ages.now());
        let used = !block.free_word(w);
        if used == 0 {
            return 0;
        }
        used & (age..=OLDEST_AGE).fold(0, |idle, age| idle | block.of_generation(w, state.of_age(age)))
    }
}

impl<M: Machine> Memory<M> {
    /// As [`note_mapping_used`](Frames::note_mapping_used), outside sections: answers other CPUs between the blocks of a
    /// larger page.
    pub(crate) fn note_entry_used(&self, first: Pfn, nr: u64) {
        if nr <= BLOCK_FRAMES {
            return self.frames.note_mapping_used(first, nr);
        }
        let mut pace = Pace::new(&self.machine);
        for at in (0..nr).step_by(BLOCK_FRAMES as usize) {
            pace.page();
            self.frames.note_run_used(Pfn(first.0 + at as u32), BLOCK_FRAMES);
        }
    }
}

/// Frames that were found accessed, gathered by word.
pub(crate) struct UsedBatch<'a> {
    frames: &'a Frames,
    base: u64,
    mask: u64,
}

impl<'a> UsedBatch<'a> {
    pub(crate) fn new(frames: &'a Frames) -> UsedBatch<'a> {
        UsedBatch { frames, base: 0, mask: 0 }
    }
    #[inline]
    pub(crate) fn add(&mut self, pfn: Pfn) {
        let base = u64::from(pfn.0) & !63;
        if base != self.base {
            self.flush();
            self.base = base;
        }
        self.mask |= 1 << (pfn.0 & 63);
    }
    fn flush(&mut self) {
        if self.mask != 0 {
            self.frames.note_used(self.base, core::mem::take(&mut self.mask));
        }
    }
}

impl Drop for UsedBatch<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}
