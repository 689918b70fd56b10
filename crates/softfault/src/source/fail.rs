//! Removes a page whose memory has failed from its folio.
//!
//! ```text
//! the page, and those that make up the object's least size with it   POISONED: no frame
//! the others                                                         aligned folios where they are
//! the failed frame                                                   out of use
//! ```
//! Like a cut (`cut.rs`) it needs no memory and copies nothing. All pages of the folio are marked
//! as moving, no entry maps one, and all sections that had read one of its words have ended. There
//! is no pin, and none can come.
//!
//! The words are unmarked from the highest down, as after a move. So a remover, which goes upwards,
//! either finds the old order and marks all pages of it, or finds the new orders from there on.
//!
//! Locks on entry: none, no section.

use super::cut::Folio;
use super::cut_plan::pieces;
use super::keep::KeptObject;
use super::slot::PageFrame;
use crate::addr::{Order, Pfn};
use crate::frame::{Content, FrameKind};
use crate::links::Links;
use crate::machine::Machine;
use crate::policy::folio::around;

/// Parts of a folio that has lost a page: two of each size at most, and what is lost.
const PARTS_MAX: usize = 2 * Order::PMD.0 as usize + 1;

impl<M: Machine> Links<M> {
    /// Whether a folio can lose a page. One that stayed beyond the end of its object, as it was
    /// pinned, cannot: the pages that are there would be folios of their own.
    pub(crate) fn can_lose_a_page(&self, kept: &KeptObject<'_, M>, first: u64, order: Order) -> bool {
        let is_least = order == self.object_orders(kept.id).least();
        is_least || first + order.nr_pages() <= self.object_nr_pages(kept.id)
    }

    /// The frame of page `bad` has failed; `head` is its folio's, and `first` that one's page.
    pub(crate) fn object_end_failed(&self, kept: &KeptObject<'_, M>, first: u64, head: PageFrame, bad: u64) {
        let least = self.object_orders(kept.id).least();
        let lost = around(bad, least);
        let frame_of = |page: u64| Pfn(head.pfn.0 + (page - first) as u32);
        let ended = self.with_slot(kept, first, |slot| {
            let folio = Folio { id: kept.id, first, slot, frame: head };
            let old = self.frames.desc(head.pfn).state();
            self.end_folio(head.pfn, head.order);
            let before = pieces(first..lost.start).chain([(lost.start, least)]);
            let all = before.chain(pieces(lost.end..first + head.order.nr_pages()));
            let mut parts = [None; PARTS_MAX];
            for (place, part) in parts.iter_mut().zip(all) {
                let is_lost = part.0 == lost.start;
                *place = Some((part, (!is_lost).then(|| self.make_head_of_part(&folio, part, old))));
            }
            // Before the words, after which nobody keeps the frame.
            self.frames.desc(frame_of(bad)).assign(FrameKind::Reserved, 0, 0, 0);
            for ((page, order), frame) in parts.into_iter().flatten().rev() {
                let slot = slot.beside(page);
                match frame {
                    Some(frame) => slot.end_move(frame),
                    None => slot.end_poisoned(order),
                }
            }
        });
        debug_assert!(ended.is_some(), "I22: nodes stay as long as their object");
        lost.filter(|page| *page != bad).for_each(|page| self.release_one(frame_of(page), Content::Unknown));
    }
}
