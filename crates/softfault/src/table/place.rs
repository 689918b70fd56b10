//! An entry above the leaf tables, and where it is.

use super::entry::Slot;
use super::format::{Format, order_of, span_of};
use crate::addr::{Order, PageRange, Pfn, Vpn};

/// An entry in place: of level 1, or above. A page of 1 GiB of a pool has one of level 2.
pub(crate) struct PmdSlot<'a, F: Format> {
    pub(crate) slot: Slot<'a, F>,
    /// The table that it is in.
    pub(crate) table: Pfn,
    /// First page of its span.
    pub(crate) base: Vpn,
}

impl<F: Format> Clone for PmdSlot<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F: Format> Copy for PmdSlot<'_, F> {}

impl<F: Format> PmdSlot<'_, F> {
    /// The pages that it covers.
    pub(crate) fn span(&self) -> PageRange {
        PageRange::new(self.base, Vpn(self.base.0 + self.nr_pages()))
    }

    /// Their number.
    pub(crate) fn nr_pages(&self) -> u64 {
        span_of::<F>(self.slot.level)
    }

    /// The size of a page that it maps.
    pub(crate) fn order(&self) -> Order {
        order_of::<F>(self.slot.level)
    }
}
