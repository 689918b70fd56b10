//! Module `notify`: notices of changes, for subscribers that keep tables of their own beside a
//! space's: a hypervisor's second stage, or a device's tables.
//!
//! ```text
//! operation   count += 1, told Start ─▶ entries change, shootdown ─▶ count -= 1, told End
//! subscriber  looks a page up ─▶ under its own lock: still current? then map it
//! ```
//! A subscriber drops its mappings of the range when it is told `Start`, and maps nothing of it
//! before `End`: lookups are refused while any change of the space is in progress, and earlier ones
//! are [out of date](crate::Subscription::is_current). So it needs no reference to a frame. All
//! others need a [pin](crate::Pin) to get a frame's number (I24).
//!
//! Subscribers are told when an entry's frame changes or it loses a right. They are not told of
//! additions (an empty entry is filled, a right is added that the VMA grants), nor when a huge
//! mapping is split into entries with the same frames and rights: translations of it stay valid.
//!
//! Pages move to other frames: see `compact/announce.rs`. Only a fault that compacts leaves the
//! private pages of spaces with subscribers where they are.
//!
//! Without a subscription this costs an operation one load.
//!
//! `space` and `fault` tell; the machine passes notices on. Locks: see
//! [`Machine::notify`](crate::Machine::notify).

mod age;
pub(crate) mod lookup;
pub(crate) mod notice;
pub(crate) mod tell;

use crate::sync::Word;

/// In every space; a line of its own, which no CPU writes without subscriptions.
#[repr(C, align(64))]
pub(crate) struct NotifyLine {
    /// Subscriptions in force. Changes under the writer lock.
    pub(crate) nr_subscribers: Word,
    /// Changes in progress 0..24 | changes that are over 24..64.
    pub(crate) changes: Word,
    /// Changes whose end subscribers have not been told yet.
    pub(crate) nr_untold: Word,
    pub(crate) pad: [Word; 5],
}
