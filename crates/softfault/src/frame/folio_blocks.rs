//! Folios of whole blocks: the tails behind the first block, and zeroes.
//!
//! Locks on entry: none, no section: answers other CPUs. The frames are owned by the caller alone.

use super::Memory;
use super::tails::Tails;
use crate::addr::{BLOCK_FRAMES, BlockId, Order, Pfn};
use crate::clear;
use crate::machine::Machine;
use crate::pace::Pace;

/// The blocks of 2^order adjacent frames.
fn blocks_of(first: Pfn, order: Order) -> impl Iterator<Item = BlockId> {
    let b = BlockId::of(first).0;
    (b..b + (order.nr_pages() / BLOCK_FRAMES) as u32).map(BlockId)
}

impl<M: Machine> Memory<M> {
    /// Zeroes those blocks of a folio that are not zero; `sub_page` is used first.
    pub(crate) fn zero_blocks(&self, first: Pfn, order: Order, sub_page: u64) {
        let (how, by) = (self.clear_order(Order::PMD), self.clear_by());
        let mut pace = Pace::new(&self.machine);
        for b in blocks_of(first, order) {
            pace.step();
            let at = b.first_frame();
            if !self.frames.is_clean(at, BLOCK_FRAMES) {
                let hint = sub_page.checked_sub(u64::from(at.0 - first.0)).filter(|page| *page < BLOCK_FRAMES);
                clear::clear_folio(&self.machine, at, Order::PMD, hint, how, by);
            }
        }
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
