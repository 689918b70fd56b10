//! Folios of whole blocks: the tails behind the first block, and zeroes.
//!
//! Locks on entry: none, no section: answers other CPUs. The frames are the caller's alone.

use super::tails::Tails;
use super::{Content, Memory};
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
        let mut pace = Pace::new(&self.machine);
        for b in blocks_of(first, order).skip(1) {
            pace.step();
            set(&self.frames.blocks.at(b).tails);
        }
    }

    /// Frees the frames of a folio that has ended.
    pub(super) fn release_blocks_of_folio(&self, first: Pfn, order: Order) {
        let mut pace = Pace::new(&self.machine);
        for b in blocks_of(first, order) {
            pace.step();
            self.release_run(b.first_frame(), BLOCK_FRAMES, Content::Unknown);
        }
    }
}
