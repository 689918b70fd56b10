//! Station `notify`: those who keep tables of their own beside a space's, a
//! hypervisor's second stage or a device's, hear of what changes.
//!
//! ```text
//! operation   count += 1, told Start ─▶ entries change, shootdown ─▶ count -= 1, told End
//! subscriber  looks a page up ─▶ under its own lock: still current? then map it
//! ```
//! A subscriber drops what it has of the range when it is told `Start`, and maps
//! nothing of it before `End`: a lookup is refused while any change of the space is
//! under way, and one from before is [out of date](Subscription::is_current). So
//! it needs no reference to a frame, and nobody else gets a frame's number without
//! one: that is what a [pin](crate::Pin) is for (I24).
//!
//! Told are changes of an entry's frame and losses of a right. Not told: what only
//! adds (an empty entry filled, a right that the VMA gave already), and a huge
//! mapping split into entries with the same frames and rights: a translation of
//! any part of it is as good as before.
//!
//! Compaction leaves the pages of a space with a subscription where they are.
//!
//! Without a subscription all this costs an operation one load.
//!
//! Neighbours: `space` and `fault` tell, the machine passes on. Locks: see
//! [`Machine::notify`].

mod age;
mod lookup;
mod tell;

pub use lookup::{Lookup, LookupRefused};
pub(crate) use tell::Invalidation;

use crate::addr::PageRange;
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::sync::{self, Ordering, Word};
use crate::vm::Vm;

/// What a subscriber is told. Ranges are exact, of whole mappings where only a
/// whole mapping can change. There may be more kinds. A subscriber that does not know
/// one drops everything that it derived from the space, and says that pages were used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// Entries of the range are about to change: drop what was derived from them,
    /// before this returns.
    Start {
        /// The pages.
        range: PageRange,
        /// What happens to them.
        why: Why,
    },
    /// They have changed, and may be looked up again.
    End {
        /// As in the notice of the start.
        range: PageRange,
        /// As above.
        why: Why,
    },
    /// Whether the pages of one mapping, all of which are named, were used through
    /// the subscriber's tables: the answer is [`Machine::notify`]'s.
    Young {
        /// One mapping, whole.
        range: PageRange,
        /// Whether that is to be forgotten at the same time.
        clear: bool,
    },
    /// The space ends: drop everything. The last notice.
    Release,
}

/// Why entries change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Why {
    /// The mapping goes.
    Unmap,
    /// The mapping stays, its pages go: MADV_DONTNEED, guards, pages that their
    /// object has lost.
    Discard,
    /// The mapping loses rights.
    Protect,
    /// The pages move to another address.
    Move,
    /// The pages are shared with a child: not writable any more.
    Fork,
    /// A page gets a frame of its own.
    Copy,
    /// Small pages become a huge one.
    Collapse,
    /// The pages count as unwritten from now on: MADV_FREE.
    Clean,
}

/// In every space; a line of its own, which nobody writes without subscriptions.
#[repr(C, align(64))]
pub(crate) struct NotifyLine {
    /// Subscriptions in force. Changes under the writer lock.
    pub(crate) nr_subscribers: Word,
    /// Changes under way 0..24 | changes that are over 24..64.
    pub(crate) changes: Word,
    /// Changes whose end subscribers have not been told yet.
    pub(crate) nr_untold: Word,
    pub(crate) pad: [Word; 5],
}

/// What gives the right to look pages up in one space. Given back by
/// [`unsubscribe`](AddressSpace::unsubscribe); merely dropped, it stays in force
/// until the space ends, which is no harm to anybody but in time.
#[must_use]
pub struct Subscription<'vm, M: Machine> {
    vm: &'vm Vm<M>,
    space_id: u64,
}

impl<M: Machine> core::fmt::Debug for Subscription<'_, M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Subscription(space {})", self.space_id)
    }
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// From now on [`Machine::notify`] hears of this space. Subscriptions are
    /// counted; every notice is given once, however many there are.
    ///
    /// What is under way when this is called has changed its entries when this
    /// returns, so that no lookup finds what was never told of: operations hold the
    /// writer lock, and a fault that saw no subscription took its entry in the
    /// section that is waited for here.
    pub fn subscribe(&self) -> Subscription<'vm, M> {
        let _writer = self.write_lock();
        let notify = &self.data.notify;
        if notify.nr_subscribers.fetch_add(1, Ordering::AcqRel) == 0 {
            // Nobody has counted since the last subscription ended: no lookup from before
            // is current any more.
            notify.changes.fetch_add(tell::ONE_IS_OVER, Ordering::AcqRel);
        }
        self.wait_for_readers();
        Subscription { vm: self.vm, space_id: self.id }
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
            // Copies of faults, and collapses: none of them waits for the writer lock
            // before it has told its end. One that comes now sees that nobody is left,
            // or is seen here.
            sync::fence();
            while notify.nr_untold.load(Ordering::Acquire) != 0 {
                self.vm.machine.relax();
            }
        }
        Ok(())
    }
}
