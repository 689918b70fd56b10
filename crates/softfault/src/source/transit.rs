//! Pages of objects on their way to the swap area and back.
//!
//! ```text
//! out    the page is marked as moving, no entry or pin is left     compact/object_out.rs
//!        folio locked ─▶ word: in transit ─▶ the machine writes
//!        folio unlocked ─▶ word: swapped, or the frame if it was not written ─▶ waiters are woken
//! in     section: a frame ─▶ word: in transit ─▶ its folio locked; the object is kept
//!        the machine reads ─▶ bytes that are not kept are zeroed
//!        folio unlocked ─▶ word: the frame, or swapped if it was not read ─▶ waiters are woken
//! ```
//! The word is changed by compare-and-swap, so the first fault reads the page for all that want it. If
//! the page was removed meanwhile, frame and slot are freed at the end. The reader or writer keeps the
//! object, so it does not end before. Nothing else is held while the machine works: not even frames,
//! because the one that is read into is in use.
//!
//! The folio is unlocked before the word changes, because afterwards the frame may be reused. A
//! fault that comes between the two finds the folio unlocked and starts over.
//!
//! Locks on entry: none, no section, unless a function says so.

use super::keep::KeptObject;
use super::object_slot::ObjectSlot;
use super::slot::{LostFill, ObjectPage, PageSlot};
use super::swapped::{Dropped, Swapped};
use crate::account::Event;
use crate::addr::{Order, PAGE_SIZE, Pfn};
use crate::frame::{Fill, FolioWait, FolioWaits, Io};
use crate::links::Links;
use crate::machine::{Machine, SwapError, ask};
use crate::program;
use crate::section::InSection;
use crate::space::vma::ObjectId;

/// A page in transit, whose object is kept. Has to be finished.
#[must_use]
pub(crate) struct Transit<'vm, M: Machine> {
    object: KeptObject<'vm, M>,
    page: u64,
    swapped: Swapped,
    pfn: Pfn,
}

/// The machine could not read the page. It is in the swap area still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotRead;

impl<M: Machine> Links<M> {
    /// Returns how to wait until a folio is not locked. In the section in which a page was found in transit in it.
    pub(crate) fn join_folio(&self, inside: InSection<'_>, at: &ObjectSlot<'_>, head: Pfn) -> FolioWait {
        self.assert_inside(inside);
        let wait = self.folio_waits.join(head, self.frames.desc(head));
        // The frame may belong to another folio by now, which may be locked for ever. A page that is still in transit
        // there has not given its frame back.
        if at.page() == ObjectPage::InTransit(head) { wait } else { FolioWaits::not_any_more(wait) }
    }

    /// Waits, perhaps not long enough: the caller looks again. With nothing held.
    pub(crate) fn wait_for_folio(&self, wait: FolioWait) {
        self.count(Event::Waited, 1);
        self.folio_waits.wait(wait, &self.machine);
    }

    /// Begins to read a page into a frame that the caller owns alone. In the section in which it was found
    /// swapped out.
    ///
    /// # Errors
    ///
    /// Another CPU was first; the caller still owns the frame.
    pub(crate) fn begin_to_read<'s>(
        &'s self,
        inside: InSection<'_>,
        (id, page): (ObjectId, u64),
        at: PageSlot<'_>,
        swapped: Swapped,
        pfn: Pfn,
    ) -> Result<Transit<'s, M>, LostFill> {
        at.begin_read(swapped, pfn)?;
        // After the word: a CPU that loses locks nothing. A CPU may still be looking for the lock of a page
        // that this frame had before, and would sleep, and nobody would wake it. A CPU that finds the word
        // before the lock looks again.
        self.frames.desc(pfn).assign_reading(Order::BASE, id.0, page);
        Ok(Transit { object: self.object_keep_found(inside, id), page, swapped, pfn })
    }

    /// The page, which the caller has marked as moving, is going to be written to a slot of which
    /// it has the one entry. No entry names its frame, nothing pins it.
    ///
    /// # Errors
    ///
    /// The page is about to leave the object: nothing has changed.
    pub(crate) fn begin_to_write<'vm>(
        &'vm self,
        object: KeptObject<'vm, M>,
        page: u64,
        pfn: Pfn,
        swapped: Swapped,
    ) -> Result<Transit<'vm, M>, KeptObject<'vm, M>> {
        let desc = self.frames.desc(pfn);
        desc.begin_writeback();
        if self.with_slot(&object, page, |slot| slot.begin_write(pfn, swapped)) == Some(true) {
            return Ok(Transit { object, page, swapped, pfn });
        }
        let _nobody_knew = desc.end_writeback();
        Err(object)
    }

    /// Takes a page out that is swapped out or in transit; whether it was. Outside sections.
    pub(super) fn drop_away(&self, slot: PageSlot<'_>) -> bool {
        match slot.drop_away() {
            Dropped::Slot(slot) => self.swap_drop(slot),
            Dropped::InTransit(head) => self.folio_waits.wake_now(head, &self.machine),
            Dropped::Arriving => {
                self.machine.relax();
                return false;
            }
            Dropped::NotAway => return false,
        }
        true
    }

    fn free_after_transit(&self, pfn: Pfn) {
        self.frames.desc(pfn).clear();
        self.give_back(pfn, Fill::Raw);
    }
}

impl<M: Machine> Transit<'_, M> {
    /// Reads the page, and gives it to the object. It may be found in the object afterwards, or be
    /// gone from it, or away once more.
    pub(crate) fn read_in(self) -> Result<(), NotRead> {
        let Transit { object, page, swapped, pfn } = &self;
        let links = object.links();
        let io = Io::of(ask::swap_in(&links.machine, swapped.slot, *pfn));
        if io == Io::Done {
            links.count(Event::Pswpin, 1);
            program::zero(&links.machine, *pfn, swapped.nr_kept as usize, (PAGE_SIZE - swapped.nr_kept) as usize);
        }
        let unlocked = links.frames.desc(*pfn).end_reading(io);
        let is_there = links.with_slot(object, *page, |slot| slot.end_read(*swapped, *pfn, io)) == Some(true);
        links.folio_waits.wake(*pfn, unlocked, &links.machine);
        if io == Io::Done || !is_there {
            links.swap_drop(swapped.slot);
        }
        if io == Io::Failed || !is_there {
            links.free_after_transit(*pfn);
        }
        if io == Io::Done { Ok(()) } else { Err(NotRead) }
    }

    /// Writes the page. If that fails it is in the object still.
    pub(crate) fn write_out(self) -> Result<(), SwapError> {
        let Transit { object, page, swapped, pfn } = &self;
        let links = object.links();
        let written = ask::swap_out(&links.machine, swapped.slot, *pfn);
        let io = Io::of(written);
        links.swap_written(swapped.slot, written);
        let unlocked = links.frames.desc(*pfn).end_writeback();
        let is_there = links.with_slot(object, *page, |slot| slot.end_write(*swapped, *pfn, io)) == Some(true);
        links.folio_waits.wake(*pfn, unlocked, &links.machine);
        if io == Io::Failed || !is_there {
            links.swap_drop(swapped.slot);
        }
        if io == Io::Done || !is_there {
            links.free_after_transit(*pfn);
        }
        written
    }
}

#[cfg(test)]
#[path = "transit_tests.rs"]
mod tests;
