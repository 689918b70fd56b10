//! Swaps a page in for the holder of an object's handle, who reads it or zeroes a part.
//!
//! The frame comes first, as for a fault (`fault/shared.rs`). A caller that waits for a frame holds
//! nothing, and nothing is held while the machine reads.
//!
//! Locks on entry: none, no section.

use super::object_slot::ObjectSlot;
use super::slot::ObjectPage;
use super::transit::NotRead;
use super::write_error::ObjectWriteError;
use super::zero::{IsAway, Zeroed, ZeroedBytes};
use crate::addr::{ObjectPages, PAGE_SIZE};
use crate::frame::Fill;
use crate::machine::Machine;
use crate::space::Vm;
use crate::space::vma::ObjectId;
use core::ops::Range;

impl<M: Machine> Vm<M> {
    /// Swaps a page in, if it is swapped out. It may be swapped out again before the caller reads it.
    ///
    /// # Errors
    ///
    /// [`ObjectWriteError`]; the page has not changed.
    pub(crate) fn object_bring(&self, id: ObjectId, page: u64) -> Result<(), ObjectWriteError> {
        let (pfn, held) = self.until_reclaimed(&mut || self.obtain_held(Fill::Shared))?;
        let begun = {
            let section = self.section();
            let slot = self.object_slot(section.inside(), id, page);
            match (slot.page(), slot) {
                (ObjectPage::Swapped(swapped), ObjectSlot::Page(at)) => {
                    self.begin_to_read(section.inside(), (id, page), at, swapped, pfn).ok()
                }
                _ => None,
            }
        };
        let Some(transit) = begun else {
            self.frames.desc(pfn).clear();
            self.give_back(pfn, Fill::Shared);
            return Ok(());
        };
        // In use.
        drop(held);
        transit.read_in().map_err(|NotRead| ObjectWriteError::NotRead)
    }

    /// Zeroes bytes of one page. Then waits for the machine's call that writes it, if there is one, also if a removal has taken the page
    /// out during the call. Returns whether the object has the page, which is dirty then.
    ///
    /// # Errors
    ///
    /// [`ObjectWriteError`]; the page has not changed.
    pub(crate) fn object_bring_and_zero(&self, id: ObjectId, bytes: Range<u64>) -> Result<bool, ObjectWriteError> {
        let zeroed = loop {
            match self.object_zero(id, bytes.clone(), ZeroedBytes::Content) {
                Ok(zeroed) => break zeroed,
                Err(IsAway) => self.object_bring(id, bytes.start / PAGE_SIZE)?,
            }
        };
        // After the look at the page: a removal counts before it empties the place.
        let page = bytes.start / PAGE_SIZE;
        let earlier = self.late_calls_of(id, ObjectPages { start: page, end: page + 1 });
        if let Zeroed::There(Some(called)) = zeroed {
            self.wait_for_call(id, called);
        }
        if let Some(before) = earlier {
            self.wait_for_calls_since(id, before);
        }
        Ok(matches!(zeroed, Zeroed::There(_)))
    }
}
