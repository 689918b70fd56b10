//! Deferred sections: initial memory sections that are initialised when they are needed, if memory
//! is not zero at boot.
//!
//! Their metadata has its place and is not written: for a terabyte that would be 33 GB before the first
//! program runs. Such a section looks like a hole until its turn comes:
//!
//! ```text
//! turn     a CPU that begins blocks, now and then; an allocation that finds nothing, before it is refused; an idle CPU
//! section  its metadata is zeroed ─▶ blocks of which each frame is in use ─▶ the tables name them ─▶ each block is released
//! ```
//! Added memory is initialised in the same way (`lay_out.rs`).
//!
//! Locks on entry: none, no section. Takes a lock under which no CPU waits for frames.

use super::lay_out::{BLOCK_FRAMES_PER_MEM_SECTION, DESC_FRAMES_PER_MEM_SECTION};
use super::mem_sections::MEM_SECTION_FRAMES;
use super::{Content, Memory};
use crate::addr::Pfn;
use crate::lock::Spin;
use crate::machine::{LockKind, Machine};
use crate::mem;
use crate::sync::{Ordering, Word};

/// Blocks that CPUs begin until the next section has its turn: half of those in a section, so that blocks
/// never run out. A guess.
const BLOCKS_PER_TURN: u64 = 32;

/// See the module.
pub(crate) struct DeferredSections {
    /// Sections below it have had their turn.
    next: Word,
    /// Frames of those that have not.
    nr_pages: Word,
    /// Blocks that were begun while there were deferred sections.
    nr_begun: Word,
    lock: Word,
    /// First frame of the descriptors, and of the blocks, of all initial sections.
    descs_at: Pfn,
    blocks_at: Pfn,
}

impl DeferredSections {
    pub(crate) fn new(nr_sections: usize, descs_at: Pfn, blocks_at: Pfn) -> DeferredSections {
        let [next, nr_begun, lock] = [0; 3].map(Word::new);
        DeferredSections {
            next,
            nr_pages: Word::new(nr_sections as u64 * MEM_SECTION_FRAMES),
            nr_begun,
            lock,
            descs_at,
            blocks_at,
        }
    }

    /// Frames of sections that have not had their turn.
    pub(crate) fn nr_pages(&self) -> u64 {
        self.nr_pages.load(Ordering::Acquire)
    }
}

impl<M: Machine> Memory<M> {
    /// Initialises one more section of 128 MiB, where memory was not zero at the beginning; `false` if there is none.
    /// For idle CPUs: an allocation that needs memory does the same.
    ///
    /// # Panics
    ///
    /// In a callback ([`Machine`]).
    pub fn initialise_section(&self) -> bool {
        self.assert_outside();
        self.call();
        self.next_section()
    }

    /// Lays out a section now and then, when a CPU begins a block.
    pub(super) fn next_section_in_time(&self) {
        let deferred = &self.frames.deferred;
        if deferred.nr_pages() != 0
            && deferred.nr_begun.fetch_add(1, Ordering::Relaxed).is_multiple_of(BLOCKS_PER_TURN)
            && let Some(lock) = Spin::lock_unless(LockKind::Deferred, &deferred.lock, &self.machine, &mut || true)
        {
            self.lay_out_next(&lock);
        }
    }

    /// Whether there is more memory now.
    pub(super) fn next_section(&self) -> bool {
        let deferred = &self.frames.deferred;
        let is_some_left = deferred.nr_pages() != 0;
        if is_some_left {
            // Else another CPU has laid out the last one meanwhile.
            _ = self.lay_out_next(&Spin::lock(LockKind::Deferred, &deferred.lock, &self.machine));
        }
        is_some_left
    }

    /// Whether there is more memory than when so many pages had not had their turn: another CPU may have laid out the last
    /// section after the caller's search.
    pub(super) fn has_more_since(&self, nr_deferred: u64) -> bool {
        self.next_section() || self.frames.deferred.nr_pages() != nr_deferred
    }

    fn lay_out_next(&self, _lock: &Spin<'_, M>) -> bool {
        let (deferred, descs) = (&self.frames.deferred, &self.frames.descs);
        let nr_sections = super::Descs::nr_pieces(descs.len());
        let found = (deferred.next.get() as usize..nr_sections).find_map(|p| descs.deferred(p).map(|rank| (p, rank)));
        let Some((section, rank)) = found else { return false };
        deferred.next.set(section as u64 + 1);
        let descs_at = Pfn(deferred.descs_at.0 + rank * DESC_FRAMES_PER_MEM_SECTION);
        let blocks_at = Pfn(deferred.blocks_at.0 + rank * BLOCK_FRAMES_PER_MEM_SECTION);
        mem::zero_frames(&self.machine, descs_at, DESC_FRAMES_PER_MEM_SECTION.into());
        mem::zero_frames(&self.machine, blocks_at, BLOCK_FRAMES_PER_MEM_SECTION.into());
        self.lay_out(section, descs_at, blocks_at, 0);
        self.bring(section, Content::Unknown);
        deferred.nr_pages.fetch_sub(MEM_SECTION_FRAMES, Ordering::Release);
        true
    }
}

#[cfg(test)]
#[path = "deferred_tests.rs"]
mod tests;
