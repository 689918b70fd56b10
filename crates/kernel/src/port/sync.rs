//! The kernel's locks. A CPU that waits for one serves the requests of other
//! CPUs meanwhile, or two of them would wait for each other for ever.
//!
//! Rule: no lock is held across a call into the subsystem, nor across a switch.
//! Each lock protects a few moves; the heap's is taken inside others. Beside it: what
//! happens on signals, then the threads of a process, then signals that wait; an alarm,
//! then the list of alarms.

use crate::port::mailbox;
use core::sync::atomic::{AtomicBool, Ordering};
use lock_api::{GuardNoSend, RawMutex};

/// A test-and-set lock; few CPUs, short holds.
pub struct RawSpin(AtomicBool);

// SAFETY: K2: `locked` is set by exactly one holder, with acquire and release
// order; no interrupt handler takes a lock.
unsafe impl RawMutex for RawSpin {
    #[allow(clippy::declare_interior_mutable_const)] // what lock_api asks for
    const INIT: RawSpin = RawSpin(AtomicBool::new(false));
    type GuardMarker = GuardNoSend;

    fn lock(&self) {
        while !self.try_lock() {
            while self.0.load(Ordering::Relaxed) {
                mailbox::poll();
            }
        }
    }
    fn try_lock(&self) -> bool {
        !self.0.swap(true, Ordering::Acquire)
    }
    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A value behind a [`RawSpin`].
pub type SpinLock<T> = lock_api::Mutex<RawSpin, T>;
