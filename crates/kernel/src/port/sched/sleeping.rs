//! A lock that may be held across calls into the memory subsystem: a thread that has
//! to wait for it sleeps. Taken with no spin lock held.

use super::parking;
use lock_api::{GuardNoSend, RawMutex};
use softfault::sync::{Ordering, Word};

const FREE: u64 = 0;
const HELD: u64 = 1;
/// Held, and somebody sleeps.
const WANTED: u64 = 2;

/// The lock's word.
pub struct RawSleeping(Word);

// SAFETY: K11: the word leaves FREE by a compare-and-swap or swap of exactly one
// thread, which acquires, and comes back to it by that thread's release.
unsafe impl RawMutex for RawSleeping {
    #[allow(clippy::declare_interior_mutable_const)] // what lock_api asks for
    const INIT: RawSleeping = RawSleeping(Word::new(FREE));
    type GuardMarker = GuardNoSend;

    fn lock(&self) {
        if self.try_lock() {
            return;
        }
        while self.0.swap(WANTED, Ordering::Acquire) != FREE {
            parking::park(&self.0, WANTED);
        }
    }
    fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
    unsafe fn unlock(&self) {
        if self.0.swap(FREE, Ordering::Release) == WANTED {
            parking::unpark(&self.0);
        }
    }
}

/// A value behind a [`RawSleeping`].
pub type SleepingLock<T> = lock_api::Mutex<RawSleeping, T>;
