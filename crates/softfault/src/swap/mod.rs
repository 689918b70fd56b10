//! Module `swap`: the slots of pages that were swapped out.
//!
//! `area` has the words; this file frees the frames that they release. The machine stores the
//! bytes: [`Machine::swap_out`], [`Machine::swap_in`]. `compact/swap_out.rs` swaps out, faults swap
//! in (`fault/swapped.rs`), and operations drop and share slots as they do frames.

pub(crate) mod area;

pub(crate) use area::{ReadEnd, Source};

use crate::addr::{Pfn, SwapSlot};
use crate::frame::{Fill, Memory};
use crate::machine::{Machine, SwapError};
use area::Spared;

impl<M: Machine> Memory<M> {
    /// Drops an entry that named the slot. The last one frees it.
    pub(crate) fn swap_drop(&self, slot: SwapSlot) {
        self.free_spared(self.swap.drop_entry(slot));
    }

    /// A read of the slot is over.
    pub(crate) fn swap_end_read(&self, slot: SwapSlot, end: ReadEnd) {
        self.free_spared(self.swap.end_read(slot, end));
    }

    /// The machine has written the slot's page, or could not.
    pub(crate) fn swap_written(&self, slot: SwapSlot, written: Result<(), SwapError>) {
        self.free_spared(self.swap.end_slot_write(slot, written));
    }

    fn free_spared(&self, Spared(frame): Spared) {
        frame.into_iter().for_each(|pfn: Pfn| self.give_back(pfn, Fill::Raw));
    }
}
