//! Notices of a space to its subscribers.

use super::AddressSpace;
use crate::addr::PageRange;
use crate::machine::Machine;
use crate::notify::notice::{Notice, Why};
use crate::notify::tell::{Invalidation, Told};

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    #[inline]
    fn told(&self) -> Told<'vm> {
        Told { line: &self.data.notify, tag: self.tag() }
    }

    #[inline]
    pub(crate) fn has_subscribers(&self) -> bool {
        self.data.notify.has_any()
    }

    /// As [`Base::invalidate`](crate::base::Base).
    #[inline]
    pub(crate) fn invalidate(&self, range: PageRange, why: Why) -> Invalidation<'vm, M> {
        self.vm.invalidate(self.told(), range, why)
    }

    /// Tells the start of a change. If several ranges change with one shootdown, each gets its own
    /// notice. Under the writer lock, so that subscribers that get the start also get the end.
    pub(crate) fn tell_start(&self, range: PageRange, why: Why) {
        let was_told = self.vm.tell_start(self.told(), range, why);
        debug_assert!(was_told, "I24: nobody unsubscribes under the writer lock");
    }

    pub(crate) fn tell_end(&self, range: PageRange, why: Why) {
        self.vm.tell_end(self.told(), range, why);
    }

    /// Tells the end of the space, which nothing names any more and no CPU runs.
    pub(crate) fn tell_release(&self) {
        if self.has_subscribers() {
            self.vm.tell_machine(self.tag(), &Notice::Release);
        }
    }
}
