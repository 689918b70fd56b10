//! Splits a folio in place: one part becomes a folio of its own, goes to other frames, or is lost. The rest
//! becomes aligned folios, as large as possible, up to 2 MiB.
//!
//! ```text
//! the part     its frames: a split            compact/split.rs
//!              other frames: a move           compact/part.rs
//!              none: its memory failed        fail.rs
//! the others   aligned folios where they are
//! ```
//! Nothing is copied here. The only memory needed are the nodes that replace the one word of a folio of 2 MiB or 1 GiB;
//! the caller has obtained them. So this cannot fail. All words of the folio are marked as moving, no entry maps a
//! page of it, and all sections that had read one of the words have ended. The pin count is final and zero.
//!
//! The words are written from the highest down, as those of a move: a remover that goes upwards finds
//! the old size and marks all of its pages, or finds the new sizes from there on. A node is installed under `resize`, so
//! no remover is running then. It is published when it replaces the word of the folio.
//!
//! Locks on entry: none, no section: answers other CPUs. Of a folio that is one word the object's `resize`.

use super::cut::Folio;
use super::cut_nodes::CutNodes;
use super::cut_plan::split_down;
use super::keep::KeptObject;
use super::slot::{PageFrame, level_of};
use crate::addr::{BlockId, ObjectPages, Order, Pfn};
use crate::frame::{Class, FrameKind, FrameState};
use crate::links::Links;
use crate::machine::Machine;
use crate::pace;
use core::ops::ControlFlow;

/// 2^order aligned pages of a folio, and the frames that they have from now on.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) page: u64,
    pub(crate) order: Order,
    pub(crate) to: Goes,
}

/// Where a part of a folio goes.
#[derive(Clone, Copy)]
pub(crate) enum Goes {
    /// It stays in its frames.
    Nowhere,
    /// Its content is in the frames from this one on, which are the caller's alone.
    To(Pfn),
    /// The memory of this frame failed, which is out of use from now on.
    Failed(Pfn),
}

impl<M: Machine> Links<M> {
    /// Splits the folio, whose first page is `first`, into the part and what is beside it.
    pub(crate) fn object_end_part(
        &self,
        kept: &KeptObject<'_, M>,
        first: u64,
        head: PageFrame,
        part: Part,
        nodes: &mut CutNodes<'_, M>,
    ) {
        let mut nr_ended = 0;
        // Not in a section: 1 GiB is many descriptors. The node stays, as it has a word that is marked.
        let _ = self.for_each_page(kept.id, ObjectPages { start: first, end: first + 1 }, &mut |_, slot| {
            self.split(&Folio { id: kept.id, first, slot, frame: head }, part, nodes);
            nr_ended += 1;
            ControlFlow::Continue(())
        });
        debug_assert_eq!(nr_ended, 1, "I22: a page that is marked is there");
    }

    fn split(&self, folio: &Folio<'_>, part: Part, nodes: &mut CutNodes<'_, M>) {
        let PageFrame { pfn, order } = folio.frame;
        let old = self.frames.desc(pfn).state();
        self.end_folio(pfn, order);
        let top = if level_of(order) > 0 && part.order < order { nodes.take() } else { None };
        for (page, order) in split_down(folio.first..folio.first + order.nr_pages(), (part.page, part.order)) {
            pace::answer(&self.machine);
            let frame = self.make_head_of(folio, (page, order), part, old);
            match (top, frame) {
                (None, Some(frame)) => folio.slot.beside(page).end_move(frame),
                (None, None) if self.file_has_failed_page(folio.id, old) => folio.slot.beside(page).end_missing(order),
                (None, None) => folio.slot.beside(page).end_poisoned(order),
                (Some(top), frame) => {
                    let slot = self.slot_below(top, level_of(folio.frame.order) - 1, (page, order), nodes);
                    match frame {
                        Some(frame) => slot.put(frame.pfn, order),
                        None => slot.put_poisoned(order),
                    }
                }
            }
        }
        if let Some(top) = top {
            folio.slot.put_node(top);
        }
    }

    /// Makes the head of some of the pages, which no word names yet; none if their memory failed.
    fn make_head_of(&self, folio: &Folio<'_>, pages: (u64, Order), part: Part, old: FrameState) -> Option<PageFrame> {
        match part.to {
            Goes::To(to) if pages.0 == part.page => {
                self.frames.blocks.at(BlockId::of(to)).raise(Class::Shared);
                Some(self.make_head_at(folio, pages, to, old))
            }
            Goes::Failed(bad) if pages.0 == part.page => {
                self.frames.desc(bad).assign(FrameKind::Reserved, 0, 0, 0);
                None
            }
            _ => Some(self.make_head_of_part(folio, pages, old)),
        }
    }
}
