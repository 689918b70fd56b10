//! Watermarks: about how many frames are free, and what follows from it.
//!
//! ```text
//! block    count of its frames; told on when it crosses a power of two    offers.rs
//! tract    sum over its blocks: a word beside its summaries               summary.rs
//! all      sum over tracts, of what each was when it was last looked at   here
//! ```
//! No fault writes a line for it that it does not write anyway. A CPU that has begun some
//! blocks *looks*: it takes the tracts of the last two and a few others, round and round,
//! and adds to the sum by how much each has changed. How many blocks it may begin before
//! that depends on how far the watermark is (`policy/watermark.rs`), so that the shared sum
//! is hardly ever written while much is free. Memory of a few tracts has no shared sum.
//!
//! At rest, and once each tract has been looked at, the frames that are free in blocks are
//! between 2/3 and 4/3 of the number seen here (I41). Otherwise they may be fewer by half of what
//! lies between that number and `high`, and by a block for each CPU; and more by what came
//! back since the last round of looks: then memory is relieved for nothing.
//!
//! Locks on entry: none, no section.

use super::summary::FEW_BLOCKS;
use super::{Frames, Memory};
use crate::addr::{BLOCK_FRAMES, BlockId, OptBlock};
use crate::machine::Machine;
use crate::policy::watermark::{Watermarks, blocks_to_next_look};
use crate::sync::{Ordering, Word};

/// Tracts that a look takes of those in turn. A guess: as many words as a refill touches.
const TRACTS_PER_LOOK: u32 = 8;

/// What all CPUs share, in a line of its own: written at looks alone.
#[repr(align(64))]
pub(crate) struct Watch {
    /// Sum of what the tracts were when they were last looked at, wrapping around.
    nr_used: Word,
    /// Tracts that have been looked at in turn.
    cursor: Word,
    /// 1 from when fewer frames were free than `low` until there were `high`.
    pub(crate) is_short: Word,
    min: Word,
    low: Word,
    high: Word,
}

impl Watch {
    pub(crate) fn new(marks: &Watermarks) -> Watch {
        let [nr_used, cursor, is_short] = [0; 3].map(Word::new);
        let [min, low, high] = [marks.min_pages, marks.low_pages, marks.high_pages].map(Word::new);
        Watch { nr_used, cursor, is_short, min, low, high }
    }

    /// Those in force.
    pub(crate) fn marks(&self) -> Watermarks {
        Watermarks { min_pages: self.min.get(), low_pages: self.low.get(), high_pages: self.high.get() }
    }
}

impl<M: Machine> Memory<M> {
    /// The watermarks in force.
    pub fn watermarks(&self) -> Watermarks {
        self.frames.watch.marks()
    }

    /// This CPU has begun to take frames from block `b`. Looks whether memory is short, now
    /// and then.
    pub(super) fn begun(&self, b: BlockId) {
        let cpu = self.this_cpu_data();
        if cpu.looks_after.get() > 1 {
            cpu.looks_after.set(cpu.looks_after.get() - 1);
            return;
        }
        let marks = self.watermarks();
        let would_react = self.underused_above().is_some() || self.frames.reserve.nr_missing() > 0;
        if marks.high_pages == 0 || !would_react {
            return;
        }
        let last = OptBlock::from_word(cpu.watched.get()).get();
        cpu.watched.set(OptBlock::some(b).to_word());
        let nr_free = self.frames.look([last.unwrap_or(b), b]) + self.nr_reserve_pages();
        let (nr_looks, nr_cpus) = (self.frames.nr_looks(), self.machine.nr_cpus() as u64);
        cpu.looks_after.set(blocks_to_next_look(nr_free, marks.high_pages, nr_looks, nr_cpus));
        let can_react = match self.frames.watch.is_short(nr_free) {
            true => self.underused_above().is_some(),
            false => nr_free >= marks.high_pages && self.frames.reserve.nr_missing() > 0,
        };
        if can_react {
            self.frames.is_low.store(1, Ordering::Relaxed);
        }
    }

    /// About how many frames are missing until memory is relieved; if none, it is no longer
    /// short.
    pub(crate) fn nr_to_high(&self) -> u64 {
        let nr_free = self.frames.look([BlockId(0); 2]) + self.nr_reserve_pages();
        self.frames.watch.is_short(nr_free);
        self.watermarks().high_pages.saturating_sub(nr_free)
    }
}

impl Watch {
    /// Whether memory is short, or has been and is not relieved yet.
    fn is_short(&self, nr_free: u64) -> bool {
        let was = self.is_short.load(Ordering::Relaxed) != 0;
        let is = nr_free < if was { self.high.get() } else { self.low.get() };
        if is != was {
            self.is_short.store(u64::from(is), Ordering::Relaxed);
        }
        is
    }
}

impl Frames {
    /// Counts all tracts. At the very beginning.
    pub(crate) fn look_at_all(&self) {
        let summary = &self.blocks.summary;
        let sum = (0..summary.nr_tracts()).fold(0u64, |sum, tract| sum.wrapping_add(summary.recount(tract)));
        self.watch.nr_used.set(sum);
    }

    /// The first block of a tract whose count is not the sum of its blocks', at rest; or of all
    /// memory, if the sum over tracts is not what they were when they were looked at (I41).
    pub(crate) fn uncounted(&self) -> Option<BlockId> {
        let summary = &self.blocks.summary;
        if self.blocks.nr() <= FEW_BLOCKS {
            return None;
        }
        let weight = |tract| summary.blocks_of(tract).iter().map(|b| self.blocks.at(b).weight()).sum::<u64>();
        let wrong = (0..summary.nr_tracts()).find(|tract| summary.nr_used(*tract) != weight(*tract));
        let seen = (0..summary.nr_tracts()).fold(0, |sum: u64, tract| sum.wrapping_add(summary.nr_seen(tract)));
        let is_wrong = seen != self.watch.nr_used.get();
        wrong.or(is_wrong.then_some(0)).map(|tract| summary.blocks_of(tract).start)
    }

    /// Looks after which all tracts have been counted anew.
    fn nr_looks(&self) -> u64 {
        u64::from(self.blocks.summary.nr_tracts().div_ceil(TRACTS_PER_LOOK))
    }

    /// About how many frames are free in blocks; the tracts of `some` are looked at.
    pub(super) fn look(&self, some: [BlockId; 2]) -> u64 {
        let (summary, nr_blocks) = (&self.blocks.summary, self.blocks.nr());
        if nr_blocks <= FEW_BLOCKS {
            return self.blocks.names().iter().map(|b| self.blocks.at(b).nr_free()).sum();
        }
        let nr_tracts = summary.nr_tracts();
        let nr_used = if nr_tracts <= TRACTS_PER_LOOK {
            (0..nr_tracts).fold(0, |sum: u64, tract| sum.wrapping_add(summary.nr_used(tract)))
        } else {
            let first = self.watch.cursor.fetch_add(TRACTS_PER_LOOK.into(), Ordering::Relaxed);
            let in_turn = (0..TRACTS_PER_LOOK).map(|i| ((first + u64::from(i)) % u64::from(nr_tracts)) as u32);
            let tracts = some.into_iter().map(|b| summary.tract_of(b)).chain(in_turn);
            let more = tracts.fold(0, |sum: u64, tract| sum.wrapping_add(summary.recount(tract)));
            self.watch.nr_used.fetch_add(more, Ordering::Relaxed).wrapping_add(more)
        };
        // Changes under way may make it any number for a moment.
        let nr_free = (nr_blocks * BLOCK_FRAMES).wrapping_sub(nr_used) as i64;
        nr_free.max(0) as u64
    }
}

#[cfg(test)]
mod tests;
