//! The knobs of huge pages: what faults ask of them, and how they are changed.
//!
//! Locks on entry: none. A change takes the spinlock of the words.

use super::Base;
use super::huge_words::HugeNow;
use crate::addr::Order;
use crate::lock::Spin;
use crate::machine::{LockKind, Machine};
use crate::policy::huge::Orders;
use crate::space::vma::VmaFlags;
use crate::table::format::huge_order;
use crate::tunables::huge::{HugeKnobs, HugeMode, KnobError};

impl<M: Machine> Base<M> {
    /// Returns the knobs as faults use them, all of one moment.
    #[inline(always)]
    pub(crate) fn huge_now(&self) -> HugeNow {
        HugeNow(self.huge.now.get())
    }

    /// The sizes above a base page that a fault may use in a VMA with these flags,
    /// of a process that has not refused huge pages.
    #[inline(always)]
    pub fn huge_orders(&self, flags: VmaFlags) -> Orders {
        self.huge_now().orders(flags)
    }

    /// Whether any VMA may get pages between 4 KiB and 2 MiB.
    #[inline(always)]
    pub fn mid_orders_any(&self) -> bool {
        !self.huge_now().advised_orders().and(Orders::MID).is_empty()
    }

    /// Whether the daemon has anything to look for: as on Linux it runs while some
    /// memory may get 2 MiB pages.
    pub fn khugepaged_wanted(&self) -> bool {
        self.huge_now().advised_orders().contains(Order::PMD)
    }

    /// Whether huge pages are off for as long as this lives
    /// ([`Tunables::thp_off`](crate::Tunables::thp_off)).
    pub fn huge_off(&self) -> bool {
        self.huge_now().is_off()
    }

    /// Zero sub-pages above which a huge page is one that memory is wasted on, if
    /// such ones are to be split at all.
    pub(crate) fn underused_above(&self) -> Option<u64> {
        let max_ptes_none = self.huge.limits.get() >> 32 & 0x3ff;
        (self.huge_now().splits_underused() && max_ptes_none + 1 < huge_order::<M::Format>().nr_pages())
            .then_some(max_ptes_none)
    }

    /// The knobs of huge pages.
    pub fn huge_knobs(&self) -> HugeKnobs {
        self.assert_outside();
        let _lock = Spin::lock(LockKind::HugeKnobs, &self.huge.lock, &self.machine);
        self.huge.knobs()
    }

    /// Sets the knobs of huge pages. Pages that are there stay as they are; the
    /// next fault goes by the new settings.
    ///
    /// # Errors
    ///
    /// [`KnobError`]; nothing is changed then.
    pub fn set_huge_knobs(&self, knobs: &HugeKnobs) -> Result<(), KnobError> {
        self.change_huge_knobs(&mut |now| {
            *now = *knobs;
            Ok(())
        })
    }

    /// Changes some knobs and leaves the others as they are, also those that are
    /// changed at the same time by somebody else. `change` is called with nothing
    /// held, and again if they were changed meanwhile.
    ///
    /// # Errors
    ///
    /// The error of `change`, or [`KnobError`]; nothing is changed then.
    pub fn change_huge_knobs(
        &self,
        change: &mut dyn FnMut(&mut HugeKnobs) -> Result<(), KnobError>,
    ) -> Result<(), KnobError> {
        loop {
            let before = self.huge_knobs();
            let mut knobs = before;
            change(&mut knobs)?;
            knobs.validate(if self.huge_off() { HugeMode::Off } else { HugeMode::Knobs })?;
            let _lock = Spin::lock(LockKind::HugeKnobs, &self.huge.lock, &self.machine);
            if self.huge.knobs() == before {
                self.huge.store(&knobs);
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
#[path = "huge_tests.rs"]
mod tests;
