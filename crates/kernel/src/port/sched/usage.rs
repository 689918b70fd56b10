//! A thread's usage.

use crate::port::arch::time;
use core::sync::atomic::{AtomicU64, Ordering};

/// A thread's usage. Only the thread itself writes, so that a plain load
/// and store do; times are ticks of the time-stamp counter.
#[derive(Default)]
pub struct Usage {
    user: AtomicU64,
    system: AtomicU64,
    faults: AtomicU64,
    last: AtomicU64,
}

/// A reading of [`Usage`].
#[derive(Clone, Copy, Default)]
pub struct Used {
    /// Nanoseconds in the program.
    pub user_ns: u64,
    /// Nanoseconds in the kernel on its behalf.
    pub system_ns: u64,
    /// Page faults that were resolved.
    pub nr_faults: u64,
}

fn add(word: &AtomicU64, n: u64) {
    word.store(word.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

impl Usage {
    fn since_last(&self) -> u64 {
        let now = time::ticks();
        let passed = now.saturating_sub(self.last.load(Ordering::Relaxed));
        self.last.store(now, Ordering::Relaxed);
        passed
    }
    /// The program has just entered the kernel.
    pub fn entered_kernel(&self) {
        add(&self.user, self.since_last());
    }
    /// The kernel is about to return to the program, or to switch away.
    pub fn leaving_kernel(&self) {
        add(&self.system, self.since_last());
    }
    /// The thread is on a CPU again: the time in between is not counted.
    pub fn switched_in(&self) {
        self.since_last();
    }
    /// A page fault was resolved.
    pub fn faulted(&self) {
        add(&self.faults, 1);
    }
    /// All of it, as it is now.
    pub fn read(&self) -> Used {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let ns = |word| time::to_ns(load(word));
        Used { user_ns: ns(&self.user), system_ns: ns(&self.system), nr_faults: load(&self.faults) }
    }
}

impl core::ops::Add for Used {
    type Output = Used;
    fn add(self, other: Used) -> Used {
        Used {
            user_ns: self.user_ns + other.user_ns,
            system_ns: self.system_ns + other.system_ns,
            nr_faults: self.nr_faults + other.nr_faults,
        }
    }
}
