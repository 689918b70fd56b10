//! Zeroes a part of a page of an object.
//!
//! Locks on entry: none, no section.

use super::late_calls::CalledFolio;
use super::object_slot::ObjectSlot;
use super::slot::ObjectPage;
use super::swapped::Dropped;
use crate::addr::{PAGE_SIZE, Pfn};
use crate::frame::FolioWait;
use crate::links::Links;
use crate::machine::Machine;
use crate::program;
use crate::space::vma::ObjectId;
use core::ops::Range;

/// A page is swapped out and has to be swapped in first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IsAway;

/// The bytes that are zeroed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ZeroedBytes {
    /// They were the object's.
    Content,
    /// They are about to become the object's, which gets larger. The storage of a file has nothing there, and zeroes afterwards: the folio
    /// stays as clean as it is, so that nobody writes it without having been asked for room.
    BehindEnd,
}

/// The place of the zeroes.
pub(crate) enum Zeroed {
    /// The object does not have the page.
    Missing,
    /// The bytes of the page, which is dirty, or the rest of one that is swapped out. The caller waits for the machine's call for the
    /// folio, with nothing held.
    There(Option<CalledFolio>),
}

/// How to wait before the next look.
enum Wait {
    /// The page was taken out, with its folio, whose head this is.
    Wake(Pfn),
    Sleep(FolioWait),
    Relax,
}

impl<M: Machine> Links<M> {
    /// Zeroes bytes of one page, if the object has it. Needs no lock: waits for a page that is leaving
    /// or in transit, and takes one out that is read from a file. If the page is swapped out and the bytes extend to
    /// its end, only its number of kept bytes is reduced.
    ///
    /// # Errors
    ///
    /// The page is swapped out and bytes after the range have to be kept. The caller has to swap it in
    /// first.
    pub(crate) fn object_zero(&self, id: ObjectId, bytes: Range<u64>, are: ZeroedBytes) -> Result<Zeroed, IsAway> {
        if bytes.is_empty() {
            return Ok(Zeroed::Missing);
        }
        self.fence_reads(id);
        let (at, len) = ((bytes.start % PAGE_SIZE) as usize, (bytes.end - bytes.start) as usize);
        loop {
            let wait = {
                let section = self.section();
                let place = self.object_slot(section.inside(), id, bytes.start / PAGE_SIZE);
                let ObjectSlot::Page(slot) = place else { return Ok(Zeroed::Missing) };
                match slot.page() {
                    ObjectPage::Absent | ObjectPage::Poisoned => return Ok(Zeroed::Missing),
                    ObjectPage::Frame(frame) => {
                        if are == ZeroedBytes::Content || self.object_file(id).is_none() {
                            self.frames.desc(frame.head()).note_written();
                        }
                        program::zero(&self.machine, frame.pfn, at, len);
                        return Ok(Zeroed::There(self.is_called_now(id, bytes.start / PAGE_SIZE, frame.head())));
                    }
                    ObjectPage::Swapped(_) if at + len < PAGE_SIZE as usize => return Err(IsAway),
                    ObjectPage::Swapped(swapped) if slot.keep_at_most(swapped, at as u64) => {
                        return Ok(Zeroed::There(None));
                    }
                    // Nobody waits for a fill here: the page is filled again, if it is wanted.
                    ObjectPage::InTransit(pfn) => match self.has_fills(id).then(|| slot.drop_fill()).flatten() {
                        Some(Dropped::InTransit(head)) => Wait::Wake(head),
                        Some(_) => Wait::Relax,
                        None => Wait::Sleep(self.join_folio(section.inside(), &place, pfn)),
                    },
                    ObjectPage::Filling | ObjectPage::Leaving(_) | ObjectPage::Swapped(_) => Wait::Relax,
                }
            };
            match wait {
                Wait::Wake(head) => self.folio_waits.wake_now(head, &self.machine),
                Wait::Sleep(wait) => self.wait_for_folio(wait),
                Wait::Relax => self.machine.relax(),
            }
        }
    }
}
