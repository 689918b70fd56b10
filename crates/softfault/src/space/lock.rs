//! The writer lock: one operation at a time changes an address space.
//!
//! Faults never take it. Waiters sleep in the machine, holding nothing.

use super::{AddressSpace, SpaceData};
use crate::machine::Machine;
use crate::sync::{self, Ordering, Word};

const FREE: u64 = 0;
const HELD: u64 = 1;
const HELD_WITH_WAITERS: u64 = 2;
/// Turns of spinning before sleeping: about the length of a short operation.
/// A guess.
const SPINS: u32 = 100;

/// Nobody but the owner changes the space until this is dropped. Functions that ask for
/// this cannot be called without it.
#[must_use]
pub(crate) struct Writer<'a, M: Machine> {
    data: &'a SpaceData,
    /// `None` where nobody else can name the space.
    _lock: Option<WordLock<'a, M>>,
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Takes the writer lock. Called outside sections, with nothing held.
    pub(crate) fn write_lock(&self) -> Writer<'vm, M> {
        self.vm.assert_outside();
        Writer { data: self.data, _lock: Some(lock_word(&self.data.writer.word, &self.vm.machine)) }
    }

    /// The same without the lock, for a space that no other thread can name: a child that
    /// fork has not returned yet, a space at its end, and any space at rest.
    pub(crate) fn sole_writer(&self) -> Writer<'vm, M> {
        debug_assert!(self.data.writer.word.get() == FREE, "locks: another thread changes the space");
        Writer { data: self.data, _lock: None }
    }

    /// Panics in debug builds if the writer is of another space.
    #[inline(always)]
    pub(crate) fn assert_writer(&self, writer: &Writer<'_, M>) {
        debug_assert!(core::ptr::eq(writer.data, self.data), "locks: the writer lock of another space");
    }
}

/// A lock in a word is held until this is dropped.
#[must_use]
pub(crate) struct WordLock<'a, M: Machine> {
    word: &'a Word,
    machine: &'a M,
}

/// Takes the lock in a word that was zero when nobody knew of it.
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

#[cfg(test)]
mod tests {
    use crate::testing;
    use crate::tunables::Tunables;

    /// The type of a witness does not say which space it is of.
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "the writer lock of another space")]
    fn the_lock_of_another_space_is_no_witness() {
        let vm = testing::vm(256, Tunables::default());
        let (space, other) = (vm.new_space().unwrap(), vm.new_space().unwrap());
        space.edit(&other.write_lock()).publish().free();
    }
}
