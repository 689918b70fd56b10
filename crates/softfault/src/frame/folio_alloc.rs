//! Frames for a folio of an object. It comes from a block with pages of
//! objects, then from one that is wholly free, and only then from among private pages. Blocks that
//! serve something else come last.
//!
//! A size that the caller can do without is given up after a bounded number of looks, and during a freeze
//! without a look (I28). The least size is looked for in all blocks that say that they have such a
//! run, and is refused as one frame is: in a last-resort turn. A block that has none says so from
//! then on, so that looks that find nothing are as rare as frames that come back. Blocks that CPUs have reserved say
//! nothing; they are asked as a last resort, after their frame caches.
//!
//! Locks on entry: none, no section. The caller holds nothing.

use super::class::Class;
use super::held::Held;
use super::summary::Kind;
use super::want::Search;
use super::{Content, HugeFrame, Memory, OutOfFrames};
use crate::addr::{BLOCK_FRAMES, BlockId, BlockRange, OptBlock, Order, Pfn};
use crate::clear;
use crate::machine::{CpuId, CpuSet, Machine};
use crate::pace::Pace;
use crate::sync::Ordering;

/// The smallest run that CPUs reserve blocks for.
const LEAST_BATCH: Order = Order(2);
/// Blocks of a kind that a search tries for an order that the caller can do without. A guess.
const MOST_LOOKS: usize = 64;
/// Blocks with free frames that are looked at last: where memory is a few blocks, CPUs have reserved
/// all of them.
const FEW_LOOKS: usize = 4;

/// A run of 2^from frames that was just claimed for a folio.
struct Claimed {
    first: Pfn,
    from: Order,
}

impl<M: Machine> Memory<M> {
    /// Obtains 2^order adjacent frames, aligned to their number, counted as held. `sub_page` is used first. They
    /// are zero, if they are less than a block; blocks are zeroed when they have a place ([`zero_blocks`]). Waits
    /// as for one frame.
    ///
    /// [`zero_blocks`]: Self::zero_blocks
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
        self.surely(&mut |search| self.hold_folio(order, Some(search)))
    }

    /// The same for an order that the caller can do without: does not wait.
    pub(crate) fn obtain_folio_if_found(&self, order: Order, sub_page: u32) -> Result<(Pfn, Held<'_>), OutOfFrames> {
        let (claimed, held) = self.obtain_run_if_found(order, &|| self.claim_folio(order, None))?;
        Ok((self.make_folio_zero(&claimed, order, sub_page), held))
    }

    /// The same, to be overwritten.
    pub(crate) fn obtain_folio_to_fill_if_found(&self, order: Order) -> Result<(Pfn, Held<'_>), OutOfFrames> {
        let (claimed, held) = self.obtain_run_if_found(order, &|| self.claim_folio(order, None))?;
        self.begin_folio(&claimed, order);
        Ok((claimed.first, held))
    }

    /// The same for a folio that is pinned for long: in a block of such pages, or in one that becomes that.
    pub(crate) fn obtain_folio_set_apart(&self, order: Order) -> Result<(Pfn, Held<'_>), OutOfFrames> {
        let (claimed, held) = self.obtain_run_if_found(order, &|| self.claim_folio_set_apart(order))?;
        self.begin_folio(&claimed, order);
        self.frames.blocks.at(BlockId::of(claimed.first)).mark(Class::Pinned);
        Ok((claimed.first, held))
    }

    /// A block among these, to be overwritten, if one is wholly free. Does not wait.
    pub(crate) fn obtain_block_to_fill_in(&self, some: BlockRange) -> Result<(Pfn, Held<'_>), OutOfFrames> {
        let (claimed, held) = self.obtain_run_if_found(Order::PMD, &|| self.claim_block_in(some))?;
        self.begin_folio(&claimed, Order::PMD);
        Ok((claimed.first, held))
    }

    fn claim_block_in(&self, some: BlockRange) -> Option<Claimed> {
        let blocks = &self.frames.blocks;
        let mut pace = Pace::new(&self.machine);
        let whole = [Kind::Ready, Kind::Whole].into_iter().flat_map(|kind| blocks.offering(kind, some, some.start));
        let found = whole.inspect(|_| pace.step()).find_map(|b| self.claim_whole(b).map(|huge| (b, huge.first)));
        let (b, first) = found?;
        self.frames.folio(first).state.set(0);
        self.begun(b);
        Some(Claimed { first, from: Order::PMD })
    }

    fn obtain_run_if_found(
        &self,
        order: Order,
        claim: &dyn Fn() -> Option<Claimed>,
    ) -> Result<(Claimed, Held<'_>), OutOfFrames> {
        let wanted = OutOfFrames::Block(order);
        self.frames.count_down(wanted)?;
        if self.frames.is_frozen() { Err(wanted) } else { self.hold_claimed(order, claim) }
    }

    fn hold_folio(&self, order: Order, search: Option<Search>) -> Result<(Claimed, Held<'_>), OutOfFrames> {
        self.hold_claimed(order, &|| self.claim_folio(order, search))
    }

    /// Makes one attempt. Its hold ends as unsuccessful if it has claimed nothing, not even for a moment.
    fn hold_claimed(
        &self,
        order: Order,
        claim: &dyn Fn() -> Option<Claimed>,
    ) -> Result<(Claimed, Held<'_>), OutOfFrames> {
        let nr_undone = || self.frames.nr_undone.load(Ordering::Relaxed);
        let (held, before) = (self.hold(), nr_undone());
        if let Some(claimed) = claim() {
            return Ok((claimed, held));
        }
        // Others may have changed it: a trace too many.
        if nr_undone() == before {
            held.in_vain();
        }
        Err(OutOfFrames::Block(order))
    }

    /// Where a smaller size will do there is no `search`.
    fn claim_folio(&self, order: Order, search: Option<Search>) -> Option<Claimed> {
        let found = self.claim_folio_in_blocks(order, search);
        if found.is_some() || search != Some(Search::Everywhere) {
            return found;
        }
        let marked = self.frames.marked();
        self.steal_in_last_resort();
        (self.claim_folio_in_blocks(order, search)).or_else(|| self.claim_reserved(order, &marked))
    }

    fn claim_folio_in_blocks(&self, order: Order, search: Option<Search>) -> Option<Claimed> {
        let of = |from: Order| move |first: Pfn| Claimed { first, from };
        if order > Order::PMD {
            let most = if search.is_some() { MOST_LOOKS } else { FEW_LOOKS };
            return self.claim_blocks(most).map(of(order));
        }
        if order == Order::PMD {
            return self.claim_block().map(of(order));
        }
        let most = if search.is_some() { usize::MAX } else { MOST_LOOKS };
        let least = order.max(Order(1));
        let (run, stay) = (Kind::run(least)?, Kind::stay(least)?);
        let batch = order.max(LEAST_BATCH);
        let blocks = &self.frames.blocks;
        let has_run = |b| blocks.at(b).may_have_run(0, order);
        let see = |b| {
            blocks.at(b).see_runs();
            has_run(b)
        };
        (self.claim_run(Kind::Shared, order, MOST_LOOKS, has_run).map(of(order)))
            .or_else(|| self.claim_block().map(of(Order::PMD)))
            .or_else(|| self.claim_batch(batch).map(of(batch)))
            .or_else(|| search.and_then(|_| self.claim_run(run, order, most, |_| true)).map(of(order)))
            .or_else(|| self.claim_run(stay, order, most, |_| true).map(of(order)))
            .or_else(|| self.claim_run(Kind::Unseen, order, most, see).map(of(order)))
            .or_else(|| self.claim_of_cpu(self.machine.this_cpu(), order).map(of(order)))
            .or_else(|| self.claim_run(Kind::Any, order, FEW_LOOKS, |b| blocks.at(b).owner() != 0).map(of(order)))
    }

    /// As single frames for long-term pins are found (`stays.rs`), but for blocks that pages of objects
    /// have: there it is already.
    fn claim_folio_set_apart(&self, order: Order) -> Option<Claimed> {
        let of = |from: Order| move |first: Pfn| Claimed { first, from };
        if order >= Order::PMD {
            return self.claim_block().map(of(Order::PMD));
        }
        let has_run = |b| self.frames.blocks.at(b).may_have_run(0, order);
        (self.claim_run(Kind::Pinned, order, MOST_LOOKS, has_run).map(of(order)))
            .or_else(|| self.claim_run(Kind::Run8, order, MOST_LOOKS, |_| true).map(of(order)))
            .or_else(|| self.claim_block().map(of(Order::PMD)))
            .or_else(|| self.claim_run(Kind::Fixed, order, MOST_LOOKS, has_run).map(of(order)))
    }

    /// Zeroes a run that the caller owns alone, and gives the rest back. Blocks stay as they are.
    fn make_folio_zero(&self, claimed: &Claimed, order: Order, sub_page: u32) -> Pfn {
        let first = claimed.first;
        if !self.begin_folio(claimed, order).is_zero() && order < Order::PMD {
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
        // Of several blocks it is looked at block by block.
        let content = self.frames.content(first, from.nr_pages().min(BLOCK_FRAMES));
        self.release_rest(first, order, from, content);
        content
    }

    /// A block whose frames are on their own.
    fn claim_block(&self) -> Option<Pfn> {
        let HugeFrame { first, .. } = self.claim_huge(BLOCK_FRAMES)?;
        self.frames.folio(first).state.set(0);
        Some(first)
    }

    /// Claims a run in one of the blocks that say that they have one, if the block `suits`. Looks at `most` blocks. A
    /// block without one says so from then on, so that the search ends.
    fn claim_run(&self, kind: Kind, order: Order, most: usize, suits: impl Fn(BlockId) -> bool) -> Option<Pfn> {
        let blocks = &self.frames.blocks;
        let mut pace = Pace::new(&self.machine);
        let named = blocks.offering(kind, blocks.names(), self.home_range().start).take(most);
        { named }.inspect(|_| pace.step()).filter(|b| suits(*b)).find_map(|b| {
            let found = self.claim_run_in(b, order);
            if found.is_none() {
                blocks.at(b).lose_runs();
            }
            found
        })
    }

    /// Claims 2^order adjacent frames of a block, if it has such a run, which is less than a block.
    pub(crate) fn claim_run_in(&self, b: BlockId, order: Order) -> Option<Pfn> {
        let first = self.frames.claim_part(b, order.nr_pages())?;
        self.count_taken(order.nr_pages());
        Some(first)
    }

    /// Claims from a block that a CPU has reserved, or had reserved.
    fn claim_reserved(&self, order: Order, cpus: &CpuSet) -> Option<Claimed> {
        if order >= Order::PMD {
            return None;
        }
        let mut pace = Pace::new(&self.machine);
        let first = cpus.iter().inspect(|_| pace.step()).find_map(|id| self.claim_of_cpu(id, order))?;
        Some(Claimed { first, from: order })
    }

    fn claim_of_cpu(&self, id: CpuId, order: Order) -> Option<Pfn> {
        let cpu = self.cpu(id);
        let own = [&cpu.block, &cpu.batch_block].map(|word| OptBlock::from_word(word.load(Ordering::Relaxed)).get());
        own.into_iter().flatten().find_map(|b| self.claim_run_in(b, order))
    }

    /// Gives back what a run of order `from` has beyond `order`: runs that are as long as all
    /// that is before them.
    fn release_rest(&self, first: Pfn, order: Order, from: Order, content: Content) {
        for order in (order.0..from.0).map(Order) {
            self.release_run(Pfn(first.0 + order.nr_pages() as u32), order.nr_pages(), content);
        }
    }
}
