//! The storages to which callers write that were refused memory.
//!
//! ```text
//! claim    under the spinlock: another caller has the storage, or all places are taken? none
//! write    the machine's calls, with nothing held
//! drop     what is clean now; counted as a reclaim, for which callers wait
//! end      the place is free
//! ```
//! A call of the machine may never return. So the lock `reclaiming` is not held during it, and a storage
//! that does not answer keeps one caller and one place: the others write to other storages.
//!
//! Locks on entry: any but spinlocks, no section. Takes a spinlock of its own, under which nothing waits.

use crate::lock::Spin;
use crate::machine::{LockKind, Machine, StorageId};
use crate::sync::{Ordering, Word};

/// Storages that are written at a time, and so the callers that storages without an answer can keep. A guess: the
/// folios of few storages are dirty at a time.
pub(crate) const NR_PLACES: usize = 8;

/// See the module.
pub(crate) struct Writers {
    lock: Word,
    /// A bit for each place that is taken. Set under the lock.
    taken: Word,
    storages: [Word; NR_PLACES],
}

/// The right to write to a storage, until this is dropped.
#[must_use]
pub(crate) struct StorageClaim<'a> {
    writers: &'a Writers,
    place: usize,
}

/// Blocks to search before a refusal.
pub(crate) struct Search {
    pub(crate) from: u64,
    pub(crate) nr_blocks: u64,
    /// The number of frames to free.
    pub(crate) nr_frames: u64,
}

/// The outcome of writes before a refusal.
pub(crate) struct Written<'a> {
    /// Frames of folios that were written and dropped.
    pub(crate) nr_freed: u64,
    /// Some writes were under way when their calls returned. Their folios may be clean now.
    pub(crate) was_under_way: bool,
    /// The blocks that were searched: fewer if enough was written, or too much in vain.
    pub(crate) nr_blocks: u64,
    /// Another caller had the storage of a dirty folio.
    pub(crate) has_skipped: bool,
    /// Kept until the folios are dropped: others wait for that.
    pub(crate) claim: Option<StorageClaim<'a>>,
}

impl Writers {
    pub(crate) fn new() -> Writers {
        let storages = [const { Word::new(0) }; NR_PLACES];
        Writers { lock: Word::new(0), taken: Word::new(0), storages }
    }

    /// Claims a storage, unless another caller has it, or all places are taken.
    pub(crate) fn claim<M: Machine>(&self, storage: StorageId, machine: &M) -> Option<StorageClaim<'_>> {
        let _lock = Spin::lock(LockKind::Writers, &self.lock, machine);
        if self.is_claimed(storage) {
            return None;
        }
        let place = (0..NR_PLACES).find(|place| !self.is_taken(*place))?;
        self.storages[place].set(storage.0);
        self.taken.fetch_or(1 << place, Ordering::AcqRel);
        Some(StorageClaim { writers: self, place })
    }

    fn is_taken(&self, place: usize) -> bool {
        self.taken.load(Ordering::Acquire) & 1 << place != 0
    }

    /// Under the lock.
    fn is_claimed(&self, storage: StorageId) -> bool {
        (0..NR_PLACES).any(|place| self.is_taken(place) && self.storages[place].get() == storage.0)
    }

    /// Whether some caller writes.
    pub(crate) fn has_any(&self) -> bool {
        self.has_others(None)
    }

    /// Whether a caller writes that has another claim.
    pub(crate) fn has_others(&self, mine: Option<&StorageClaim<'_>>) -> bool {
        self.taken.load(Ordering::Acquire) & !mine.map_or(0, |claim| 1 << claim.place) != 0
    }
}

impl StorageClaim<'_> {
    /// Claims another storage with the same place, unless another caller has it. Then the claim is as before. Returns whether it is
    /// of that storage now.
    pub(crate) fn change_to<M: Machine>(&self, storage: StorageId, machine: &M) -> bool {
        let mine = &self.writers.storages[self.place];
        if mine.get() == storage.0 {
            return true;
        }
        let _lock = Spin::lock(LockKind::Writers, &self.writers.lock, machine);
        if self.writers.is_claimed(storage) {
            return false;
        }
        mine.set(storage.0);
        true
    }
}

impl Drop for StorageClaim<'_> {
    fn drop(&mut self) {
        // Release: a caller that finds no writer any more finds its reclaims.
        self.writers.taken.fetch_and(!(1 << self.place), Ordering::Release);
    }
}

#[cfg(test)]
#[path = "writers_tests.rs"]
mod tests;
