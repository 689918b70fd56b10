//! Batches: 2^order adjacent frames for one fault, from a block that the CPU has reserved for that,
//! so that no two CPUs use the same one.
//!
//! A fault asks for an order only if such a run may be free ([`may_have_run`]), which reads one
//! word for the CPU's block and one for all others. A search tries a bounded number of blocks,
//! because a single frame will do. A block without such a run records that, so the next search
//! tries others.
//!
//! [`may_have_run`]: Memory::may_have_run
//!
//! Locks on entry: none, no section. Does not answer other CPUs, so it begins and ends on one CPU.

use super::Memory;
use super::summary::Kind;
use crate::addr::{BlockId, OptBlock, Order, Pfn};
use crate::machine::Machine;

/// Blocks that a search tries. With four, a fault that finds nothing and takes a small page touches
/// less than twice the words of one that asks for a small page.
const MAX_BLOCKS: usize = 4;

impl<M: Machine> Memory<M> {
    /// Whether 2^order adjacent frames may be free for this CPU. If not, a search for them
    /// would find none.
    pub(crate) fn may_have_run(&self, order: Order) -> bool {
        let Some(kind) = Kind::run(order) else { return false };
        let (blocks, tag) = (&self.frames.blocks, self.batch_tag());
        let own = OptBlock::from_word(self.this_cpu_data().batch_block.get()).get();
        own.is_some_and(|b| blocks.at(b).may_have_run(tag, order)) || blocks.summary.has(kind)
    }

    /// Allocates 2^order frames; `None` if a few blocks had none.
    pub(super) fn claim_batch(&self, order: Order) -> Option<Pfn> {
        let (frames, kind) = (&self.frames, Kind::run(order)?);
        let (cpu, tag) = (self.this_cpu_data(), self.batch_tag());
        let own = OptBlock::from_word(cpu.batch_block.get()).get();
        if let Some(found) = own.and_then(|b| self.claim_from_own(b, tag, order)) {
            self.count_taken(order.nr_pages());
            return Some(found);
        }
        // One word is usually enough to tell.
        if !frames.blocks.summary.has(kind) {
            return None;
        }
        let from = own.unwrap_or(cpu.home_range().start);
        let places = [cpu.home_range(), frames.blocks.names()];
        let near = places.into_iter().flat_map(|some| frames.blocks.offering(kind, some, from));
        let (b, found) = near.take(MAX_BLOCKS).find_map(|b| self.begin_batches(b, tag, order))?;
        cpu.batch_block.set(OptBlock::some(b).to_word());
        self.count_taken(order.nr_pages());
        self.begun(b);
        if let Some(old) = own.filter(|old| *old != b) {
            frames.blocks.at(old).unreserve(tag);
        }
        Some(found)
    }

    /// The tag with which this CPU reserves its block.
    fn batch_tag(&self) -> u64 {
        u64::from(self.machine.this_cpu().0) + 1
    }

    /// Claims frames from the block that the CPU has reserved, or had.
    fn claim_from_own(&self, b: BlockId, tag: u64, order: Order) -> Option<Pfn> {
        let block = self.frames.blocks.at(b);
        if !block.may_have_run(tag, order) || block.owner() != tag && !block.reserve(tag) {
            return None;
        }
        let found = self.frames.claim_part(b, order.nr_pages());
        if found.is_none() {
            block.lose_runs();
        }
        found
    }

    /// Reserves the block and takes the first frames from it. Reads its bitmap first: a reservation
    /// changes most kinds, and each change updates the summaries.
    fn begin_batches(&self, b: BlockId, tag: u64, order: Order) -> Option<(BlockId, Pfn)> {
        let block = self.frames.blocks.at(b);
        if !block.has_run(order) || !block.reserve(tag) {
            return None;
        }
        let found = self.frames.claim_part(b, order.nr_pages());
        if found.is_none() {
            // Others took it since.
            block.unreserve(tag);
        }
        found.map(|first| (b, first))
    }
}
