//! The words that ages refer to: the current generation, and a pass that makes room for the next
//! one. The rules are in `age.rs`.
//!
//! Locks on entry: none.

use super::runs::BLOCK_WORDS;
use crate::addr::BlockId;
use crate::sync::{Ordering, Word};

/// Words of 32 frames.
pub(super) const AGE_WORDS: usize = 2 * BLOCK_WORDS;
/// The largest age that is told: so many generations, or more.
pub const OLDEST_AGE: u32 = 3;

/// A generation as two bits record it: its number, modulo 4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Generation(pub(super) u8);

/// The generation of now, and the pass that makes room for the next one. A line of its own:
/// every claim reads it, and only an advance writes it.
#[repr(align(64))]
pub(crate) struct Ages {
    /// Generation << 1 | whether a pass is in progress.
    pub(super) state: Word,
    /// The block at which the pass goes on.
    pub(super) cursor: Word,
    pub(super) lock: Word,
}

/// The first word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct AgeState(pub(super) u64);

impl AgeState {
    pub(crate) fn generation(self) -> u64 {
        self.0 >> 1
    }
    pub(crate) fn is_passing(self) -> bool {
        self.0 & 1 != 0
    }
    /// The generation of frames of that age.
    pub(crate) fn of_age(self, age: u32) -> Generation {
        Generation((self.generation().wrapping_sub(age.into()) & 3) as u8)
    }
    /// The age of frames of that generation.
    pub(crate) fn age_of(self, generation: Generation) -> u32 {
        (self.generation().wrapping_sub(generation.0.into()) & 3) as u32
    }
}

impl Ages {
    pub(crate) const fn new() -> Ages {
        Ages { state: Word::new(0), cursor: Word::new(0), lock: Word::new(0) }
    }
    #[inline(always)]
    pub(crate) fn now(&self) -> AgeState {
        AgeState(self.state.load(Ordering::Acquire))
    }
    /// Where a pass is: the blocks below it have nothing that the pass moves away.
    pub(crate) fn cursor(&self) -> Option<BlockId> {
        self.now().is_passing().then(|| BlockId(self.cursor.get() as u32))
    }
}
