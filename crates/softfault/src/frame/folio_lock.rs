//! The lock of a folio of an object: its content is on the way from a file, or from or to the swap area.
//!
//! ```text
//! LOCKED                the CPU that has set it is the only one that uses the folio
//! LOCKED | WRITEBACK    its content is being written
//! LOCKED, not UPTODATE  its content is being read
//! WAITERS               a CPU sleeps until LOCKED is clear
//! ```
//! A folio that is locked is mapped by no entry, and not pinned. The word of its page names
//! it (`source/swapped.rs`), so that a fault on the page finds it, and waits.
//!
//! A waiter sleeps at one of a few words that count wakes, not at the descriptor: the folio may be
//! gone, and its descriptor reused, before the waiter sleeps. The waiter reads the count, then sets
//! WAITERS, and sleeps while the count is unchanged. Unlocking clears WAITERS and LOCKED together,
//! then raises the count.
//!
//! Locks on entry: none. [`FolioWaits::join`] in the section in which a word named the folio;
//! what waits or wakes outside sections.

use super::FrameDesc;
use super::desc::{DIRTY, FrameKind, FrameState, LOCKED, ORDER_SHIFT, UPTODATE, WAITERS, WRITEBACK};
use crate::addr::{Order, Pfn};
use crate::machine::Machine;
use crate::sync::{Ordering, Word};

/// Folios share them by number.
const NR_WORDS: usize = 16;

/// Where those sleep who wait for folios.
#[derive(Default)]
pub(crate) struct FolioWaits {
    wakes: [Word; NR_WORDS],
}

/// A place to sleep at.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FolioWait {
    pfn: Pfn,
    /// The count of wakes before WAITERS was set; `None` if the folio was not locked any more.
    seen: Option<u64>,
}

impl FolioWaits {
    fn word(&self, pfn: Pfn) -> &Word {
        &self.wakes[pfn.0 as usize % NR_WORDS]
    }

    /// The caller is going to wait until the folio is not locked.
    pub(crate) fn join(&self, pfn: Pfn, desc: &FrameDesc) -> FolioWait {
        self.join_if(pfn, &|| desc.add_waiter())
    }

    /// The same for another state, in which `add_waiter` has set WAITERS, or not.
    pub(super) fn join_if(&self, pfn: Pfn, add_waiter: &dyn Fn() -> bool) -> FolioWait {
        // Acquire: a wake that is in it comes after an unlocking that is seen, too.
        let seen = self.word(pfn).load(Ordering::Acquire);
        FolioWait { pfn, seen: add_waiter().then_some(seen) }
    }

    /// Makes the wait short: the folio has changed since [`join`](Self::join).
    pub(crate) fn not_any_more(wait: FolioWait) -> FolioWait {
        FolioWait { seen: None, ..wait }
    }

    /// Waits; perhaps not long enough. With nothing held.
    pub(crate) fn wait<M: Machine>(&self, wait: FolioWait, machine: &M) {
        match wait.seen {
            Some(seen) => machine.park(self.word(wait.pfn), seen),
            None => machine.relax(),
        }
    }

    /// The page is not in transit any more, though the folio may stay locked for long.
    pub(crate) fn wake_now<M: Machine>(&self, pfn: Pfn, machine: &M) {
        self.word(pfn).fetch_add(1, Ordering::AcqRel);
        machine.unpark(self.word(pfn));
    }

    /// The folio is unlocked, and the word of its page says so.
    pub(crate) fn wake<M: Machine>(&self, pfn: Pfn, unlocked: Unlocked, machine: &M) {
        if unlocked.has_waiters {
            self.wake_now(pfn, machine);
        }
    }
}

/// How a read or a write of the machine has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Io {
    Done,
    Failed,
}

impl Io {
    pub(crate) fn of<E>(result: Result<(), E>) -> Io {
        if result.is_ok() { Io::Done } else { Io::Failed }
    }
}

/// A folio is not locked, or not written, any more.
#[must_use]
pub(crate) struct Unlocked {
    has_waiters: bool,
}

impl Unlocked {
    /// From its state before.
    pub(super) fn new(before: u64) -> Unlocked {
        Unlocked { has_waiters: before & WAITERS != 0 }
    }
}

impl FrameDesc {
    /// Makes a folio that the caller owns alone pages of an object, which it is going to read. The words of the
    /// pages are its, too.
    pub(crate) fn assign_reading(&self, order: Order, object: u64, index: u64) {
        self.owner.set(object);
        self.index.set(index);
        self.state.set(FrameKind::Shared as u64 | LOCKED | u64::from(order.0) << ORDER_SHIFT);
    }

    /// The caller, for whom the page is kept, is going to write it: no entry maps it, nothing pins it.
    pub(crate) fn begin_writeback(&self) {
        let before = self.state.fetch_or(LOCKED | WRITEBACK, Ordering::AcqRel);
        debug_assert!(FrameState(before).is_at_rest(), "I52: one at a time locks a folio");
    }

    /// Locks a page to hand its content out. The caller keeps the page; no entry maps it, nothing pins it. Ends as a read does.
    pub(crate) fn lock_to_take_out(&self) {
        let before = self.state.fetch_or(LOCKED, Ordering::AcqRel);
        debug_assert!(FrameState(before).is_at_rest(), "I52: one at a time locks a folio");
        self.state.fetch_and(!UPTODATE, Ordering::AcqRel);
    }

    /// Ends a write. The caller still owns the page alone: the word of the page comes next.
    pub(crate) fn end_writeback(&self) -> Unlocked {
        self.unlock(WRITEBACK, 0)
    }

    /// Ends a read. Only the frame has the content afterwards.
    pub(crate) fn end_reading(&self, io: Io) -> Unlocked {
        self.unlock(0, if io == Io::Done { UPTODATE | DIRTY } else { 0 })
    }

    /// Ends a read from a file, which has the content, too.
    pub(crate) fn end_filling(&self, io: Io) -> Unlocked {
        self.unlock(0, if io == Io::Done { UPTODATE } else { 0 })
    }

    fn unlock(&self, clear: u64, set: u64) -> Unlocked {
        if set != 0 {
            self.state.fetch_or(set, Ordering::AcqRel);
        }
        let before = self.state.fetch_and(!(LOCKED | WAITERS | clear), Ordering::AcqRel);
        debug_assert!(before & LOCKED != 0, "I52: who unlocks has locked");
        Unlocked::new(before)
    }

    /// Whether the folio is locked, and WAITERS set. By compare-and-swap from a state with LOCKED: should the frame be another
    /// folio by now, that is locked, too, and the waiters are woken with those of that one.
    fn add_waiter(&self) -> bool {
        self.add_waiter_if(|state| state.kind() == FrameKind::Shared && state.0 & LOCKED != 0)
    }

    pub(super) fn add_waiter_if(&self, is_waited_for: impl Fn(FrameState) -> bool) -> bool {
        let mut seen = self.state.load(Ordering::Acquire);
        loop {
            if !is_waited_for(FrameState(seen)) {
                return false;
            }
            if seen & WAITERS != 0 {
                return true;
            }
            match self.state.compare_exchange(seen, seen | WAITERS, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }
}
