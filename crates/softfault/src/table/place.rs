//! An entry of level 1, and where it is.

use super::entry::Slot;
use super::format::{Format, span_of};
use crate::addr::{PageRange, Pfn, Vpn};

/// An entry of level 1 in place.
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
        PageRange::new(self.base, Vpn(self.base.0 + span_of::<F>(1)))
    }
}
