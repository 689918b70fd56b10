//! Preallocated nodes of an object's tree, for folios that are about to be cut.
//!
//! A folio of 2 MiB is one word. When it is cut, a node replaces that word, with words for the
//! remaining pages. So a discard first checks both ends of its range, and obtains the nodes before it
//! marks any page. After that nothing can fail: a folio that was added meanwhile, or for which there
//! were no frames, stays whole, and its discarded part is zeroed.
//!
//! The nodes count as used frames, not as held ones, until they are freed: a discard waits for others,
//! so no CPU may wait for it (I28).
//!
//! Locks on entry: the object's `resize`, no section.

use super::cut_plan::Plan;
use super::slot::{ObjectPage, level_of};
use crate::addr::{ObjectPages, Order, Pfn};
use crate::frame::{Fill, FrameKind, MetaUse, OutOfFrames};
use crate::links::Links;
use crate::machine::Machine;
use crate::policy::folio::around;
use crate::space::vma::ObjectId;
use core::ops::Range;

/// Two folios of two levels, each cut at one end.
const NODES_MAX: usize = 4;

/// Nodes for the folios of one discard. Unused ones are freed on drop.
pub(crate) struct CutNodes<'a, M: Machine> {
    links: &'a Links<M>,
    frames: [Pfn; NODES_MAX],
    nr: usize,
}

impl<'a, M: Machine> CutNodes<'a, M> {
    pub(super) fn none(links: &'a Links<M>) -> Self {
        CutNodes { links, frames: [Pfn(0); NODES_MAX], nr: 0 }
    }

    pub(super) fn nr(&self) -> usize {
        self.nr
    }

    pub(super) fn take(&mut self) -> Option<Pfn> {
        debug_assert!(self.nr > 0, "I45: nodes were counted");
        self.nr = self.nr.checked_sub(1)?;
        Some(self.frames[self.nr])
    }
}

impl<M: Machine> Drop for CutNodes<'_, M> {
    fn drop(&mut self) {
        self.frames[..self.nr].iter().for_each(|pfn| self.links.give_back(*pfn, Fill::Fixed));
    }
}

impl<M: Machine> Links<M> {
    /// Obtains nodes for the folios that `pages` overlaps in part.
    pub(crate) fn object_cut_nodes(&self, id: ObjectId, pages: ObjectPages) -> CutNodes<'_, M> {
        let mut nodes = CutNodes::none(self);
        let first = self.large_folio_at(id, pages.start).filter(|(all, _)| all.start < pages.start);
        let last = self.large_folio_at(id, pages.end).filter(|(all, _)| all.start < pages.end);
        let last = last.filter(|last| first.as_ref() != Some(last));
        let least = self.object_orders(id).least();
        let nr_of = |(all, order): (Range<u64>, Order)| Plan::new(&all, pages, least).nr_nodes(&all, order);
        let nr_wanted = [first, last].into_iter().flatten().map(nr_of).sum();
        while nodes.nr < nr_wanted {
            // Too few nodes for one folio may be enough for the other.
            if self.obtain_node(id, &mut nodes).is_err() {
                break;
            }
        }
        nodes
    }

    /// Obtains all nodes that a split of a folio of order `whole` needs, if all of its parts have order `part` or
    /// more. A folio below 2 MiB needs none, nor does one that stays whole.
    pub(crate) fn object_split_nodes(
        &self,
        id: ObjectId,
        whole: Order,
        part: Order,
    ) -> Result<CutNodes<'_, M>, OutOfFrames> {
        let mut nodes = CutNodes::none(self);
        while (nodes.nr as u32) < level_of(whole) - level_of(part) {
            self.obtain_node(id, &mut nodes)?;
        }
        Ok(nodes)
    }

    /// Allocates a node. Its frame counts as used from now on.
    fn obtain_node(&self, id: ObjectId, nodes: &mut CutNodes<'_, M>) -> Result<(), OutOfFrames> {
        let (pfn, _held) = self.obtain_held(Fill::Fixed)?;
        self.frames.desc(pfn).assign(FrameKind::Meta, 0, id.0, MetaUse::ObjectNode as u64);
        nodes.frames[nodes.nr] = pfn;
        nodes.nr += 1;
        Ok(())
    }

    /// Returns the pages of the folio around `page`, and its order, if it is one word.
    fn large_folio_at(&self, id: ObjectId, page: u64) -> Option<(Range<u64>, Order)> {
        let section = self.section();
        match self.object_slot(section.inside(), id, page).page() {
            ObjectPage::Frame(frame) | ObjectPage::Leaving(frame) if level_of(frame.order) > 0 => {
                Some((around(page, frame.order), frame.order))
            }
            _ => None,
        }
    }
}
