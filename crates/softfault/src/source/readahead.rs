//! Reads the pages of a file that are likely to be used next.
//!
//! ```text
//! section  a page is missing ─▶ window: by the pages before it        policy/readahead.rs
//!          its own folio, no longer than that, is in transit           file.rs
//! outside  own folio is read ─▶ each missing folio of the rest: frames, if there are any ─▶ in transit ─▶ the machine
//! ```
//! Where the machine answers later, the next window begins before the last one is used up: a read fault whose page is there
//! looks whether the page a quarter of a window behind those that it has mapped is missing. Nothing marks that place: once
//! the window is in transit, the look finds it.
//!
//! Reading ahead reports no error: where no frame is found without the last resort, or the machine cannot read, the window
//! ends, and faults read the rest. A machine whose fills stay under way gets all of a window at once.
//!
//! Locks on entry: none, no section, unless a function says so.

use super::file::Ahead;
use super::slot::{ObjectPage, PageFrame};
use super::transit::NotRead;
use crate::addr::{Order, PAGE_SIZE};
use crate::frame::{Content, Fill};
use crate::links::Links;
use crate::machine::{FileId, Machine};
use crate::policy::folio::around;
use crate::policy::readahead::{Pattern, ReadaheadQuestion, next_window, window};
use crate::section::InSection;
use crate::space::vma::ObjectId;
use crate::sync::Ordering;
use core::ops::Range;

/// The part of memory that may be under way before nothing more is read ahead: an eighth.
const MOST_UNDER_WAY: u64 = 8;

impl<M: Machine> Links<M> {
    /// Chooses the pages to read where a page of a file is missing. In the section in which it was found.
    pub(crate) fn readahead_window(
        &self,
        inside: InSection<'_>,
        id: ObjectId,
        index: u64,
        pattern: Pattern,
    ) -> Range<u64> {
        let most_pages = self.tunables.readahead_bytes / PAGE_SIZE;
        let question = ReadaheadQuestion { index, nr_pages: self.object_nr_pages(id), most_pages, pattern };
        window(&question, &mut |page| self.object_slot(inside, id, page).page() != ObjectPage::Absent)
    }

    /// Whether reads of the object's file are answered later, so that it pays to begin them early.
    #[inline]
    pub(crate) fn answers_later(&self, id: ObjectId) -> bool {
        self.object(id).answers_later.load(Ordering::Relaxed) != 0
    }

    /// The next window of a stream, of which a read fault has mapped pages up to `last`, if it is to be read now. In the
    /// section of the fault; keeps the object.
    pub(crate) fn next_window_ahead(
        &self,
        inside: InSection<'_>,
        id: ObjectId,
        last: u64,
        pattern: Pattern,
    ) -> Option<Ahead<'_, M>> {
        let most_pages = self.tunables.readahead_bytes / PAGE_SIZE;
        let question = ReadaheadQuestion { index: last, nr_pages: self.object_nr_pages(id), most_pages, pattern };
        let pages =
            next_window(&question, &mut |page| self.object_slot(inside, id, page).page() != ObjectPage::Absent)?;
        self.object_file(id)?;
        Some(Ahead::of(self.object_keep_found(inside, id), pages))
    }

    /// Whether so many pages are under way that no more should be read ahead of any program: they cannot be dropped, and
    /// allocations would be refused.
    fn has_many_under_way(&self) -> bool {
        let most = self.nr_total_pages.load(Ordering::Relaxed) / MOST_UNDER_WAY;
        self.under_way.0.load(Ordering::Relaxed) as i64 >= most as i64
    }

    /// Reads the pages that are missing, while there are frames, and few pages under way. Waits only if the machine does.
    pub(crate) fn read_ahead(&self, ahead: Option<Ahead<'_, M>>) {
        let Some(Ahead { object, pages }) = ahead else { return };
        let mut at = pages.start;
        while at < pages.end && !self.has_many_under_way() {
            match self.read_folio_ahead(object.id, at, pages.end) {
                Ok(Some(order)) => at = around(at, order).end,
                // A node has come, or another CPU was first.
                Ok(None) => {}
                Err(NotRead) => return,
            }
            self.machine.relax();
        }
    }

    /// Reads the folio around a page, if the page is missing. Returns the order of the folio there. `None` if only a node was
    /// missing, and is there now.
    fn read_folio_ahead(&self, id: ObjectId, index: u64, end: u64) -> Result<Option<Order>, NotRead> {
        let (order, file) = match self.missing_ahead(id, index, end)? {
            Missing::Nothing => return Ok(Some(Order::BASE)),
            Missing::Node(order) => return self.put_node_ahead(id, index, order),
            Missing::Folio(order, file) => (order, file),
        };
        let (pfn, held) = if order == Order::BASE {
            self.obtain_held_if_found(Fill::Shared).map_err(|_| NotRead)?
        } else {
            self.obtain_folio_if_found(order, 0).map_err(|_| NotRead)?
        };
        let begun = {
            let section = self.section();
            let place = self.object_slot(section.inside(), id, index);
            let is_inside = index < self.object_nr_pages(id);
            let at = place.place_of(order).filter(|_| is_inside && place.page() == ObjectPage::Absent);
            let head = PageFrame { pfn, order };
            at.and_then(|at| self.begin_to_read_file(section.inside(), (id, index, file), at, head).ok())
        };
        // In use, or given back.
        match begun {
            Some(read) => {
                drop(held);
                let _none_after_it = read.read_after(&mut None)?;
            }
            None if order == Order::BASE => self.give_back(pfn, Fill::Shared),
            None => self.release_run(pfn, order.nr_pages(), Content::Zero),
        }
        Ok(Some(order))
    }

    /// Puts a node on the way to a folio of that order.
    fn put_node_ahead(&self, id: ObjectId, index: u64, order: Order) -> Result<Option<Order>, NotRead> {
        let (pfn, held) = self.obtain_held_if_found(Fill::Fixed).map_err(|_| NotRead)?;
        let is_put = {
            let section = self.section();
            let place = self.object_slot(section.inside(), id, index);
            place.place_of(order).is_none() && self.object_fill_node(id, index, &place, order, pfn).is_ok()
        };
        if is_put {
            drop(held);
        } else {
            self.frames.desc(pfn).clear();
            self.give_back(pfn, Fill::Fixed);
        }
        Ok(None)
    }

    /// The missing pages at a place.
    ///
    /// # Errors
    ///
    /// It cannot be read ahead: it lies behind the end, or another CPU is at work there.
    fn missing_ahead(&self, id: ObjectId, index: u64, end: u64) -> Result<Missing, NotRead> {
        let section = self.section();
        let place = self.object_slot(section.inside(), id, index);
        if place.page() != ObjectPage::Absent {
            return Ok(Missing::Nothing);
        }
        if index >= self.object_nr_pages(id) {
            return Err(NotRead);
        }
        let file = self.object_file(id).ok_or(NotRead)?;
        let order = self.folio_order(id, index, &place, Order::PUD, end).ok_or(NotRead)?;
        Ok(if place.place_of(order).is_some() { Missing::Folio(order, file) } else { Missing::Node(order) })
    }
}

/// The missing pages where a page is to be read ahead.
enum Missing {
    Nothing,
    /// A node on the way to a folio of that order.
    Node(Order),
    Folio(Order, FileId),
}
