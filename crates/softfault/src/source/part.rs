//! Removes a part of a folio from its frames; the rest of the folio stays in place.
//!
//! ```text
//! the part     other frames, or none: its memory failed (`fail.rs`)
//! the others   aligned folios where they are
//! ```
//! Nothing is copied here. The only memory needed is the node that replaces the one word of a folio of 2 MiB. All words
//! of the folio are marked as moving, no entry maps a page of it, and all sections that had read one of the words have
//! ended. The pin count is final and zero.
//!
//! The words are written from the highest down, as those of a move: a remover that goes upwards finds
//! the old size and marks all of its pages, or finds the new sizes from there on. A node is installed under `resize`, so
//! no remover is running then.
//!
//! Locks on entry: none, no section; of a folio that is one word the object's `resize`.

use super::cut::Folio;
use super::cut_nodes::CutNodes;
use super::cut_plan::pieces;
use super::keep::KeptObject;
use super::slot::{PageFrame, PageSlot};
use crate::addr::{BlockId, Order, Pfn};
use crate::frame::{Class, FrameKind};
use crate::links::Links;
use crate::machine::Machine;
use crate::mem;

/// Most parts of a folio that loses one: two of each size, and the lost part.
const PARTS_MAX: usize = 2 * Order::PMD.0 as usize + 1;

/// 2^order aligned pages of a folio, and their new frames.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) page: u64,
    pub(crate) order: Order,
    pub(crate) to: Goes,
}

/// The new place of a part of a folio.
#[derive(Clone, Copy)]
pub(crate) enum Goes {
    /// The frames from this one on, which the caller owns alone and which have its content.
    To(Pfn),
    /// None: the memory of this frame failed. It is out of use from now on.
    Failed(Pfn),
}

/// Some pages and their new frames, or that their memory failed.
type Ended = ((u64, Order), Option<PageFrame>);

impl<M: Machine> Links<M> {
    /// Removes the part from the folio, whose first page is `first`.
    pub(crate) fn object_end_part(
        &self,
        kept: &KeptObject<'_, M>,
        first: u64,
        head: PageFrame,
        part: Part,
        node: &mut CutNodes<'_, M>,
    ) {
        let ended = self.with_slot(kept, first, |slot| {
            let folio = Folio { id: kept.id, first, slot, frame: head };
            let parts = self.make_heads(&folio, part);
            let node = if slot.level > 0 { node.take() } else { None };
            match node {
                Some(node) => {
                    self.end_in_node(&parts, PageSlot::new(mem::view(&self.machine, node, 0), slot.level - 1, first));
                    slot.put_node(node);
                }
                None => end_words(&parts, slot),
            }
        });
        debug_assert!(ended.is_some(), "I22: nodes stay as long as their object");
    }

    /// Makes the heads of all parts. No word refers to them yet, and the old folio has ended.
    fn make_heads(&self, folio: &Folio<'_>, lost: Part) -> [Option<Ended>; PARTS_MAX] {
        let old = self.frames.desc(folio.frame.pfn).state();
        self.end_folio(folio.frame.pfn, folio.frame.order);
        let end = lost.page + lost.order.nr_pages();
        let before = pieces(folio.first..lost.page).chain([(lost.page, lost.order)]);
        let all = before.chain(pieces(end..folio.first + folio.frame.order.nr_pages()));
        let mut parts = [None; PARTS_MAX];
        for (place, part) in parts.iter_mut().zip(all) {
            let frame = match lost.to {
                _ if part.0 != lost.page => Some(self.make_head_of_part(folio, part, old)),
                Goes::To(to) => {
                    self.frames.blocks.at(BlockId::of(to)).raise(Class::Shared);
                    Some(self.make_head_at(folio, part, to, old))
                }
                Goes::Failed(bad) => {
                    self.frames.desc(bad).assign(FrameKind::Reserved, 0, 0, 0);
                    None
                }
            };
            *place = Some((part, frame));
        }
        parts
    }

    /// Writes the words of the parts into a node that is not published yet.
    fn end_in_node(&self, parts: &[Option<Ended>], any: PageSlot<'_>) {
        for ((page, order), frame) in parts.iter().flatten() {
            if let Some(frame) = frame {
                any.beside(*page).put(frame.pfn, *order);
            }
        }
    }
}

fn end_words(parts: &[Option<Ended>], any: PageSlot<'_>) {
    for ((page, order), frame) in parts.iter().flatten().rev() {
        let slot = any.beside(*page);
        match frame {
            Some(frame) => slot.end_move(*frame),
            None => slot.end_poisoned(*order),
        }
    }
}
