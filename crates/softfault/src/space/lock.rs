//! The writer lock: one operation at a time changes an address space.
//!
//! Faults never take it. Waiters sleep in the machine, holding nothing.

use super::AddressSpace;
use crate::machine::Machine;
use crate::sync::{self, Ordering, Word};

const FREE: u64 = 0;
const HELD: u64 = 1;
const HELD_WITH_WAITERS: u64 = 2;
/// Turns of spinning before sleeping: about the length of a short operation.
/// A guess.
const SPINS: u32 = 100;

/// The writer lock is held until this is dropped.
#[must_use]
pub(crate) struct Writer<'a, M: Machine> {
    word: &'a Word,
    machine: &'a M,
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Takes the writer lock. Called outside sections, with nothing held.
    pub(crate) fn write_lock(&self) -> Writer<'vm, M> {
        self.vm.assert_outside();
        lock_word(&self.data.writer.word, &self.vm.machine)
    }
}

/// Takes the lock in a word that was zero when nobody knew of it.
pub(crate) fn lock_word<'a, M: Machine>(word: &'a Word, machine: &'a M) -> Writer<'a, M> {
    for _ in 0..SPINS {
        if word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Writer { word, machine };
        }
        machine.relax();
    }
    while word.swap(HELD_WITH_WAITERS, Ordering::Acquire) != FREE {
        machine.park(word, HELD_WITH_WAITERS);
    }
    Writer { word, machine }
}

impl<M: Machine> Drop for Writer<'_, M> {
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

    /// The same, unless `is_over` says so first. It is asked in each turn of the wait,
    /// and not if there is none.
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

    /// Inside a section, for the historic disciplines. The machine's `relax` may
    /// answer a shootdown, which the sender takes for the end of this section;
    /// so this spin answers nobody. Whoever has the lock is in a section, too,
    /// and waits for nobody.
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
