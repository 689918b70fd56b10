//! Zeroes by an object's handle, and holes in what is in a file, too.
//!
//! A storage is zeroed before its pages are, and perhaps once more afterwards, since a call of the machine may have stored old bytes
//! meanwhile. Three ways in which that could fail:
//!
//! - a page that stays is zeroed in the storage a second time, after a store to it was written (`a_store_to_zeroes_that_stay_is_kept`);
//! - one that has left, or that an earlier removal took out, is not, and its old bytes come back (`a_hole_tells_what_has_left`);
//! - one that stays is never written, and the storage keeps the old bytes (`zeroes_wait_for_the_call_that_writes_their_page`).
//!
//! Locks on entry: none, no section.

use super::handle::SharedObject;
use super::write_error::ObjectWriteError;
use crate::addr::{ObjectPages, PAGE_SIZE};
use crate::machine::Machine;
use core::ops::Range;

impl<M: Machine> SharedObject<'_, M> {
    /// Zeroes bytes: whole pages as [`discard`](Self::discard) does, about which see there; the ends in place, after which it
    /// waits for a call of [`Machine::write_back`] that writes one of the two, or what a removal has taken out there, too.
    ///
    /// # Errors
    ///
    /// [`ObjectWriteError`]: the first or last page, of which bytes stay, was swapped out, and cannot be
    /// brought back. Bytes before it are zero.
    pub fn zero(&self, bytes: Range<u64>) -> Result<(), ObjectWriteError> {
        self.make_hole(bytes).map(|_| ())
    }

    /// The same, for a file: the storage has the hole already, and fills of it wait until the caller has gone on. Returns the bytes of the
    /// pages that have left the object, or that it did not have. Calls of [`Machine::write_back`] may have stored old bytes of these
    /// meanwhile, so a storage whose writes do not stay under way is zeroed there once more. The others are zero in folios that stay, and dirty. They may
    /// have been stored to and written since: a storage that is zeroed there would lose these stores. Nothing lies behind the size.
    ///
    /// # Errors
    ///
    /// As for [`zero`](Self::zero).
    pub fn make_hole(&self, bytes: Range<u64>) -> Result<Range<u64>, ObjectWriteError> {
        self.vm.call();
        self.may_be_written()?;
        let (start, end) = (bytes.start, bytes.end.min(self.size_bytes()));
        if start >= end {
            return Ok(start..start);
        }
        let first_whole = start.next_multiple_of(PAGE_SIZE);
        if first_whole >= end {
            return self.zero_part(start..end).map(|is_there| if is_there { end..end } else { start..end });
        }
        let whole = ObjectPages::from(first_whole / PAGE_SIZE..end / PAGE_SIZE);
        let is_first_there = self.zero_part(start..first_whole)?;
        let gone = self.vm.object_discard(self.id, whole);
        let is_last_there = self.zero_part(whole.end * PAGE_SIZE..end)?;
        // A folio that stays at an end of the whole pages has the part of a page beside it, too.
        let from = if is_first_there || gone.start > whole.start { gone.start * PAGE_SIZE } else { start };
        let to = if is_last_there || gone.end < whole.end { gone.end * PAGE_SIZE } else { end };
        Ok(from.min(to)..to)
    }

    /// Zeroes bytes of one page: a store, for which there must be room. Whether the object has the page, or there are no bytes.
    fn zero_part(&self, bytes: Range<u64>) -> Result<bool, ObjectWriteError> {
        if bytes.is_empty() {
            return Ok(true);
        }
        let index = bytes.start / PAGE_SIZE;
        if let Some(pages) = self.vm.pages_of_clean(self.id, index) {
            self.vm.ask_for_room(self.id, index, pages)?;
        }
        self.vm.object_bring_and_zero(self.id, bytes)
    }
}
