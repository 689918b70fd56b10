//! A hole, or the end of the object, cuts a folio.
//!
//! ```text
//! pinned, or no larger than the object's least,  stays whole; the pages that go are zeroed
//! or no frames for the descriptors of its tails
//! else                                           the pages that stay become aligned folios of
//!                                                their own, the others are freed
//! ```
//! Neither needs memory that is not free. All pages of the folio are marked as leaving, no entry maps one, and
//! all sections that had read one of its words have ended. So nobody looks at its head or its
//! tails, and pins are final.
//!
//! Locks on entry: the object's `resize`, no section.

use super::slot::{PageFrame, PageSlot};
use crate::addr::{BlockId, ObjectPages, Order, PAGE_SIZE, Pfn};
use crate::frame::{FrameState, FreeBatch};
use crate::links::Links;
use crate::machine::Machine;
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
    /// Takes those of its pages out of a folio that are among `pages`, which are some of them.
    pub(super) fn cut(&self, folio: &Folio<'_>, pages: ObjectPages, batch: &mut FreeBatch<'_, M>) {
        let Folio { id, first, frame: PageFrame { pfn, order }, .. } = *folio;
        let end = first + order.nr_pages();
        let goes = pages.start.max(first)..pages.end.min(end);
        let least = self.object_orders(id).least();
        // Whole folios of the least size go; of the others pages are zeroed.
        let inner = round_up(goes.start, least)..round_down(goes.end, least);
        if inner.start >= inner.end || self.frames.desc(pfn).has_pins_now() || !self.has_descs(pfn, order) {
            self.zero_pages(folio, goes);
            return folio.slot.put(pfn, order);
        }
        self.zero_pages(folio, goes.start..inner.start);
        self.zero_pages(folio, inner.end..goes.end);
        let old = self.frames.desc(pfn).state();
        self.end_folio(pfn, order);
        for piece in pieces(first..inner.start).chain(pieces(inner.end..end)) {
            self.make_part(folio, piece, old);
        }
        for page in inner {
            let by = page - first;
            folio.slot.next(by).empty_all(Order::BASE);
            batch.add(Pfn(pfn.0 + by as u32));
        }
    }

    /// Whether all frames of the folio have descriptors, or have them again: each part has a head.
    fn has_descs(&self, pfn: Pfn, order: Order) -> bool {
        let b = BlockId::of(pfn);
        if order < Order::PMD || !self.frames.is_bare(b) {
            return true;
        }
        self.desc_spares_if_free().map(|spares| self.make_whole(b, &spares)).is_ok()
    }

    fn make_part(&self, folio: &Folio<'_>, part: (u64, Order), old: FrameState) {
        let frame = self.make_head_of_part(folio, part, old);
        folio.slot.next(part.0 - folio.first).put(frame.pfn, frame.order);
    }

    /// Some pages of a folio that is no more are one of their own, as used as that was. No word
    /// names it yet.
    pub(super) fn make_head_of_part(
        &self,
        folio: &Folio<'_>,
        (first, order): (u64, Order),
        old: FrameState,
    ) -> PageFrame {
        let pfn = Pfn(folio.frame.pfn.0 + (first - folio.first) as u32);
        self.make_folio(pfn, order, folio.id.0, first);
        self.frames.desc(pfn).note_as(old);
        self.frames.carry_age(folio.frame.pfn, pfn);
        PageFrame { pfn, order }
    }

    fn zero_pages(&self, folio: &Folio<'_>, pages: Range<u64>) {
        if !pages.is_empty() {
            self.frames.desc(folio.frame.pfn).note_written();
        }
        for page in pages {
            let pfn = Pfn(folio.frame.pfn.0 + (page - folio.first) as u32);
            program::zero(&self.machine, pfn, 0, PAGE_SIZE as usize);
        }
    }
}

fn round_up(page: u64, order: Order) -> u64 {
    page.next_multiple_of(order.nr_pages())
}

fn round_down(page: u64, order: Order) -> u64 {
    page & !(order.nr_pages() - 1)
}

/// The largest aligned folios that some pages are, in order.
pub(super) fn pieces(mut pages: Range<u64>) -> impl Iterator<Item = (u64, Order)> {
    core::iter::from_fn(move || {
        let nr = pages.end.checked_sub(pages.start).filter(|nr| *nr > 0)?;
        let (first, aligned) = (pages.start, pages.start.trailing_zeros());
        let order = Order(nr.ilog2().min(aligned) as u8);
        pages.start += order.nr_pages();
        Some((first, order))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_and_leave_nothing_out() {
        for (start, end) in [(0, 512), (0, 1), (512, 512 + 100), (7, 16), (3, 3), (513, 1024), (1, 511)] {
            let mut next = start;
            for (first, order) in pieces(start..end) {
                assert_eq!((first, first % order.nr_pages()), (next, 0));
                next += order.nr_pages();
            }
            assert_eq!(next, end);
        }
        let of = |pages| pieces(pages).map(|(first, order)| (first, order.0)).collect::<std::vec::Vec<_>>();
        assert_eq!(of(0..7), [(0, 2), (4, 1), (6, 0)]);
        assert_eq!(of(5..16), [(5, 0), (6, 1), (8, 3)]);
    }
}
