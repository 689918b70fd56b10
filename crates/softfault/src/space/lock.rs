//! The writer lock: one operation at a time changes an address space.
//!
//! Faults never take it. Waiters sleep in the machine, holding nothing.

use super::{AddressSpace, SpaceData};
use crate::lock::{WordLock, is_free, lock_word};
use crate::machine::{LockKind, Machine};
use crate::section::KeepsTables;
use crate::section::visit::CpusLine;

/// Guard of the writer lock: nobody else changes the space until it is dropped. Functions that need
/// the lock take a reference to it.
#[must_use]
pub(crate) struct Writer<'a, M: Machine> {
    data: &'a SpaceData,
    /// `None` if nobody else can name the space, so that no lock is needed.
    _lock: Option<WordLock<'a, M>>,
}

/// Only the holder removes tables (I15).
impl<M: Machine> KeepsTables for &Writer<'_, M> {
    #[inline(always)]
    fn assert_of(self, cpus: &CpusLine) {
        debug_assert!(core::ptr::eq(&raw const self.data.cpus, cpus), "locks: the writer lock of another space");
    }
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Takes the writer lock. Called outside sections, with nothing held.
    pub(crate) fn write_lock(&self) -> Writer<'vm, M> {
        self.vm.assert_outside();
        Writer { data: self.data, _lock: Some(lock_word(LockKind::Writer, &self.data.writer.word, &self.vm.machine)) }
    }

    /// A guard without the lock, for a space that no other thread can name: a child that fork has
    /// not returned yet, a space at its end, or any space at rest.
    pub(crate) fn sole_writer(&self) -> Writer<'vm, M> {
        debug_assert!(is_free(&self.data.writer.word), "locks: another thread changes the space");
        Writer { data: self.data, _lock: None }
    }

    /// Panics in debug builds if the guard belongs to another space.
    #[inline(always)]
    pub(crate) fn assert_writer(&self, writer: &Writer<'_, M>) {
        debug_assert!(core::ptr::eq(writer.data, self.data), "locks: the writer lock of another space");
    }
}

#[cfg(test)]
mod tests {
    use crate::testing;
    use crate::tunables::Tunables;

    /// The type of a token does not say which space it is of.
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "the writer lock of another space")]
    fn the_lock_of_another_space_is_no_token() {
        let vm = testing::vm(256, Tunables::default());
        let (space, other) = (vm.new_space().unwrap(), vm.new_space().unwrap());
        space.edit(&other.write_lock()).publish().free();
    }
}
