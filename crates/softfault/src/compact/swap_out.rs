//! Swaps out a private page: the mechanism. The embedder decides which pages, and when.
//!
//! ```text
//! a slot                              swap/area.rs
//! all entries of the frame ─▶ Busy    withdraw.rs
//! slot: entries, frame
//! each entry ─▶ Swap(slot)            from here on faults copy the frame, and calls drop entries
//! the machine writes                  nothing held but the slot
//! slot: written; the frame is freed   or was before, if the last entry is gone
//! ```
//! After the first entry was changed, only the write can fail. Then the slot keeps the frame.
//!
//! Locks on entry: none, no section.

use super::SwapRefusal;
use super::moves::Movable;
use super::withdraw::Tell;
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::Pfn;
use crate::frame::FrameKind;
use crate::machine::{Machine, ask};
use crate::notify::notice::Why;
use crate::source::slot::PageFrame;
use crate::space::Vm;
use crate::table::format::Entry;

impl<M: Machine> Vm<M> {
    /// Writes a page to the swap area, frees its frame, and returns the number of entries that mapped
    /// it. These refer to a slot of the area; a fault swaps the page in for one of them. Works on private
    /// pages of 4 KiB and pages of objects, without pins, in no locked mapping. Subscribers are told.
    ///
    /// The entries of an object's page are removed and not counted: the returned number is 0. The object
    /// keeps the slot. The first fault or access by the handle swaps the page in for all mappings. A page of
    /// a larger folio is split off first, unless the object's least size forbids it. The other pages stay in
    /// their frames, in folios as large as possible, and programs fault on them again.
    ///
    /// # Errors
    ///
    /// [`SwapRefusal`]; the page is still in memory. Nothing has changed, unless the error is
    /// [`NotWritten`](SwapRefusal::NotWritten), except that the folio may have been split.
    pub fn swap_out_frame(&self, pfn: Pfn) -> Result<u64, SwapRefusal> {
        self.assert_outside();
        self.call();
        self.write_out(pfn).inspect_err(|refusal| self.count(refusal.event(), 1))
    }

    fn write_out(&self, pfn: Pfn) -> Result<u64, SwapRefusal> {
        if self.swap.nr_slots() == 0 {
            return Err(SwapRefusal::NoArea);
        }
        let slot = self.swap.claim().ok_or(SwapRefusal::Full)?;
        if let Ok(Movable::OfObject { order, .. }) = self.check_movable(pfn) {
            return self.write_object_page(PageFrame { pfn, order }, slot).map(|()| 0);
        }
        let withdrawn = self
            .withdraw_entries(pfn, Why::SwapOut, Tell::Subscribers)
            .map_err(SwapRefusal::from)
            .and_then(|taken| if taken.any_is_locked() { Err(SwapRefusal::Locked) } else { Ok(taken) });
        let taken = withdrawn.inspect_err(|_| self.swap.unclaim(slot))?;
        let nr_entries = taken.nr_entries();
        self.frames.desc(pfn).assign(FrameKind::Swap, 0, u64::from(slot.0), 0);
        // Before the first entry refers to the slot.
        self.swap.fill(slot, pfn, nr_entries);
        taken.replace_with(Entry::Swap(slot), Some(Rss::Swap));
        let written = ask::swap_out(&self.machine, slot, pfn);
        self.swap_written(slot, written);
        written.map_err(|_| SwapRefusal::NotWritten)?;
        self.count(Event::Pswpout, 1);
        Ok(nr_entries)
    }
}
