//! Fragmentation: how much of free memory is in runs that are too small.
//!
//! Reads only the blocks' bitmaps: exact at rest, an estimate while others allocate and free.
//! Frames in the frame caches of CPUs count as used, as do those on Linux's per-CPU lists. Locks on
//! entry: none.

use super::Frames;
use super::Memory;
use super::block::BlockData;
use super::runs::{BLOCK_WORDS, run_starts};
use crate::addr::{BLOCK_FRAMES, BlockId, Order};
use crate::machine::Machine;
use crate::pace::Pace;

/// Free memory, for a request of 2^order adjacent, aligned frames.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Fragmentation {
    /// Free frames.
    pub nr_free: u64,
    /// Those of them that lie in aligned runs of 2^order free frames.
    pub nr_usable: u64,
}

impl Fragmentation {
    /// The share of free memory that is unusable for the order, in thousandths: 0 if all of it is
    /// in large enough runs, 1,000 if none is, or if nothing is free.
    ///
    /// Source: `unusable_index` in Linux's debugfs, directory `extfrag`.
    pub fn unusable_permille(&self) -> u64 {
        match self.nr_free {
            0 => 1000,
            nr_free => (nr_free - self.nr_usable.min(nr_free)) * 1000 / nr_free,
        }
    }
}

impl<M: Machine> Memory<M> {
    /// How fragmented free memory is for blocks of 2^order frames. No frame is
    /// usable for an order above [`Order::MAX`].
    pub fn fragmentation(&self, order: Order) -> Fragmentation {
        self.call_anywhere();
        let frames = &self.frames;
        let mut pace = Pace::new(&self.machine);
        let nr_free = frames.blocks.iter().inspect(|_| pace.step()).map(BlockData::nr_free_exact).sum();
        let nr_usable = match u32::from(order.0) {
            small @ 0..=9 => frames.blocks.iter().inspect(|_| pace.step()).map(|block| usable_in(block, small)).sum(),
            large if order <= Order::MAX => frames.usable_above(large, &mut pace),
            _ => 0,
        };
        Fragmentation { nr_free, nr_usable }
    }
}

impl Frames {
    /// In runs of whole blocks, `order` above 9.
    fn usable_above<M: Machine>(&self, order: u32, pace: &mut Pace<'_, M>) -> u64 {
        let step = 1 << (order - BLOCK_FRAMES.ilog2());
        let mut is_free = |b: u32| {
            pace.step();
            self.blocks.at(BlockId(b)).nr_free_exact() == BLOCK_FRAMES
        };
        let runs = (0..self.blocks.nr() as u32 / step).filter(|i| (i * step..(i + 1) * step).all(&mut is_free));
        (runs.count() as u64) << order
    }
}

/// Frames of the block in aligned runs of 2^order free ones.
fn usable_in(block: &BlockData, order: u32) -> u64 {
    let words: [u64; BLOCK_WORDS] = core::array::from_fn(|w| block.free_word(w));
    if order < 6 {
        return words.iter().map(|word| u64::from(run_starts(*word, order).count_ones()) << order).sum();
    }
    let whole = |run: &&[u64]| run.iter().all(|word| *word == !0);
    (words.chunks_exact(1 << (order - 6)).filter(whole).count() as u64) << order
}

#[cfg(test)]
mod tests;
