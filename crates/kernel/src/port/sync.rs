//! The kernel's locks. A CPU that waits for one serves the requests of other
//! CPUs meanwhile, or two of them would wait for each other for ever.
//!
//! Rule: no lock is held across a call into the subsystem, nor across a switch.
//! Each lock protects a few moves; the heap's is taken inside others. Beside it: what
//! happens on signals, then the threads of a process, then signals that wait; an alarm,
//! then the list of alarms.

use crate::port::mailbox;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
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

const EMPTY: u8 = 0;
const BUSY: u8 = 1;
const FULL: u8 = 2;

/// A value that is set once and read ever after.
pub struct Once<T> {
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: K10: the value is written by the one who moved the state from EMPTY to
// BUSY, and read only after FULL was published.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Once<T> {
    /// Not set yet.
    pub const fn new() -> Once<T> {
        Once { state: AtomicU8::new(EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }
    /// Sets it.
    ///
    /// # Panics
    ///
    /// The second time: boot calls each once.
    pub fn set(&self, value: T) -> &T {
        let first = self.state.compare_exchange(EMPTY, BUSY, Ordering::Acquire, Ordering::Relaxed);
        assert!(first.is_ok(), "set twice");
        // SAFETY: K10: BUSY is ours; nobody reads before FULL.
        unsafe { (*self.value.get()).write(value) };
        self.state.store(FULL, Ordering::Release);
        self.get()
    }
    /// The value.
    ///
    /// # Panics
    ///
    /// Before it is set.
    pub fn get(&self) -> &T {
        self.try_get().expect("not set yet")
    }
    /// The value, if it is set.
    pub fn try_get(&self) -> Option<&T> {
        if self.state.load(Ordering::Acquire) != FULL {
            return None;
        }
        // SAFETY: K10: FULL: the value was written and never changes again.
        Some(unsafe { (*self.value.get()).assume_init_ref() })
    }
}
