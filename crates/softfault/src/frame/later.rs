//! Sections of the beginning that nobody has needed yet, where memory is not zero.
//!
//! Their metadata has its place, and is not written: of a terabyte that would be 33 GB before the first
//! program runs. Such a section looks like a hole until its turn comes:
//!
//! ```text
//! turn     whoever begins blocks, now and then; an allocation that finds nothing, before it is refused; an idle CPU
//! section  its metadata is zeroed ─▶ blocks of which each frame is in use ─▶ the tables name them ─▶ each block is released
//! ```
//! The second is what happens to memory that is added (`lay_out.rs`).
//!
//! Locks on entry: none, no section. Takes a lock under which nobody waits for frames.

use super::lay_out::{BLOCK_FRAMES_PER_SECTION, DESC_FRAMES_PER_SECTION};
use super::sections::SECTION_FRAMES;
use super::{Content, Memory};
use crate::addr::Pfn;
use crate::lock::Spin;
use crate::machine::Machine;
use crate::mem;
use crate::sync::{Ordering, Word};

/// Blocks that CPUs begin until the next section gets its turn: half of those in a section, so that there
/// are always more. A guess.
const BLOCKS_PER_TURN: u64 = 32;

/// See the module.
pub(crate) struct Later {
    /// Sections below it have had their turn.
    next: Word,
    /// Frames of those that have not.
    nr_pages: Word,
    /// Blocks that were begun while there were some.
    nr_begun: Word,
    lock: Word,
    /// First frame of the descriptors, and of the blocks, of all sections of the beginning.
    descs_at: Pfn,
    blocks_at: Pfn,
}

impl Later {
    pub(crate) fn new(nr_sections: usize, descs_at: Pfn, blocks_at: Pfn) -> Later {
        let [next, nr_begun, lock] = [0; 3].map(Word::new);
        Later { next, nr_pages: Word::new(nr_sections as u64 * SECTION_FRAMES), nr_begun, lock, descs_at, blocks_at }
    }

    /// Frames of sections that have not had their turn.
    pub(crate) fn nr_pages(&self) -> u64 {
        self.nr_pages.load(Ordering::Relaxed)
    }
}

impl<M: Machine> Memory<M> {
    /// Initialises one more section of 128 MiB, where memory was not zero at the beginning; `false` if there is none.
    /// For idle CPUs: whoever needs memory does the same.
    ///
    /// # Panics
    ///
    /// In a callback ([`Machine`]).
    pub fn initialise_section(&self) -> bool {
        self.assert_outside();
        self.call();
        self.next_section()
    }

    /// A CPU begins a block.
    pub(super) fn next_section_in_time(&self) {
        let later = &self.frames.later;
        if later.nr_pages() != 0
            && later.nr_begun.fetch_add(1, Ordering::Relaxed).is_multiple_of(BLOCKS_PER_TURN)
            && let Some(lock) = Spin::lock_unless(&later.lock, &self.machine, &mut || true)
        {
            self.lay_out_next(&lock);
        }
    }

    /// Whether there is more memory now.
    pub(super) fn next_section(&self) -> bool {
        let later = &self.frames.later;
        let is_some_left = later.nr_pages() != 0;
        if is_some_left {
            // Else somebody else has laid the last one out meanwhile.
            _ = self.lay_out_next(&Spin::lock(&later.lock, &self.machine));
        }
        is_some_left
    }

    fn lay_out_next(&self, _lock: &Spin<'_>) -> bool {
        let (later, descs) = (&self.frames.later, &self.frames.descs);
        let nr_sections = super::Descs::nr_pieces(descs.len());
        let found = (later.next.get() as usize..nr_sections).find_map(|p| descs.later(p).map(|rank| (p, rank)));
        let Some((section, rank)) = found else { return false };
        later.next.set(section as u64 + 1);
        let descs_at = Pfn(later.descs_at.0 + rank * DESC_FRAMES_PER_SECTION);
        let blocks_at = Pfn(later.blocks_at.0 + rank * BLOCK_FRAMES_PER_SECTION);
        mem::zero_frames(&self.machine, descs_at, DESC_FRAMES_PER_SECTION.into());
        mem::zero_frames(&self.machine, blocks_at, BLOCK_FRAMES_PER_SECTION.into());
        self.lay_out(section, descs_at, blocks_at, 0);
        self.bring(section, Content::Unknown);
        later.nr_pages.fetch_sub(SECTION_FRAMES, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
#[path = "later_tests.rs"]
mod tests;
