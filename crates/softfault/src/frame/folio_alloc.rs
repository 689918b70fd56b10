//! Frames for a folio of an object. It does not move, so it comes from a block with pages of
//! objects, then from one that is wholly free, and only then from among private pages. Some
//! folios can have no smaller size: blocks that serve something else are looked at last, as many
//! as a call may.
//!
//! Locks on entry: none, no section. The caller is counted as a holder.

use super::class::Class;
use super::summary::Kind;
use super::{Content, HugeFrame, Memory, OutOfFrames};
use crate::addr::{BLOCK_FRAMES, BlockId, Order, Pfn};
use crate::clear;
use crate::machine::Machine;
use crate::pace::Pace;

/// The smallest run that blocks are looked up for.
const LEAST_RUN: Order = Order(2);
/// Blocks that are looked at last. A guess.
const MOST_LOOKS: usize = 64;

impl<M: Machine> Memory<M> {
    /// 2^order adjacent frames of zeroes, aligned to their number, of which `sub_page` is used
    /// first. At most a block.
    pub(crate) fn obtain_folio(&self, order: Order, sub_page: u32) -> Result<Pfn, OutOfFrames> {
        let wanted = OutOfFrames::Block(order);
        self.frames.count_down(wanted)?;
        let small = order.max(LEAST_RUN);
        let batch = || if small < Order::PMD { self.claim_batch(small) } else { None };
        let (first, from) = (self.claim_beside_others(Kind::Shared, order).map(|first| (first, order)))
            .or_else(|| self.claim_block().map(|first| (first, Order::PMD)))
            .or_else(|| batch().map(|first| (first, small)))
            .or_else(|| self.claim_beside_others(Kind::Any, order).map(|first| (first, order)))
            .ok_or(wanted)?;
        self.frames.blocks.at(BlockId::of(first)).mark(Class::Shared);
        self.frames.note_run_used(first, 1);
        let content = self.frames.content(first, from.nr_pages());
        if !content.is_zero() {
            let sub_page = Some(u64::from(sub_page));
            clear::clear_folio(&self.machine, first, order, sub_page, self.clear_order(order), self.clear_by());
        }
        self.release_rest(first, order, from, content);
        Ok(first)
    }

    /// A block whose frames are on their own.
    fn claim_block(&self) -> Option<Pfn> {
        let HugeFrame { first, .. } = self.claim_huge(BLOCK_FRAMES)?;
        self.frames.folio(first).state.set(0);
        Some(first)
    }

    /// In a block of some kind.
    fn claim_beside_others(&self, kind: Kind, order: Order) -> Option<Pfn> {
        if order >= Order::PMD {
            return None;
        }
        let blocks = &self.frames.blocks;
        let mut pace = Pace::new(&self.machine);
        let some = blocks.offering(kind, blocks.names(), self.zone().start).take(MOST_LOOKS);
        let first = some.inspect(|_| pace.step()).find_map(|b| self.frames.claim_part(b, order.nr_pages()))?;
        self.count_taken(order.nr_pages());
        Some(first)
    }

    /// Gives back what a run of order `from` has beyond `order`: runs that are as long as all
    /// that is before them.
    fn release_rest(&self, first: Pfn, order: Order, from: Order, content: Content) {
        for order in (order.0..from.0).map(Order) {
            self.release_run(Pfn(first.0 + order.nr_pages() as u32), order.nr_pages(), content);
        }
    }
}
