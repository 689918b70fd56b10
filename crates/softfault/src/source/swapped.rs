//! The word of a page that is swapped out or in transit.
//!
//! ```text
//! swapped     slot + 1   0..33 | bytes that are kept 40..53 | SWAPPED 62
//! in transit  OptPfn     0..33 | bytes that are kept 40..53 | TRANSIT 58
//! ```
//! `swapped_slot.rs` has its changes.
//!
//! Locks on entry: none.

use crate::addr::{OptPfn, PAGE_SIZE, Pfn, SwapSlot};

/// The page is in the swap area.
pub(super) const SWAPPED: u64 = 1 << 62;
/// The page is in transit, to the swap area or back.
pub(super) const TRANSIT: u64 = 1 << 58;
const KEPT_SHIFT: u32 = 40;
const KEPT_MASK: u64 = (1 << 13) - 1;
const NUMBER_MASK: u64 = (1 << 33) - 1;

/// A page in the swap area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Swapped {
    pub(crate) slot: SwapSlot,
    /// Number of bytes that are kept. The others are zeroed when the page is swapped in.
    pub(crate) nr_kept: u64,
}

impl Swapped {
    pub(crate) fn whole(slot: SwapSlot) -> Swapped {
        Swapped { slot, nr_kept: PAGE_SIZE }
    }

    pub(super) fn to_word(self) -> u64 {
        (u64::from(self.slot.0) + 1) | self.nr_kept << KEPT_SHIFT | SWAPPED
    }

    /// The word while the page is in transit from or to the slot.
    pub(super) fn in_transit(self, pfn: Pfn) -> u64 {
        OptPfn::some(pfn).to_word() | self.nr_kept << KEPT_SHIFT | TRANSIT
    }

    pub(super) fn of_word(word: u64) -> Swapped {
        Swapped { slot: SwapSlot(((word & NUMBER_MASK) - 1) as u32), nr_kept: word >> KEPT_SHIFT & KEPT_MASK }
    }
}

/// The result of removing a page that may be swapped out.
pub(super) enum Dropped {
    /// The caller owns the slot's one entry.
    Slot(SwapSlot),
    /// The CPU that put the page in transit frees frame and slot. The caller wakes the waiters of this folio.
    InTransit(Pfn),
    /// It is neither swapped out nor in transit.
    NotAway,
    /// It is about to be in the object: look again.
    Arriving,
}
