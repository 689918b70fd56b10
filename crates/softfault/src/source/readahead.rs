//! Reads what is likely to be wanted next of a file.
//!
//! ```text
//! section  a page is missing ─▶ window: by what is there before it    policy/readahead.rs
//!          its own folio, no longer than that, is in transit           file.rs
//! outside  own folio is read ─▶ each missing folio of the rest: frames, if there are any ─▶ in transit ─▶ the machine
//! ```
//! What is read ahead is nobody's error: where frames are refused, a page is there, or the machine cannot read, the rest
//! is left to its own faults. A machine whose fills stay under way gets all of a window at once.
//!
//! Locks on entry: none, no section, unless a function says so.

use super::file::Ahead;
use super::object::ObjectSlot;
use super::slot::{ObjectPage, PageFrame};
use super::transit::NotRead;
use crate::addr::{Order, PAGE_SIZE};
use crate::frame::{Content, Fill};
use crate::links::Links;
use crate::machine::{FileId, Machine};
use crate::policy::folio::around;
use crate::policy::readahead::{Pattern, ReadaheadQuestion, window};
use crate::section::InSection;
use crate::space::vma::ObjectId;
use core::ops::Range;

impl<M: Machine> Links<M> {
    /// The pages to read where a page of a file is missing. In the section in which it was found.
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

    /// Reads the pages that are missing, while there are frames.
    pub(crate) fn read_ahead(&self, ahead: Option<Ahead<'_, M>>) {
        let Some(Ahead { object, pages }) = ahead else { return };
        let mut at = pages.start;
        while at < pages.end {
            let Ok(order) = self.read_folio_ahead(object.id, at, pages.end) else { return };
            at = around(at, order).end;
            self.machine.relax();
        }
    }

    /// Reads the folio around a page, if the page is missing; the order of what is there.
    fn read_folio_ahead(&self, id: ObjectId, index: u64, end: u64) -> Result<Order, NotRead> {
        let Some((order, file)) = self.order_ahead(id, index, end)? else { return Ok(Order::BASE) };
        let (pfn, held) = if order == Order::BASE {
            self.obtain_held(Fill::Shared).map_err(|_| NotRead)?
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
        Ok(order)
    }

    /// The folio for a page that is missing; `None` if it is there.
    ///
    /// # Errors
    ///
    /// It cannot be read ahead: a node of the tree is missing, or somebody is at work there.
    fn order_ahead(&self, id: ObjectId, index: u64, end: u64) -> Result<Option<(Order, FileId)>, NotRead> {
        let section = self.section();
        let place = self.object_slot(section.inside(), id, index);
        if place.page() != ObjectPage::Absent {
            return Ok(None);
        }
        let file = self.object_file(id).ok_or(NotRead)?;
        let order = self.folio_order(id, index, &place, Order::PUD, end).ok_or(NotRead)?;
        match place {
            ObjectSlot::Page(_) => Ok(Some((order, file))),
            ObjectSlot::Hole(_) | ObjectSlot::Low(_) => Err(NotRead),
        }
    }
}
