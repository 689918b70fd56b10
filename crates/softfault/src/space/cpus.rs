//! The CPUs that may hold translations of an address space or be in a section of it: waits,
//! shootdowns, counts of shootdowns.
//!
//! A CPU's bit is set before it loads the root table (`active.rs`), or before it enters a section
//! of a space that it does not run (`section/visit.rs`, in the order that I11 requires). A writer
//! publishes first and reads the set afterwards.
//!
//! Locks on entry: none; outside sections to wait and to shoot down.

use super::{AddressSpace, ShotLine};
use crate::account::Event;
use crate::machine::{CpuSet, Flush, Machine};
use crate::section::visit::SpaceSection;
use crate::sync::{self, Ordering};

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Enters a section of this space.
    #[inline(always)]
    pub(crate) fn section(&self) -> SpaceSection<'vm> {
        self.vm.space_section(&self.data.cpus, self.id)
    }

    /// The CPUs that may hold translations of this space or be in a section of it. Read after a
    /// fence: a CPU that is not in the set yet sees what was written before.
    pub(crate) fn cpus(&self) -> CpuSet {
        self.vm.cpus_in(&self.data.cpus)
    }

    /// Waits until no section uses a version that was replaced before this call.
    pub(crate) fn wait_for_readers(&self) {
        let cpus = self.cpus();
        if !cpus.is_only(self.vm.machine.this_cpu()) {
            self.vm.count(Event::Grace, 1);
            self.vm.grace(&cpus);
        }
    }

    /// Invalidates translations on all CPUs; afterwards no access uses them.
    pub(crate) fn shootdown(&self, what: Flush) {
        let mut cpus = self.cpus();
        if self.data.shot.is_counted() {
            // Before the set of CPUs is read: a section that is not waited for sees the new count
            // (I39).
            self.data.shot.raise();
            cpus = self.cpus();
        }
        if !cpus.is_empty() {
            self.vm.count(Event::Shootdown, 1);
            self.vm.machine.shootdown(self.tag(), &cpus, what);
        }
    }

    /// Shoots down and also waits for all sections that may have read the old entries. Their frames
    /// can be freed afterwards.
    pub(crate) fn shootdown_and_wait(&self, what: Flush) {
        self.shootdown(what);
        self.wait_after_shootdown();
    }

    /// Waits as the second half of [`shootdown_and_wait`](Self::shootdown_and_wait).
    pub(crate) fn wait_after_shootdown(&self) {
        if !self.vm.machine.shootdown_is_grace() {
            self.wait_for_readers();
        }
    }
}

impl ShotLine {
    /// Starts counting shootdowns, if they were not counted before.
    ///
    /// The fence pairs with the one before [`is_counted`](Self::is_counted): a remover
    /// that finds nothing to count has changed its entries before the caller reads any.
    pub(crate) fn begin_to_count(&self) {
        if !self.is_counted() {
            _ = self.count.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed);
        }
        sync::fence();
    }

    /// Whether shootdowns are counted. After a fence that follows the change of entries.
    fn is_counted(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    fn raise(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Release: a reader of the new count also reads the entries that were changed before it.
    #[inline(always)]
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }
}
