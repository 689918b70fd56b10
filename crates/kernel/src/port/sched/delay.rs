//! Delays that tests ask for (`delays=MICROSECONDS` on the kernel's command
//! line): between the steps of a signal, of a process's end and of a wake-up
//! other threads run, and time passes, by chance. Orders of events that are rare
//! come often then. Without the parameter a step costs one load.

use super::yield_now;
use crate::port::arch::time;
use crate::port::{mailbox, random};
use core::sync::atomic::{AtomicU64, Ordering};

/// The longest delay, or 0.
static MOST_NS: AtomicU64 = AtomicU64::new(0);

/// Asks for delays of up to so many microseconds from now on.
pub fn set(most_us: u64) {
    MOST_NS.store(most_us * 1000, Ordering::Relaxed);
}

/// Between two steps that no lock holds together: the caller holds none.
#[inline]
pub fn step() {
    let most_ns = MOST_NS.load(Ordering::Relaxed);
    if most_ns != 0 {
        delay(most_ns);
    }
}

/// Every second time others run first, if any want to; every second time this CPU
/// is busy for a while.
#[cold]
fn delay(most_ns: u64) {
    let number = random::next();
    if number & 1 != 0 {
        yield_now();
    }
    if number & 2 != 0 {
        let end = time::now_ns() + (number >> 8) % most_ns;
        while time::now_ns() < end {
            mailbox::poll();
        }
    }
}
