//! Locks that are single words: one sleeps, one spins.
//!
//! The lock is free while its word is zero, so any structure of words can contain one. Any CPU may
//! wait for the holder of either. Each caller names the lock's kind, and each wait and each release is told to the machine:
//! a test machine checks the order of locks ([`LockKind::may_take`]).

use crate::machine::{LockKind, Machine, Tick};
use crate::sync::{self, Ordering, Word};

const FREE: u64 = 0;
const HELD: u64 = 1;
const HELD_WITH_WAITERS: u64 = 2;
/// Iterations of spinning before sleeping: about the length of a short operation. A guess.
const SPINS: u32 = 100;

/// Guard: the lock is held until this is dropped.
#[must_use]
pub(crate) struct WordLock<'a, M: Machine> {
    kind: LockKind,
    word: &'a Word,
    machine: &'a M,
}

/// Whether no CPU holds the lock in the word: for checks at rest.
pub(crate) fn is_free(word: &Word) -> bool {
    word.get() == FREE
}

/// Takes it if it is free.
pub(crate) fn try_lock_word<'a, M: Machine>(kind: LockKind, word: &'a Word, machine: &'a M) -> Option<WordLock<'a, M>> {
    word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).ok()?;
    machine.tick(Tick::Taking(kind));
    Some(WordLock { kind, word, machine })
}

/// Takes the lock in a word that was zero before another CPU knew of it.
pub(crate) fn lock_word<'a, M: Machine>(kind: LockKind, word: &'a Word, machine: &'a M) -> WordLock<'a, M> {
    machine.tick(Tick::Taking(kind));
    for _ in 0..SPINS {
        if word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return WordLock { kind, word, machine };
        }
        machine.relax();
    }
    while word.swap(HELD_WITH_WAITERS, Ordering::Acquire) != FREE {
        machine.park(word, HELD_WITH_WAITERS);
    }
    WordLock { kind, word, machine }
}

impl<M: Machine> Drop for WordLock<'_, M> {
    fn drop(&mut self) {
        if self.word.swap(FREE, Ordering::Release) == HELD_WITH_WAITERS {
            self.machine.unpark(self.word);
        }
        self.machine.tick(Tick::Released(self.kind));
    }
}

/// A spinlock in a word: held until this is dropped.
#[must_use]
pub(crate) struct Spin<'a, M: Machine> {
    kind: LockKind,
    word: &'a Word,
    machine: &'a M,
}

impl<'a, M: Machine> Spin<'a, M> {
    pub(crate) fn lock(kind: LockKind, word: &'a Word, machine: &'a M) -> Spin<'a, M> {
        loop {
            if let Some(lock) = Spin::lock_unless(kind, word, machine, &mut || false) {
                return lock;
            }
        }
    }

    /// Like `lock`, but gives up when `is_over` returns true. It is called in each iteration of the
    /// wait, and not if the lock is free.
    pub(crate) fn lock_unless(
        kind: LockKind,
        word: &'a Word,
        machine: &'a M,
        is_over: &mut dyn FnMut() -> bool,
    ) -> Option<Spin<'a, M>> {
        machine.tick(Tick::Taking(kind));
        while word.swap(1, Ordering::Acquire) != 0 {
            loop {
                if is_over() {
                    machine.tick(Tick::Released(kind));
                    return None;
                }
                machine.relax();
                if sync::seems_zero(word) {
                    break;
                }
            }
        }
        Some(Spin { kind, word, machine })
    }

    /// Locks inside a section, for the historic fault-locking modes. The machine's `relax` may
    /// answer a shootdown, which the sender would take for the end of this section. So this loop
    /// does not call it. The holder of the lock is in a section, too, and never waits.
    pub(crate) fn lock_in_section(kind: LockKind, word: &'a Word, machine: &'a M) -> Spin<'a, M> {
        machine.tick(Tick::Taking(kind));
        while word.swap(1, Ordering::Acquire) != 0 {
            sync::spin();
            while !sync::seems_zero(word) {
                sync::spin();
            }
        }
        Spin { kind, word, machine }
    }
}

impl<M: Machine> Drop for Spin<'_, M> {
    fn drop(&mut self) {
        sync::unlock(self.word, 0);
        self.machine.tick(Tick::Released(self.kind));
    }
}
