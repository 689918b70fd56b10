//! Subscriptions to a space: their beginning and end.

use crate::machine::Machine;
use crate::notify::lookup::Subscription;
use crate::notify::tell::ONE_IS_OVER;
use crate::space::AddressSpace;
use crate::sync::{self, Ordering};

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// From now on [`Machine::notify`] hears of this space. Subscriptions are
    /// counted; every notice is given once, however many there are.
    ///
    /// What is in progress when this is called has changed its entries when this returns, so that
    /// no lookup finds what was never told of: operations hold the writer lock, and a fault that
    /// saw no subscription took its entry in the section that is waited for here.
    pub fn subscribe(&self) -> Subscription<'vm, M> {
        let _writer = self.write_lock();
        let notify = &self.data.notify;
        if notify.nr_subscribers.fetch_add(1, Ordering::AcqRel) == 0 {
            // Nobody has counted since the last subscription ended: no lookup from before
            // is current any more.
            notify.changes.fetch_add(ONE_IS_OVER, Ordering::AcqRel);
        }
        self.wait_for_readers();
        Subscription::to(self)
    }

    /// Takes the subscription back. When the last one has been taken back, no notice
    /// of the space is being received, and none comes until the next subscription.
    ///
    /// Waits for notices that other CPUs are receiving, so it is called with nothing
    /// held that a subscriber waits for.
    ///
    /// # Errors
    ///
    /// Gives back a subscription to another space.
    ///
    /// # Panics
    ///
    /// In [`Machine::notify`]; the subscription stays in force.
    pub fn unsubscribe(&self, subscription: Subscription<'vm, M>) -> Result<(), Subscription<'vm, M>> {
        if !subscription.is_to(self) {
            return Err(subscription);
        }
        let _writer = self.write_lock();
        let notify = &self.data.notify;
        if notify.nr_subscribers.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Copies of faults, collapses, pages that move, and pages that leave objects: none
            // waits for this lock before it has told its end. One that comes now sees that nobody is left,
            // or is seen here.
            sync::fence();
            while notify.nr_untold.load(Ordering::Acquire) != 0 {
                self.vm.machine.relax();
            }
        }
        Ok(())
    }
}
