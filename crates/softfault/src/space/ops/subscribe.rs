//! Begins and ends subscriptions to a space.
//!
//! Locks on entry: none. Takes the writer lock.

use crate::machine::Machine;
use crate::notify::lookup::Subscription;
use crate::notify::tell::ONE_IS_OVER;
use crate::space::AddressSpace;
use crate::sync::{self, Ordering};

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Begins a subscription: from now on [`Machine::notify`] receives the notices of this space.
    /// Subscriptions are counted; each notice is given once, however many there are.
    ///
    /// Changes that are in progress are complete when this returns, so no lookup finds an entry whose
    /// change is not announced. Operations hold the writer lock, and a fault that saw no subscription
    /// took its entry in a section that is waited for here.
    pub fn subscribe(&self) -> Subscription<'vm, M> {
        let _writer = self.write_lock();
        let notify = &self.data.notify;
        if notify.nr_subscribers.fetch_add(1, Ordering::AcqRel) == 0 {
            // Changes were not counted since the last subscription ended: invalidate all lookups
            // from before.
            notify.changes.fetch_add(ONE_IS_OVER, Ordering::AcqRel);
        }
        self.wait_for_readers();
        Subscription::to(self)
    }

    /// Ends a subscription. After the last one has ended, no notice of the space is being received,
    /// and none is given until the next subscription.
    ///
    /// Waits for notices that other CPUs are receiving. The caller must hold no lock that a
    /// subscriber takes.
    ///
    /// # Errors
    ///
    /// Returns the subscription if it is to another space.
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
            // Copies of faults, collapses, moves of pages and discards of objects' pages: none of
            // them waits for this lock before it has told its end. One that starts now finds no
            // subscriber, or is counted in `nr_untold`.
            sync::fence();
            while notify.nr_untold.load(Ordering::Acquire) != 0 {
                self.vm.machine.relax();
            }
        }
        Ok(())
    }
}
