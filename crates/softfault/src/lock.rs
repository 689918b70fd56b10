//! Locks that are single words: one sleeps, one spins.
//!
//! The lock is free while its word is zero, so any structure of words can contain one. Any CPU may
//! wait for the holder of either: see the lock order in the crate's documentation.

use crate::machine::Machine;
use crate::sync::{self, Ordering, Word};

const FREE: u64 = 0;
const HELD: u64 = 1;
const HELD_WITH_WAITERS: u64 = 2;
/// Iterations of spinning before sleeping: about the length of a short operation. A guess.
const SPINS: u32 = 100;

/// Guard: the lock is held until this is dropped.
#[must_use]
pub(crate) struct WordLock<'a, M: Machine> {
    word: &'a Word,
    machine: &'a M,
}

/// Whether no CPU holds the lock in the word: for checks at rest.
pub(crate) fn is_free(word: &Word) -> bool {
    word.get() == FREE
}

/// Takes it if it is free.
pub(crate) fn try_lock_word<'a, M: Machine>(word: &'a Word, machine: &'a M) -> Option<WordLock<'a, M>> {
    let taken = word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
    taken.ok().map(|_| WordLock { word, machine })
}

/// Takes the lock in a word that was zero before another CPU knew of it.
pub(crate) fn lock_word<'a, M: Machine>(word: &'a Word, machine: &'a M) -> WordLock<'a, M> {
    for _ in 0..SPINS {
        if word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return WordLock { word, machine };
        }
        machine.relax();
    }
    while word.swap(HELD_WITH_WAITERS, Ordering::Acquire) != FREE {
        machine.park(word, HELD_WITH_WAITERS);
    }
    WordLock { word, machine }
}

impl<M: Machine> Drop for WordLock<'_, M> {
    fn drop(&mut self) {
        if self.word.swap(FREE, Ordering::Release) == HELD_WITH_WAITERS {
            self.machine.unpark(self.word);
        }
    }
}

/// A spinlock in a word.
pub(crate) struct Spin<'a>(&'a Word);

impl<'a> Spin<'a> {
    pub(crate) fn lock<M: Machine>(word: &'a Word, machine: &M) -> Spin<'a> {
        loop {
            if let Some(lock) = Spin::lock_unless(word, machine, &mut || false) {
                return lock;
            }
        }
    }

    /// Like `lock`, but gives up when `is_over` returns true. It is called in each iteration of the
    /// wait, and not if the lock is free.
    pub(crate) fn lock_unless<M: Machine>(
        word: &'a Word,
        machine: &M,
        is_over: &mut dyn FnMut() -> bool,
    ) -> Option<Spin<'a>> {
        while word.swap(1, Ordering::Acquire) != 0 {
            loop {
                if is_over() {
                    return None;
                }
                machine.relax();
                if sync::seems_zero(word) {
                    break;
                }
            }
        }
        Some(Spin(word))
    }

    /// Locks inside a section, for the historic fault-locking modes. The machine's `relax` may
    /// answer a shootdown, which the sender would take for the end of this section. So this loop
    /// does not call it. The holder of the lock is in a section, too, and never waits.
    pub(crate) fn lock_in_section(word: &'a Word) -> Spin<'a> {
        while word.swap(1, Ordering::Acquire) != 0 {
            sync::spin();
            while !sync::seems_zero(word) {
                sync::spin();
            }
        }
        Spin(word)
    }
}

impl Drop for Spin<'_> {
    fn drop(&mut self) {
        sync::unlock(self.0, 0);
    }
}
