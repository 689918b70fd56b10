//! The object's side of pages that leave it while it lives on.
//!
//! ```text
//! bar      the word of each page is marked as leaving
//! ...      the caller: grace; moves that are under way; removal of every entry (`rmap/object.rs`)
//! free     the words are emptied; a frame that nothing pins is freed, one that is
//!          pinned is an orphan, which its last pin frees
//! ```
//! Locks on entry: the object's `resize`, no section.

use super::object::ObjectPage;
use crate::addr::{ObjectPages, PAGE_SIZE};
use crate::frame::FreeBatch;
use crate::links::Links;
use crate::machine::Machine;
use crate::program;
use crate::space::vma::ObjectId;
use crate::sync::{Ordering, Word};
use core::ops::{ControlFlow, Range};

impl<M: Machine> Links<M> {
    /// The first of these pages that is there.
    pub(crate) fn object_next_page(&self, id: ObjectId, pages: ObjectPages) -> Option<u64> {
        let mut found = None;
        let _ = self.for_each_page(id, pages, &mut |index, _| {
            found = Some(index);
            ControlFlow::Break(())
        });
        found
    }

    /// Marks the pages that are there. After the next grace period of all CPUs nobody maps,
    /// reads or writes one of them anew.
    pub(crate) fn object_bar(&self, id: ObjectId, pages: ObjectPages) {
        let _ = self.for_each_page(id, pages, &mut |_, word| {
            ObjectPage::begin_to_leave(word);
            ControlFlow::Continue(())
        });
    }

    /// Waits until nobody moves one of these pages, which are barred: no move begins. A mover
    /// waits for sections, shootdowns, `Busy` entries and subscribers.
    pub(crate) fn wait_for_moves(&self, id: ObjectId, pages: ObjectPages) {
        let _ = self.for_each_page(id, pages, &mut |_, word| {
            while ObjectPage::is_moving(word) {
                self.machine.relax();
            }
            ControlFlow::Continue(())
        });
    }

    /// Whether an entry may map one of these pages. Exact for pages that are barred, after
    /// the grace period.
    pub(crate) fn object_was_mapped(&self, id: ObjectId, pages: ObjectPages) -> bool {
        let was_mapped = |word: &Word| match ObjectPage::of(word) {
            ObjectPage::Absent => false,
            ObjectPage::Frame(pfn) | ObjectPage::Leaving(pfn) => self.frames.desc(pfn).state().was_mapped(),
        };
        let walked = self.for_each_page(id, pages, &mut |_, word| {
            if was_mapped(word) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        walked.is_break()
    }

    /// Takes out the pages that were barred: no entry maps them any more.
    pub(crate) fn object_free(&self, id: ObjectId, pages: ObjectPages) {
        let mut batch = FreeBatch::new(self);
        let _ = self.for_each_page(id, pages, &mut |_, word| {
            if let ObjectPage::Leaving(pfn) = ObjectPage::of(word) {
                debug_assert!(!ObjectPage::is_moving(word), "I22: moves have ended");
                // Whoever fills the page again acquires this.
                word.store(0, Ordering::Release);
                if self.frames.desc(pfn).orphan() {
                    batch.add(pfn);
                }
            }
            ControlFlow::Continue(())
        });
    }

    /// Zeroes bytes of one page, if it is there. Needs no lock: waits for a page that is
    /// leaving.
    pub(crate) fn object_zero(&self, id: ObjectId, bytes: Range<u64>) {
        if bytes.is_empty() {
            return;
        }
        loop {
            let section = self.section();
            match self.object_slot(section.inside(), id, bytes.start / PAGE_SIZE).page() {
                ObjectPage::Absent => return,
                ObjectPage::Frame(pfn) => {
                    self.frames.desc(pfn).note_written();
                    let (at, len) = ((bytes.start % PAGE_SIZE) as usize, (bytes.end - bytes.start) as usize);
                    return program::zero(&self.machine, pfn, at, len);
                }
                ObjectPage::Leaving(_) => drop(section),
            }
            self.machine.relax();
        }
    }
}
