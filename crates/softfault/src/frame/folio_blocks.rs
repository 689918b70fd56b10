//! Folios of whole blocks: the tails behind the first block, and zeroes.
//!
//! Locks on entry: none, no section: answers other CPUs. The frames are owned by the caller alone.

use super::Memory;
use super::tails::Tails;
use crate::addr::{BLOCK_FRAMES, BlockId, Order, Pfn};
use crate::clear::{self, Poisoned};
use crate::machine::Machine;
use crate::mem::SourceFailed;
use crate::pace::Pace;

/// The same, the block of frame `sub_page` last, and where that frame is in each block: in the last one alone.
fn blocks_towards(first: Pfn, order: Order, sub_page: u64) -> impl Iterator<Item = (BlockId, Option<u64>)> {
    let (b, nr) = (BlockId::of(first).0, (order.nr_pages() / BLOCK_FRAMES) as u32);
    let last = (sub_page / BLOCK_FRAMES) as u32;
    (1..=nr).map(move |i| (BlockId(b + (last + i) % nr), (i == nr).then_some(sub_page % BLOCK_FRAMES)))
}

/// The blocks of 2^order adjacent frames.
fn blocks_of(first: Pfn, order: Order) -> impl Iterator<Item = BlockId> {
    let b = BlockId::of(first).0;
    (b..b + (order.nr_pages() / BLOCK_FRAMES) as u32).map(BlockId)
}

impl<M: Machine> Memory<M> {
    /// Zeroes those blocks of a folio that are not zero; `sub_page`, which is used first, comes last.
    pub(crate) fn zero_blocks(&self, first: Pfn, order: Order, sub_page: u64) {
        let (how, by) = (self.clear_order(Order::PMD), self.clear_by());
        let mut pace = Pace::new(&self.machine);
        for (b, hint) in blocks_towards(first, order, sub_page) {
            pace.step();
            let at = b.first_frame();
            if !self.frames.is_clean(at, BLOCK_FRAMES) {
                clear::clear_folio(&self.machine, at, Order::PMD, hint, how, by);
            }
        }
    }

    /// Copies a folio to frames that the caller owns; `sub_page`, which is used first, comes last.
    pub(crate) fn copy_blocks(&self, to: Pfn, from: Pfn, order: Order, sub_page: u64) -> Result<(), SourceFailed> {
        let how = self.clear_order(Order::PMD);
        let mut pace = Pace::new(&self.machine);
        for (b, hint) in blocks_towards(to, order, sub_page) {
            pace.step();
            let (at, of) = (b.first_frame(), Pfn(from.0 + (b.first_frame().0 - to.0)));
            // No frame here is known to be bad: the copy has nobody to ask but the machine.
            let copied = clear::copy_folio(&self.machine, at, of, Order::PMD, hint, how, &mut |_| Ok(()));
            copied.map_err(|Poisoned { index }| SourceFailed(Pfn(of.0 + index as u32)))?;
        }
        Ok(())
    }

    /// Sets or clears the tails of the blocks behind the first one.
    pub(super) fn set_tails_behind(&self, first: Pfn, order: Order, set: fn(&Tails)) {
        self.for_each_block(first, order, &mut |b| {
            if b.first_frame() != first {
                set(&self.frames.blocks.at(b).tails);
            }
        });
    }

    /// Calls `f` with each block of a folio. Answers between, if there are some: one block may be in a section.
    pub(super) fn for_each_block(&self, first: Pfn, order: Order, f: &mut dyn FnMut(BlockId)) {
        let mut pace = Pace::new(&self.machine);
        for b in blocks_of(first, order) {
            pace.step();
            f(b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Each block once, that of the fault last.
    #[test]
    fn the_block_of_the_fault_is_the_last() {
        let of = |order, sub_page| blocks_towards(Pfn(1 << 18), order, sub_page).collect::<Vec<_>>();
        assert_eq!(of(Order::PMD, 7), [(BlockId(512), Some(7))]);
        for sub_page in [0, 511, 512, 300 * 512 + 9, (1 << 18) - 1] {
            let blocks = of(Order::PUD, sub_page);
            let last = BlockId(512 + (sub_page / 512) as u32);
            assert_eq!((blocks.len(), blocks[511]), (512, (last, Some(sub_page % 512))));
            assert!(blocks[..511].iter().all(|(_, hint)| hint.is_none()));
            let mut all: Vec<u32> = blocks.iter().map(|(b, _)| b.0).collect();
            all.sort_unstable();
            assert_eq!(all, (512..1024).collect::<Vec<u32>>());
        }
    }
}
