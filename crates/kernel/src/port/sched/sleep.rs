//! Sleeping until a moment, and the timer that ends both sleeps and turns.

use super::{Thread, block, local};
use crate::port::arch::{apic, time};
use crate::port::sync::SpinLock;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

/// Longest time between two interrupts of the timer, and so a thread's turn.
const TURN_NS: u64 = 4_000_000;

type Key = (u64, usize);

static SLEEPERS: SpinLock<BTreeMap<Key, Arc<Thread>>> = SpinLock::new(BTreeMap::new());
/// The earliest moment in it.
static EARLIEST_NS: AtomicU64 = AtomicU64::new(u64::MAX);
/// The next moment at which the personality wants to be called.
static ALARM_NS: AtomicU64 = AtomicU64::new(u64::MAX);

fn publish(sleepers: &BTreeMap<Key, Arc<Thread>>) {
    let earliest = sleepers.first_key_value().map_or(u64::MAX, |(key, _)| key.0);
    EARLIEST_NS.store(earliest, Ordering::Relaxed);
}

/// Sets the next moment at which [`super::on_alarm`]'s function is to be called.
pub fn set_alarm(at_ns: u64) {
    ALARM_NS.store(at_ns, Ordering::Relaxed);
}

/// Returns the moment of the next alarm.
pub fn alarm_ns() -> u64 {
    ALARM_NS.load(Ordering::Relaxed)
}

/// Sets this CPU's timer for whatever comes first.
pub(super) fn set_timer() {
    let earliest = EARLIEST_NS.load(Ordering::Relaxed).min(alarm_ns());
    let left = earliest.saturating_sub(time::now_ns());
    apic::set_timer(left.clamp(1_000, TURN_NS));
}

/// An alarm was set: this CPU's timer may have to ring earlier.
pub fn timer_changed() {
    set_timer();
}

/// As [`block`], but no longer than until `deadline_ns`.
pub fn block_until(deadline_ns: Option<u64>) {
    let Some(deadline) = deadline_ns else { return block() };
    let me = local::current();
    let key = (deadline, Arc::as_ptr(&me).addr());
    {
        let mut sleepers = SLEEPERS.lock();
        sleepers.insert(key, me);
        publish(&sleepers);
    }
    set_timer();
    block();
    let mut sleepers = SLEEPERS.lock();
    let entry = sleepers.remove(&key);
    publish(&sleepers);
    drop(sleepers);
    drop(entry);
}

/// Takes the first thread off the list whose time has come.
pub(super) fn next_due() -> Option<Arc<Thread>> {
    if EARLIEST_NS.load(Ordering::Relaxed) > time::now_ns() {
        return None;
    }
    let mut sleepers = SLEEPERS.lock();
    let now = time::now_ns();
    let due = match sleepers.first_entry() {
        Some(entry) if entry.key().0 <= now => Some(entry.remove()),
        _ => None,
    };
    publish(&sleepers);
    due
}
