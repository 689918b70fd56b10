//! Sizes between: 2^order adjacent frames for one fault, from a block that the CPU has
//! for that, so that no two CPUs take them from the same one.
//!
//! Looks at a bounded number of blocks: whoever asks can do with single frames. A block
//! that had nothing to offer says so from then on, so that the next one who asks looks
//! at others.
//!
//! Locks on entry: none, no section. Answers nobody: it begins and ends on one CPU.

use super::Memory;
use super::summary::Kind;
use crate::addr::{BlockId, OptBlock, Order, Pfn};
use crate::machine::Machine;

/// Blocks that are looked at.
const MAX_BLOCKS: usize = 8;

impl<M: Machine> Memory<M> {
    /// 2^order frames; `None` where a few looks found none.
    pub(super) fn claim_batch(&self, order: Order) -> Option<Pfn> {
        let (frames, kind) = (&self.frames, Kind::run(order)?);
        let tag = u64::from(self.machine.this_cpu().0) + 1;
        let cpu = self.this_cpu_data();
        let own = OptBlock::from_word(cpu.batch_block.get());
        let is_ours = |b: &BlockId| frames.blocks.at(*b).owner() == tag || frames.blocks.at(*b).reserve(tag);
        if let Some(found) = own.get().filter(is_ours).and_then(|b| frames.claim_part(b, order.nr_pages())) {
            self.count_taken(order.nr_pages());
            return Some(found);
        }
        // Told by one word, most often.
        if !frames.blocks.summary.has(kind) {
            return None;
        }
        let from = own.get().unwrap_or(cpu.zone().start);
        let places = [cpu.zone(), frames.blocks.names()];
        let near = places.into_iter().flat_map(|some| frames.blocks.offering(kind, some, from));
        let (b, found) = near.take(MAX_BLOCKS).find_map(|b| self.begin_batches(b, tag, order))?;
        cpu.batch_block.set(OptBlock::some(b).to_word());
        self.count_taken(order.nr_pages());
        self.begun(b);
        if let Some(old) = own.get() {
            frames.blocks.at(old).unreserve(tag);
        }
        Some(found)
    }

    /// Reserves the block and takes the first frames from it.
    fn begin_batches(&self, b: BlockId, tag: u64, order: Order) -> Option<(BlockId, Pfn)> {
        let block = self.frames.blocks.at(b);
        if !block.reserve(tag) {
            return None;
        }
        let found = self.frames.claim_part(b, order.nr_pages());
        if found.is_none() {
            block.lose_runs();
            block.unreserve(tag);
        }
        found.map(|first| (b, first))
    }
}
