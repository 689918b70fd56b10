//! The lock of the CPU that reacts to pressure, and with it the right to the reserve. Only
//! the module above can take the one and lend the other.

use crate::frame::Pressure;
use crate::lock::{WordLock, is_free, lock_word};
use crate::machine::{LockKind, Machine};
use crate::sync::Word;

/// One CPU at a time reacts.
pub(crate) struct Reclaiming {
    word: Word,
    pressure: Pressure,
}

/// The lock is held until this is dropped.
#[must_use]
pub(super) struct Reaction<'a, M: Machine> {
    pub(super) pressure: &'a Pressure,
    _lock: WordLock<'a, M>,
}

impl Reclaiming {
    pub(crate) fn new(pressure: Pressure) -> Reclaiming {
        Reclaiming { word: Word::new(0), pressure }
    }

    pub(super) fn is_free(&self) -> bool {
        is_free(&self.word)
    }

    pub(super) fn lock<'a, M: Machine>(&'a self, machine: &'a M) -> Reaction<'a, M> {
        Reaction { _lock: lock_word(LockKind::Reclaiming, &self.word, machine), pressure: &self.pressure }
    }
}
