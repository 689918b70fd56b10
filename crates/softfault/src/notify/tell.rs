//! The side of those who change entries.
//!
//! Under the writer lock the number of subscriptions does not change. A fault
//! looks at it in the section in which it takes an entry: see `subscribe`.

use super::{Notice, Why};
use crate::account::Event;
use crate::addr::PageRange;
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::sync::{self, Ordering};

/// One more that is over, one fewer under way.
const OVER: u64 = (1 << 24) - 1;

pub(super) const fn is_under_way(changes: u64) -> bool {
    changes & ((1 << 24) - 1) != 0
}

/// A change under way. Its end is told when it is dropped, which has to be after
/// the shootdown.
#[must_use]
pub(crate) struct Invalidation<'a, 'vm, M: Machine> {
    /// Nobody was told where this is `None`.
    space: Option<&'a AddressSpace<'vm, M>>,
    range: PageRange,
    why: Why,
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Whether anybody has to be told.
    #[inline]
    pub(crate) fn has_subscribers(&self) -> bool {
        self.data.notify.nr_subscribers.load(Ordering::Acquire) != 0
    }

    /// Before entries of the range change: outside sections, with no entry owned
    /// or locked.
    #[inline]
    pub(crate) fn invalidate(&self, range: PageRange, why: Why) -> Invalidation<'_, 'vm, M> {
        let told = !range.is_empty() && self.has_subscribers();
        if told {
            self.tell_start(range, why);
        }
        Invalidation { space: told.then_some(self), range, why }
    }

    /// Where several ranges change with one shootdown, each is told for itself.
    #[cold]
    pub(crate) fn tell_start(&self, range: PageRange, why: Why) {
        self.data.notify.changes.fetch_add(1, Ordering::AcqRel);
        // A subscriber without a lock maps first and looks at the count afterwards.
        sync::fence();
        self.vm.count(Event::NotifyStart, 1);
        self.vm.machine.notify(self.tag(), &Notice::Start { range, why });
    }

    #[cold]
    pub(crate) fn tell_end(&self, range: PageRange, why: Why) {
        self.data.notify.changes.fetch_add(OVER, Ordering::AcqRel);
        self.vm.machine.notify(self.tag(), &Notice::End { range, why });
    }

    /// Nobody can name the space any more, and no CPU runs it.
    pub(crate) fn tell_release(&self) {
        if self.has_subscribers() {
            self.vm.machine.notify(self.tag(), &Notice::Release);
        }
    }
}

impl<M: Machine> Invalidation<'_, '_, M> {
    /// Whether there was somebody to tell.
    pub(crate) fn was_told(&self) -> bool {
        self.space.is_some()
    }
}

impl<M: Machine> Drop for Invalidation<'_, '_, M> {
    #[inline]
    fn drop(&mut self) {
        if let Some(space) = self.space {
            space.tell_end(self.range, self.why);
        }
    }
}
