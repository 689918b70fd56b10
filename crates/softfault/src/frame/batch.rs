//! Sizes between: 2^order adjacent frames for one fault, from a block that the CPU has
//! for that, so that no two CPUs take them from the same one.
//!
//! A fault asks for a size only if one of them may be free ([`may_have_run`]): a word for
//! the block of its own and one for all others. A search looks at a bounded number of
//! blocks, since a single frame will do. A block that had no such run says so from then on,
//! so that the next search looks at others.
//!
//! [`may_have_run`]: Memory::may_have_run
//!
//! Locks on entry: none, no section. Answers nobody: it begins and ends on one CPU.

use super::Memory;
use super::summary::Kind;
use crate::addr::{BlockId, OptBlock, Order, Pfn};
use crate::machine::Machine;

/// Blocks that are looked at. With four, a fault that finds nothing and takes a small page
/// touches less than twice the words of one that asks for a small page.
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

    /// 2^order frames; `None` where a few looks found none.
    pub(super) fn claim_batch(&self, order: Order) -> Option<Pfn> {
        let (frames, kind) = (&self.frames, Kind::run(order)?);
        let (cpu, tag) = (self.this_cpu_data(), self.batch_tag());
        let own = OptBlock::from_word(cpu.batch_block.get()).get();
        if let Some(found) = own.and_then(|b| self.claim_from_own(b, tag, order)) {
            self.count_taken(order.nr_pages());
            return Some(found);
        }
        // Told by one word, most often.
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

    /// Under which this CPU reserves its block.
    fn batch_tag(&self) -> u64 {
        u64::from(self.machine.this_cpu().0) + 1
    }

    /// From the block that the CPU has reserved, or had.
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

    /// Reserves the block and takes the first frames from it. Not before a look at its
    /// bitmap: a reservation changes most kinds, and the summaries are told of each.
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
