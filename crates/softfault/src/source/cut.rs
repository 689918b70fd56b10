//! Cuts a folio at the edge of a hole, or at the end of the object.
//!
//! ```text
//! pinned, or no larger than the object's least,  stays whole; the discarded pages are zeroed
//! or no frames for the descriptors of its tails
//! otherwise                                      the remaining pages become aligned folios,
//!                                                the others are freed
//! ```
//! Only the nodes that replace a folio of 2 MiB need memory. They are obtained before anything is marked
//! (`cut_nodes.rs`); without them, the folio stays whole, too. All pages of the folio are marked as leaving, no
//! entry maps one, and all sections that had read one of its words have ended. So nobody reads its head or its
//! tails, and the pin count can only fall.
//!
//! Locks on entry: the object's `resize`, no section.

use super::cut_nodes::CutNodes;
use super::cut_plan::{Plan, pieces};
use super::late_calls::Cut;
use super::node::Below;
use super::slot::{PageFrame, PageSlot, level_of};
use crate::addr::{BlockId, ObjectPages, Order, PAGE_SIZE, Pfn};
use crate::frame::{Content, FrameState};
use crate::links::Links;
use crate::machine::Machine;
use crate::mem;
use crate::pace::{self, Pace};
use crate::program;
use crate::space::vma::ObjectId;
use core::ops::Range;

/// A folio whose pages are marked as leaving, or as moving.
pub(super) struct Folio<'a> {
    pub(super) id: ObjectId,
    /// Its first page in the object, the word of that, and the head.
    pub(super) first: u64,
    pub(super) slot: PageSlot<'a>,
    pub(super) frame: PageFrame,
}

impl<M: Machine> Links<M> {
    /// Removes those pages from a folio that are among `pages`, but not all of its pages.
    pub(super) fn cut(&self, folio: &Folio<'_>, pages: ObjectPages, nodes: &mut CutNodes<'_, M>) -> Cut {
        let Folio { id, first, frame: PageFrame { pfn, order }, .. } = *folio;
        let all = first..first + order.nr_pages();
        let plan = Plan::new(&all, pages, self.object_orders(id).least());
        let Plan { goes, inner } = &plan;
        // The holder of a pin may store anywhere in the folio, and a write may be reading it. It also stays whole if it was added after
        // the nodes were counted, or if there were no frames for them.
        let stays = inner.is_empty() || nodes.nr() < plan.nr_nodes(&all, order);
        if stays || self.frames.desc(pfn).is_held_now() || !self.has_descs(pfn, order) {
            self.zero_pages(folio, goes.clone());
            let called = self.is_called_now(id, first, pfn);
            folio.slot.put(pfn, order);
            return Cut { gone: goes.end..goes.start, called };
        }
        self.zero_pages(folio, goes.start..inner.start);
        self.zero_pages(folio, inner.end..goes.end);
        let old = self.frames.desc(pfn).state();
        self.end_folio(pfn, order);
        let top = if level_of(order) > 0 { nodes.take() } else { None };
        for (page, order) in plan.parts(&all) {
            pace::answer(&self.machine);
            let slot = match top {
                Some(top) => self.slot_below(top, level_of(folio.frame.order) - 1, (page, order), nodes),
                None => folio.slot.beside(page),
            };
            self.make_part(folio, (page, order), slot, old);
        }
        match top {
            Some(top) => folio.slot.put_node(top),
            None => pieces(inner.clone()).for_each(|(page, order)| folio.slot.beside(page).empty_all(order)),
        }
        for (page, order) in pieces(inner.clone()) {
            pace::answer(&self.machine);
            self.release_run(Pfn(pfn.0 + (page - first) as u32), order.nr_pages(), Content::Unknown);
        }
        Cut { gone: inner.clone(), called: None }
    }

    /// Makes sure that all frames of the folio have descriptors, since each part needs a head. Returns
    /// `false` if there are no frames for them.
    fn has_descs(&self, pfn: Pfn, order: Order) -> bool {
        let b = BlockId::of(pfn);
        if order < Order::PMD || !self.frames.lacks_tail_descs(b) {
            return true;
        }
        self.make_whole_if_free(pfn, order).is_ok()
    }

    /// Returns the word of a part, below a node that is not published yet. Installs further nodes on the
    /// way.
    pub(super) fn slot_below(
        &self,
        mut node: Pfn,
        mut level: u32,
        (page, order): (u64, Order),
        nodes: &mut CutNodes<'_, M>,
    ) -> PageSlot<'_> {
        loop {
            let slot = PageSlot::new(mem::view(&self.machine, node, 0), level, page);
            if level == level_of(order) {
                return slot;
            }
            node = match Below::of(slot.word().get()) {
                Below::Node(below) => below.pfn,
                _ => {
                    let Some(below) = nodes.take() else { return slot };
                    slot.put_node(below);
                    below
                }
            };
            level -= 1;
        }
    }

    fn make_part(&self, folio: &Folio<'_>, part: (u64, Order), slot: PageSlot<'_>, old: FrameState) {
        let frame = self.make_head_of_part(folio, part, old);
        slot.put(frame.pfn, frame.order);
    }

    /// Makes some pages of a former folio a folio of their own, with the same age. No word refers to it
    /// yet.
    pub(super) fn make_head_of_part(
        &self,
        folio: &Folio<'_>,
        (first, order): (u64, Order),
        old: FrameState,
    ) -> PageFrame {
        let pfn = Pfn(folio.frame.pfn.0 + (first - folio.first) as u32);
        self.make_head_at(folio, (first, order), pfn, old)
    }

    /// As [`make_head_of_part`](Self::make_head_of_part), in frames from `pfn` on, which the caller owns alone.
    pub(super) fn make_head_at(
        &self,
        folio: &Folio<'_>,
        (first, order): (u64, Order),
        pfn: Pfn,
        old: FrameState,
    ) -> PageFrame {
        self.make_folio(pfn, order, folio.id.0, first);
        self.frames.desc(pfn).note_as(old);
        self.frames.carry_age(folio.frame.pfn, pfn);
        PageFrame { pfn, order }
    }

    fn zero_pages(&self, folio: &Folio<'_>, pages: Range<u64>) {
        if !pages.is_empty() {
            self.frames.desc(folio.frame.pfn).note_written();
        }
        let mut pace = Pace::new(&self.machine);
        for page in pages {
            pace.page();
            let pfn = Pfn(folio.frame.pfn.0 + (page - folio.first) as u32);
            program::zero(&self.machine, pfn, 0, PAGE_SIZE as usize);
        }
    }
}
