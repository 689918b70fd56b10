//! Module `notify`: those who keep tables of their own beside a space's, a
//! hypervisor's second stage or a device's, hear of what changes.
//!
//! ```text
//! operation   count += 1, told Start ─▶ entries change, shootdown ─▶ count -= 1, told End
//! subscriber  looks a page up ─▶ under its own lock: still current? then map it
//! ```
//! A subscriber drops what it has of the range when it is told `Start`, and maps
//! nothing of it before `End`: a lookup is refused while any change of the space is
//! under way, and one from before is [out of date](crate::Subscription::is_current). So
//! it needs no reference to a frame, and nobody else gets a frame's number without
//! one: that is what a [pin](crate::Pin) is for (I24).
//!
//! Told are changes of an entry's frame and losses of a right. Not told: what only
//! adds (an empty entry filled, a right that the VMA gave already), and a huge
//! mapping split into entries with the same frames and rights: a translation of
//! any part of it is as good as before.
//!
//! Pages move to other frames: see `compact/announce.rs`. Only a fault that compacts leaves the
//! private pages of spaces with subscribers where they are.
//!
//! Without a subscription all this costs an operation one load.
//!
//! Neighbours: `space` and `fault` tell, the machine passes on. Locks: see
//! [`Machine::notify`](crate::Machine::notify).

mod age;
pub(crate) mod lookup;
pub(crate) mod notice;
pub(crate) mod tell;

use crate::sync::Word;

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
