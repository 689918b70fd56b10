//! Parking at a word: a hash table of locks and condition variables, like a futex but for
//! words of 64 bits.
//!
//! A thread holds the lock of a bucket to read the word or to notify, and never waits
//! under it (E8).

use core::ptr;
use softfault::sync::{Ordering, Word};
use std::sync::{Condvar, Mutex, PoisonError};

const NR_BUCKETS: usize = 64;

#[derive(Default)]
struct Bucket {
    lock: Mutex<()>,
    changed: Condvar,
}

/// Where threads of one machine sleep.
pub(crate) struct Parking {
    buckets: [Bucket; NR_BUCKETS],
}

impl Default for Parking {
    fn default() -> Parking {
        Parking { buckets: core::array::from_fn(|_| Bucket::default()) }
    }
}

impl Parking {
    fn bucket(&self, word: &Word) -> &Bucket {
        let hash = (ptr::from_ref(word).addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.buckets[(hash >> (64 - NR_BUCKETS.ilog2())) as usize]
    }

    /// Sleeps if `word` is `expected`, until a thread unparks this bucket.
    pub(crate) fn park(&self, word: &Word, expected: u64) {
        let bucket = self.bucket(word);
        let held = bucket.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // E8: a change before this is seen; one after it cannot notify before
        // `wait` has let go of the lock.
        if word.load(Ordering::SeqCst) == expected {
            drop(bucket.changed.wait(held).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Wakes all threads that sleep at the word or at another word of its bucket.
    pub(crate) fn unpark(&self, word: &Word) {
        let bucket = self.bucket(word);
        let held = bucket.lock.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.changed.notify_all();
        drop(held);
    }
}

#[cfg(test)]
mod tests;
