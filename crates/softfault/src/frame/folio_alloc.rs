//! Frames for a folio of an object. It does not move, so it comes from a block with pages of
//! objects, then from one that is wholly free, and only then from among private pages. Blocks that
//! serve something else are looked at last, a bounded number at a time, on from the last one.
//!
//! A size that the caller can do without is given up after that, and in quiet without a look (I28).
//! The least size is looked for in all blocks that say that they have such a run, and is refused
//! as one frame is: in a turn in need. Of blocks with tables, pins or pages of objects, and of
//! those that are reserved, nothing tells which have a run. All of them are looked at before a
//! refusal, which costs two lines a block. Nobody waits for that look: the caller has neither a
//! turn nor frames, and claims what it found in another attempt.
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
/// Blocks of a kind that a search looks at without being told that they have a run. A guess.
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
        let (claimed, held) = self.obtain_run(order)?;
        Ok((self.make_folio_zero(&claimed, order, sub_page), held))
    }

    /// The same, to be overwritten.
    pub(crate) fn obtain_folio_to_fill(&self, order: Order) -> Result<(Pfn, Held<'_>), OutOfFrames> {
        let (claimed, held) = self.obtain_run(order)?;
        self.begin_folio(&claimed, order);
        Ok((claimed.first, held))
    }

    fn obtain_run(&self, order: Order) -> Result<(Claimed, Held<'_>), OutOfFrames> {
        self.frames.count_down(OutOfFrames::Block(order))?;
        let mut attempt = |search| self.hold_folio(order, Some(search));
        match self.surely(&mut attempt) {
            Err(_) if self.look_for_run(order) => self.surely(&mut attempt),
            found => found,
        }
    }

    /// The same for a size that the caller can do without: waits for nobody.
    pub(crate) fn obtain_folio_if_found(&self, order: Order, sub_page: u32) -> Result<(Pfn, Held<'_>), OutOfFrames> {
        let wanted = OutOfFrames::Block(order);
        self.frames.count_down(wanted)?;
        if self.frames.is_quiet() {
            return Err(wanted);
        }
        let (claimed, held) = self.hold_folio(order, None)?;
        Ok((self.make_folio_zero(&claimed, order, sub_page), held))
    }

    /// One attempt; where a smaller size will do there is no `search`. Leaves no trace if it has
    /// claimed nothing, not even for a moment.
    fn hold_folio(&self, order: Order, search: Option<Search>) -> Result<(Claimed, Held<'_>), OutOfFrames> {
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

    fn claim_folio(&self, order: Order, search: Option<Search>) -> Option<Claimed> {
        let found = self.claim_folio_in_blocks(order, search);
        if found.is_some() || search != Some(Search::Everywhere) || !self.steal_in_need() {
            return found;
        }
        self.claim_folio_in_blocks(order, search)
    }

    fn claim_folio_in_blocks(&self, order: Order, search: Option<Search>) -> Option<Claimed> {
        let small = order.max(LEAST_RUN);
        let of = |from: Order| move |first: Pfn| Claimed { first, from };
        if order >= Order::PMD {
            return self.claim_block().map(of(Order::PMD));
        }
        let shared = self.claim_beside_others(Kind::Shared, order, self.zone().start).1;
        (shared.map(of(order)))
            .or_else(|| self.claim_block().map(of(Order::PMD)))
            .or_else(|| self.claim_batch(small).map(of(small)))
            .or_else(|| if search.is_some() { self.claim_named(small).map(of(small)) } else { None })
            .or_else(|| self.claim_anywhere(order).map(of(order)))
    }

    /// Of a run that is the caller's alone. Gives back what is too much.
    fn make_folio_zero(&self, claimed: &Claimed, order: Order, sub_page: u32) -> Pfn {
        let first = claimed.first;
        if !self.begin_folio(claimed, order).is_zero() {
            let sub_page = Some(u64::from(sub_page));
            clear::clear_folio(&self.machine, first, order, sub_page, self.clear_order(order), self.clear_by());
        }
        first
    }

    /// The same, with its content as it is: what is known of that.
    fn begin_folio(&self, claimed: &Claimed, order: Order) -> Content {
        let Claimed { first, from } = *claimed;
        self.frames.blocks.at(BlockId::of(first)).mark(Class::Shared);
        self.frames.note_run_used(first, 1);
        let content = self.frames.content(first, from.nr_pages());
        self.release_rest(first, order, from, content);
        content
    }

    /// A block whose frames are on their own.
    fn claim_block(&self) -> Option<Pfn> {
        let HugeFrame { first, .. } = self.claim_huge(BLOCK_FRAMES)?;
        self.frames.folio(first).state.set(0);
        Some(first)
    }

    /// In one of the blocks that say that they have such a run. One that has none says so from
    /// then on: the search ends.
    fn claim_named(&self, order: Order) -> Option<Pfn> {
        let blocks = &self.frames.blocks;
        let mut pace = Pace::new(&self.machine);
        let named = blocks.offering(Kind::run(order)?, blocks.names(), self.zone().start);
        let first = named.inspect(|_| pace.step()).find_map(|b| {
            let found = self.frames.claim_part(b, order.nr_pages());
            if found.is_none() {
                blocks.at(b).lose_runs();
            }
            found
        })?;
        self.count_taken(order.nr_pages());
        Some(first)
    }

    /// In any block with free frames, on from where the last search ended.
    fn claim_anywhere(&self, order: Order) -> Option<Pfn> {
        let from = BlockId(self.frames.folio_search.load(Ordering::Relaxed) as u32);
        let (last, first) = self.claim_beside_others(Kind::Any, order, from);
        self.frames.folio_search.store(last.0.into(), Ordering::Relaxed);
        first
    }

    /// In a block of some kind, from `from` on; the last one that was looked at.
    fn claim_beside_others(&self, kind: Kind, order: Order, from: BlockId) -> (BlockId, Option<Pfn>) {
        let (blocks, mut last) = (&self.frames.blocks, from);
        let mut pace = Pace::new(&self.machine);
        let some = blocks.offering(kind, blocks.names(), from).take(MOST_LOOKS).inspect(|b| {
            pace.step();
            last = *b;
        });
        let first = { some }.find_map(|b| self.claim_run_in(b, order));
        (last, first)
    }

    /// 2^order adjacent frames of a block, if it has such a run and that is no block.
    pub(crate) fn claim_run_in(&self, b: BlockId, order: Order) -> Option<Pfn> {
        let first = self.frames.claim_part(b, order.nr_pages())?;
        self.count_taken(order.nr_pages());
        Some(first)
    }

    /// Whether a block has such a run; the next search begins there. Looks at the bitmaps of all
    /// that have free frames: what their states say of runs may be out of date for a moment.
    fn look_for_run(&self, order: Order) -> bool {
        if order >= Order::PMD {
            return false;
        }
        let blocks = &self.frames.blocks;
        let from = BlockId(self.frames.folio_search.load(Ordering::Relaxed) as u32);
        let mut pace = Pace::new(&self.machine);
        let mut some = blocks.offering(Kind::Any, blocks.names(), from).inspect(|_| pace.step());
        let found = some.find(|b| blocks.at(*b).largest_run() >= order.0.into());
        found.inspect(|b| self.frames.folio_search.store(b.0.into(), Ordering::Relaxed)).is_some()
    }

    /// Gives back what a run of order `from` has beyond `order`: runs that are as long as all
    /// that is before them.
    fn release_rest(&self, first: Pfn, order: Order, from: Order, content: Content) {
        for order in (order.0..from.0).map(Order) {
            self.release_run(Pfn(first.0 + order.nr_pages() as u32), order.nr_pages(), content);
        }
    }
}
