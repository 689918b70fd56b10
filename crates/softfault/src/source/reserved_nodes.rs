//! Nodes for a reservation (`reserved.rs`): they come before its lock is taken, and pages are reserved by the word that names them.
//!
//! Locks on entry: see each function.

use super::node::{Node, ZeroMeans};
use super::slot::{LostFill, PageSlot};
use super::spread::{GAP_BITS, POOL_PAGES_IN_NODE};
use crate::addr::{ObjectPages, Order, Pfn};
use crate::frame::{Claim, Fill, FrameList, OutOfFrames, PoolId};
use crate::links::Links;
use crate::machine::Machine;
use crate::mem;
use crate::pace::Pace;
use crate::policy::folio::around;
use crate::space::vma::ObjectId;
use crate::sync::Word;
use core::ops::Range;

/// The node that is missing on the way to a page.
enum Missing {
    Nothing,
    /// The one that has the page's word.
    Lowest,
    Upper,
}

impl<M: Machine> Links<M> {
    /// Puts the missing nodes above those of the pages' words in, and obtains frames of zeroes for the latter: as many as are missing,
    /// and fewer are missing later, since nodes stay. Without a lock.
    ///
    /// # Errors
    ///
    /// That of `frame`; nothing is kept.
    pub(super) fn bring_nodes(
        &self,
        (id, pool): (ObjectId, PoolId),
        pages: ObjectPages,
        frame: &mut dyn FnMut() -> Result<Pfn, OutOfFrames>,
    ) -> Result<FrameList, OutOfFrames> {
        let (mut spare, mut pace) = (FrameList::EMPTY, Pace::new(&self.machine));
        let in_node = POOL_PAGES_IN_NODE * pool.order().nr_pages();
        let mut index = around(pages.start, pool.order()).start;
        while index < pages.end {
            pace.step();
            let missing = self.missing_node((id, pool), index);
            if !matches!(missing, Missing::Nothing) {
                let pfn = frame().inspect_err(|_| self.give_nodes_back(spare))?;
                if matches!(missing, Missing::Upper) {
                    self.add_upper_node((id, pool), index, pfn);
                    continue;
                }
                spare.push(&self.frames, pfn);
            }
            index = (index / in_node + 1) * in_node;
        }
        Ok(spare)
    }

    fn missing_node(&self, (id, pool): (ObjectId, PoolId), index: u64) -> Missing {
        let section = self.section();
        let place = self.object_slot(section.inside(), id, index);
        match place.place_above(pool.order()) {
            _ if place.place_of(pool.order()).is_some() => Missing::Nothing,
            Some(_) => Missing::Lowest,
            None if place.is_under_way() => Missing::Nothing,
            None => Missing::Upper,
        }
    }

    /// Puts a node in above that of the page's word, unless another CPU was first.
    fn add_upper_node(&self, (id, pool): (ObjectId, PoolId), index: u64, pfn: Pfn) {
        let section = self.section();
        let place = self.object_slot(section.inside(), id, index);
        let is_upper = place.place_of(pool.order()).is_none() && place.place_above(pool.order()).is_none();
        if !is_upper || self.object_fill_node(id, index, &place, pool.order(), pfn).is_err() {
            self.frames.desc(pfn).clear();
            drop(section);
            self.give_back(pfn, Fill::Fixed);
        }
    }

    /// Gives frames back that were obtained for nodes.
    pub(super) fn give_nodes_back(&self, mut spare: FrameList) {
        while let Some(pfn) = spare.pop(&self.frames) {
            self.give_back(pfn, Fill::Fixed);
        }
    }

    /// Puts the node in that has the word of the first one of these pages, if it is still missing: else it is spare again. Returns how
    /// many huge pages it reserves: those of these pages that have their words in it.
    pub(super) fn add_node(
        &self,
        (id, pool): (ObjectId, PoolId),
        pages: Range<u64>,
        pfn: Pfn,
        spare: &mut FrameList,
    ) -> u64 {
        let section = self.section();
        let place = self.object_slot(section.inside(), id, pages.start);
        let added = match place.place_above(pool.order()) {
            _ if place.place_of(pool.order()).is_some() => Err(LostFill),
            Some(above) => {
                self.make_node(id, pfn);
                let nr = self.reserve_in_node(pool.order(), &pages, pfn);
                above.begin_reserving_node(pfn).map(|()| nr).inspect_err(|_| self.empty_node(pfn))
            }
            None => Err(LostFill),
        };
        added.unwrap_or_else(|LostFill| {
            self.frames.desc(pfn).clear();
            spare.push(&self.frames, pfn);
            0
        })
    }

    /// Makes those of these huge pages that have their words in a node of zeroes the reserved ones, and returns their number.
    /// Nobody else sees the node.
    fn reserve_in_node(&self, order: Order, pages: &Range<u64>, node: Pfn) -> u64 {
        let first = (pages.start >> order.0) % POOL_PAGES_IN_NODE;
        let nr = nr_in_node(order, pages.start, pages.end);
        let others = (0..POOL_PAGES_IN_NODE).filter(|i| !(first..first + nr).contains(i));
        others.for_each(|i| self.word_in_node(node, i).set(ZeroMeans::Reserved.translate(0)));
        nr
    }

    /// Makes it a node of zeroes again.
    fn empty_node(&self, node: Pfn) {
        (0..POOL_PAGES_IN_NODE)
            .map(|i| self.word_in_node(node, i))
            .filter(|word| word.get() != 0)
            .for_each(|word| word.set(0));
    }

    /// The word of a huge page in its node.
    fn word_in_node(&self, node: Pfn, i: u64) -> &Word {
        mem::view(&self.machine, node, (i as usize) << GAP_BITS << 3)
    }

    pub(super) fn end_reserving_node(&self, slot: PageSlot<'_>, pfn: Pfn, claim: Claim) {
        let zero = match claim {
            Claim::Reserved => ZeroMeans::Reserved,
            Claim::Nothing => {
                self.empty_node(pfn);
                ZeroMeans::Nothing
            }
        };
        slot.end_reserving_node(Node { pfn, zero });
    }
}

/// How many huge pages there are from the one around `index` on that have their words in the same node, up to `end`.
pub(super) fn nr_in_node(order: Order, index: u64, end: u64) -> u64 {
    let first = around(index, order).start;
    let nr = (end - first).div_ceil(order.nr_pages());
    nr.min(POOL_PAGES_IN_NODE - (first >> order.0) % POOL_PAGES_IN_NODE)
}
