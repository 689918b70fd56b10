//! Frames for a folio of an object. It does not move, so it comes from a block with pages of
//! objects, then from one that is wholly free, and only then from among private pages. Some
//! folios can have no smaller size: blocks that serve something else are looked at last, as many
//! as a call may.
//!
//! A size that the caller can do without is given up in quiet (I28). The least size is refused as
//! one frame is: in a turn in need, after a look everywhere.
//!
//! Locks on entry: none, no section. The caller holds nothing.

use super::class::Class;
use super::held::Held;
use super::summary::Kind;
use super::want::Search;
use super::{Content, HugeFrame, Memory, OutOfFrames};
use crate::addr::{BLOCK_FRAMES, BlockId, Order, Pfn};
use crate::clear;
use crate::machine::Machine;
use crate::pace::Pace;
use crate::sync::Ordering;

/// The smallest run that blocks are looked up for.
const LEAST_RUN: Order = Order(2);
/// Blocks that are looked at last. A guess.
const MOST_LOOKS: usize = 64;

/// A run of 2^from frames that was just claimed for a folio.
struct Claimed {
    first: Pfn,
    from: Order,
}

impl<M: Machine> Memory<M> {
    /// 2^order adjacent frames of zeroes, aligned to their number, of which `sub_page` is used
    /// first, counted as held. At most a block. Waits as for one frame.
    pub(crate) fn obtain_folio(&self, order: Order, sub_page: u32) -> Result<(Pfn, Held<'_>), OutOfFrames> {
        self.frames.count_down(OutOfFrames::Block(order))?;
        let (claimed, held) = self.surely(&mut |search| self.hold_folio(order, search))?;
        Ok((self.make_folio_zero(&claimed, order, sub_page), held))
    }

    /// The same for a size that the caller can do without: waits for nobody.
    pub(crate) fn obtain_folio_if_found(&self, order: Order, sub_page: u32) -> Result<(Pfn, Held<'_>), OutOfFrames> {
        let wanted = OutOfFrames::Block(order);
        self.frames.count_down(wanted)?;
        if self.frames.is_quiet() {
            return Err(wanted);
        }
        let (claimed, held) = self.hold_folio(order, Search::Blocks)?;
        Ok((self.make_folio_zero(&claimed, order, sub_page), held))
    }

    /// One attempt. Leaves no trace if it has claimed nothing, not even for a moment.
    fn hold_folio(&self, order: Order, search: Search) -> Result<(Claimed, Held<'_>), OutOfFrames> {
        let nr_undone = || self.frames.nr_undone.load(Ordering::Relaxed);
        let (held, before) = (self.hold(), nr_undone());
        if let Some(claimed) = self.claim_folio(order, search) {
            return Ok((claimed, held));
        }
        // Others may have changed it: a trace too many.
        if nr_undone() == before {
            held.in_vain();
        }
        Err(OutOfFrames::Block(order))
    }

    fn claim_folio(&self, order: Order, search: Search) -> Option<Claimed> {
        let found = self.claim_folio_in_blocks(order);
        if found.is_some() || search != Search::Everywhere || !self.steal_in_need() {
            return found;
        }
        self.claim_folio_in_blocks(order)
    }

    fn claim_folio_in_blocks(&self, order: Order) -> Option<Claimed> {
        let small = order.max(LEAST_RUN);
        let batch = || if small < Order::PMD { self.claim_batch(small) } else { None };
        let of = |from: Order| move |first: Pfn| Claimed { first, from };
        (self.claim_beside_others(Kind::Shared, order).map(of(order)))
            .or_else(|| self.claim_block().map(of(Order::PMD)))
            .or_else(|| batch().map(of(small)))
            .or_else(|| self.claim_beside_others(Kind::Any, order).map(of(order)))
    }

    /// Of a run that is the caller's alone. Gives back what is too much.
    fn make_folio_zero(&self, claimed: &Claimed, order: Order, sub_page: u32) -> Pfn {
        let Claimed { first, from } = *claimed;
        self.frames.blocks.at(BlockId::of(first)).mark(Class::Shared);
        self.frames.note_run_used(first, 1);
        let content = self.frames.content(first, from.nr_pages());
        if !content.is_zero() {
            let sub_page = Some(u64::from(sub_page));
            clear::clear_folio(&self.machine, first, order, sub_page, self.clear_order(order), self.clear_by());
        }
        self.release_rest(first, order, from, content);
        first
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
