//! Removes a page whose memory has failed from its folio.
//!
//! ```text
//! the page, and those that make up the object's least size with it   POISONED: no frame. Of a clean folio of a file: missing
//! the others                                                         aligned folios where they are
//! the failed frame                                                   out of use
//! ```
//! See `part.rs`.
//!
//! Locks on entry: none, no section. Of a folio that is one word the object's `resize`.

use super::cut_nodes::CutNodes;
use super::cut_plan::pieces;
use super::keep::KeptObject;
use super::part::{Goes, Part};
use super::slot::PageFrame;
use crate::addr::{Order, Pfn};
use crate::frame::Content;
use crate::links::Links;
use crate::machine::Machine;
use crate::pace;
use crate::policy::folio::around;

impl<M: Machine> Links<M> {
    /// Whether a folio can lose a page. A folio that reaches beyond the end of its object, since it was
    /// pinned when the object shrank, cannot: its pages beyond the end would become folios.
    pub(crate) fn can_lose_a_page(&self, kept: &KeptObject<'_, M>, first: u64, order: Order) -> bool {
        let is_least = order == self.object_orders(kept.id).least();
        is_least || first + order.nr_pages() <= self.object_nr_pages(kept.id)
    }

    /// Removes page `bad`, whose frame has failed, from the folio with that `head`. `first` is the folio's
    /// first page.
    pub(crate) fn object_end_failed(
        &self,
        kept: &KeptObject<'_, M>,
        first: u64,
        head: PageFrame,
        bad: u64,
        nodes: &mut CutNodes<'_, M>,
    ) {
        let least = self.object_orders(kept.id).least();
        let lost = around(bad, least);
        let frame_of = |page: u64| Pfn(head.pfn.0 + (page - first) as u32);
        let part = Part { page: lost.start, order: least, to: Goes::Failed(frame_of(bad)) };
        self.object_end_part(kept, first, head, part, nodes);
        for (page, order) in pieces(lost.start..bad).chain(pieces(bad + 1..lost.end)) {
            pace::answer(&self.machine);
            self.release_run(frame_of(page), order.nr_pages(), Content::Unknown);
        }
    }
}
