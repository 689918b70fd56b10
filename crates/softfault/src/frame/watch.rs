//! Watermarks: about how many frames are free, and what follows from it.
//!
//! ```text
//! block        count of its frames; told on when it crosses a power of two          offers.rs
//! block group  sum over its blocks: a word beside its summaries                     summary.rs
//! all          sum over block groups, of what each was when it was last looked at   here
//! ```
//! No fault writes an additional line for it. A CPU that begins a block in another block group
//! records by how much the one that it leaves has changed. After some blocks it takes a *sample*,
//! or look: it adds that change, and the change of the current block group, to the sum. The number
//! of blocks until then depends on the distance to the watermark (`policy/watermark.rs`), now and
//! at the last sample, so the shared sum is rarely written while much is free. Frames that others
//! free in a block group where no CPU begins a block would be missed. So each sample also counts
//! one random block group again if that has more free frames, and several in turn if little seems
//! to be free. Memory of a few block groups has no shared sum.
//!
//! There are no samples while nobody would react, because no huge page would be split and the
//! reserve is full. The first CPU that begins a block then makes the *phase* odd. The first one
//! that begins a block while somebody would react again makes it even and starts a *round*: all
//! block groups are counted again. Until the round is over, each CPU that begins a block counts
//! some of them, and no CPU uses the sum.
//!
//! At rest, and after each block group was sampled, the free frames in blocks are between 2/3 and
//! 4/3 of the number seen here (I41). Otherwise they may be fewer, by half of the distance from
//! that number to `high` and a block for each CPU; or more, by frames that were freed and not
//! sampled yet.
//!
//! Locks on entry: none, no section.

use super::summary::FEW_BLOCKS;
use super::{Frames, Memory};
use crate::addr::{BLOCK_FRAMES, BlockId, OptBlock};
use crate::cpu::CpuData;
use crate::machine::Machine;
use crate::mem::FrameArray;
use crate::policy::watermark::{Watermarks, blocks_to_next_sample};
use crate::sync::{Ordering, Word};

/// Block groups that a look takes of those in turn where memory seems to be short. A guess: as
/// many words as a refill touches.
const BLOCK_GROUPS_PER_SAMPLE: u32 = 8;

/// Block groups that are counted again for each block that is begun once somebody would react again.
/// A round should end while little memory is taken: at 1 TiB on 512 CPUs it takes 128 blocks,
/// an eighth of `high`. A guess.
const BLOCK_GROUPS_PER_RECOUNT: u32 = 64;

/// The words that all CPUs share, in a line of their own: written at looks, and when the first block is
/// begun after somebody would react no longer, or again.
#[repr(align(64))]
pub(crate) struct Watch {
    /// Sum of what the block groups were when they were last looked at, wrapping around.
    nr_used: Word,
    /// Block groups that have been looked at in turn.
    cursor: Word,
    /// 1 from when fewer frames were free than `low` until there were `high`.
    pub(crate) is_short: Word,
    /// Odd from the first block that is begun while nobody would react to a shortage until the
    /// first one that is begun while somebody would.
    phase: Word,
    /// Block groups that have to be counted again since the last odd phase; at most 0 if none.
    nr_to_recount: Word,
    min: Word,
    low: Word,
    high: Word,
}

impl Watch {
    pub(crate) fn new(marks: &Watermarks) -> Watch {
        let [nr_used, cursor, is_short, phase, nr_to_recount] = [0; 5].map(Word::new);
        let [min, low, high] = [marks.min_pages, marks.low_pages, marks.high_pages].map(Word::new);
        Watch { nr_used, cursor, is_short, phase, nr_to_recount, min, low, high }
    }

    /// Replaces them. A CPU that reads some of the old ones and some of the new finds them in order.
    /// Under the lock of resizes.
    pub(super) fn set(&self, marks: &Watermarks) {
        let words = [(&self.min, marks.min_pages), (&self.low, marks.low_pages), (&self.high, marks.high_pages)];
        let set = |(word, pages): (&Word, u64)| word.store(pages, Ordering::Relaxed);
        if marks.high_pages > self.high.get() {
            words.into_iter().rev().for_each(set);
        } else {
            words.into_iter().for_each(set);
        }
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
        self.next_section_in_time();
        let (cpu, frames) = (self.this_cpu_data(), &self.frames);
        let high = frames.watch.high.get();
        if high == 0 {
            return;
        }
        // Noted though nobody would react: the block group is counted again when the CPU leaves it.
        let last = OptBlock::from_word(cpu.watched.get()).get();
        cpu.watched.set(OptBlock::some(b).to_word());
        if !self.would_react() {
            return;
        }
        let unseen = cpu.unseen.get().wrapping_add(frames.leave(last, b));
        let is_known = !frames.watch.is_recounting();
        // How far the watermark was before others took most of what was free says nothing.
        let nr_seen = frames.nr_seen_free() + self.nr_unseen();
        let allowed = blocks_to_next_sample(nr_seen, high, self.machine.nr_cpus() as u64);
        // At the very beginning all that is free is known; no other CPU has written the line then.
        let noted = Some(cpu.samples_after.get()).filter(|nr| *nr > 0);
        let samples_after = noted.map_or(allowed, |nr| nr.min(allowed));
        if is_known && samples_after > 1 {
            cpu.samples_after.set(samples_after - 1);
            cpu.unseen.set(unseen);
            return;
        }
        cpu.unseen.set(0);
        let mut nr_free = frames.glance(b, unseen) + self.nr_unseen();
        if nr_free < high || !is_known {
            nr_free = frames.sample() + self.nr_unseen();
        }
        if frames.watch.is_recounting() {
            cpu.samples_after.set(1);
            return;
        }
        cpu.samples_after.set(blocks_to_next_sample(nr_free, high, self.machine.nr_cpus() as u64));
        let can_react = match frames.watch.is_short(nr_free) {
            true => self.underused_above().is_some(),
            false => nr_free >= high && frames.reserve.nr_missing() > 0,
        };
        if can_react {
            self.frames.is_low.store(1, Ordering::Relaxed);
        }
    }

    /// Free frames that no block group has: those that are set aside, and memory that has not been needed.
    fn nr_unseen(&self) -> u64 {
        self.nr_reserve_pages() + self.frames.deferred.nr_pages()
    }

    /// Whether somebody would react to a shortage. While nobody would, no block group is counted,
    /// and all CPUs only read here. Afterwards all are counted again.
    fn would_react(&self) -> bool {
        let (watch, reserve) = (&self.frames.watch, &self.frames.reserve);
        let would_react = self.underused_above().is_some() || reserve.nr_missing() > 0;
        let phase = watch.phase.load(Ordering::Acquire);
        if would_react == phase.is_multiple_of(2) {
            return would_react;
        }
        if would_react {
            self.frames.begin_round();
        }
        // Release: a CPU that sees the phase knows of the round.
        let _ = watch.phase.compare_exchange(phase, phase + 1, Ordering::AcqRel, Ordering::Relaxed);
        would_react
    }

    /// About how many frames are missing until memory is reclaimed; if none, it is no longer
    /// short.
    pub(crate) fn nr_to_high(&self) -> u64 {
        let nr_free = self.frames.sample() + self.nr_unseen();
        self.frames.watch.is_short(nr_free);
        self.watermarks().high_pages.saturating_sub(nr_free)
    }
}

impl Watch {
    /// Whether frames may have been taken that no CPU has counted: the sum says nothing.
    pub(super) fn is_recounting(&self) -> bool {
        !self.phase.load(Ordering::Acquire).is_multiple_of(2) || self.nr_to_recount.load(Ordering::Relaxed) as i64 > 0
    }

    /// Whether memory is short, or has been and is not reclaimed yet.
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
    /// Begins to count all block groups again, after memory has come or gone.
    pub(super) fn begin_round(&self) {
        if self.has_sum() {
            self.watch.nr_to_recount.store(self.blocks.summary.nr_block_groups().into(), Ordering::Relaxed);
        }
    }

    /// Counts all block groups. At the very beginning.
    pub(crate) fn look_at_all(&self) {
        let summary = &self.blocks.summary;
        let sum = (0..summary.nr_block_groups())
            .fold(0u64, |sum, block_group| sum.wrapping_add(summary.recount(block_group)));
        self.watch.nr_used.set(sum);
    }

    /// The first block of a block group whose count is not the sum of its blocks', at rest; or of all
    /// memory, if the sum over block groups is not what they were when they were looked at (I41).
    pub(crate) fn uncounted(&self, cpus: &FrameArray<CpuData>) -> Option<BlockId> {
        let summary = &self.blocks.summary;
        if self.blocks.nr() <= FEW_BLOCKS {
            return None;
        }
        let weight =
            |block_group| summary.blocks_of(block_group).iter().map(|b| self.blocks.at(b).weight()).sum::<u64>();
        let wrong =
            (0..summary.nr_block_groups()).find(|block_group| summary.nr_used(*block_group) != weight(*block_group));
        let seen = (0..summary.nr_block_groups())
            .fold(0, |sum: u64, block_group| sum.wrapping_add(summary.nr_seen(block_group)));
        let noted = cpus.iter().fold(self.watch.nr_used.get(), |sum, cpu| sum.wrapping_add(cpu.unseen.get()));
        let is_wrong = seen != noted;
        wrong.or(is_wrong.then_some(0)).map(|block_group| summary.blocks_of(block_group).start)
    }

    /// Returns by how much the block group of `last` has grown, if `b` lies in another.
    fn leave(&self, last: Option<BlockId>, b: BlockId) -> u64 {
        let summary = &self.blocks.summary;
        let left = last
            .map(|last| summary.block_group_of(last))
            .filter(|block_group| *block_group != summary.block_group_of(b));
        left.filter(|_| self.has_sum()).map_or(0, |block_group| summary.recount(block_group))
    }

    /// Whether there is a sum over block groups, and not a few block groups or blocks that are counted.
    fn has_sum(&self) -> bool {
        self.blocks.summary.nr_block_groups() > BLOCK_GROUPS_PER_SAMPLE && self.blocks.nr() > FEW_BLOCKS
    }

    /// Estimates how many frames are free in blocks. Adds to the sum `unseen`, the block group of `b`,
    /// and one at random, so that frames that others gave back are counted in the end.
    fn glance(&self, b: BlockId, unseen: u64) -> u64 {
        if !self.has_sum() {
            return self.count_all();
        }
        let summary = &self.blocks.summary;
        let seed = (self.watch.nr_used.get() ^ u64::from(b.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let any = (seed % u64::from(summary.nr_block_groups())) as u32;
        // A CPU that takes frames there counts them.
        let has_more_free = (summary.nr_used(any).wrapping_sub(summary.nr_seen(any)) as i64) < 0;
        let block_groups = [Some(summary.block_group_of(b)), has_more_free.then_some(any)];
        self.add(
            block_groups
                .into_iter()
                .flatten()
                .fold(unseen, |sum, block_group| sum.wrapping_add(summary.recount(block_group))),
        )
    }

    /// The same of some block groups in turn: after some looks all of memory has been counted anew.
    pub(super) fn sample(&self) -> u64 {
        if !self.has_sum() {
            return self.count_all();
        }
        let (summary, watch) = (&self.blocks.summary, &self.watch);
        let nr_block_groups = summary.nr_block_groups();
        let is_recounting = watch.is_recounting();
        let nr = if is_recounting { BLOCK_GROUPS_PER_RECOUNT.min(nr_block_groups) } else { BLOCK_GROUPS_PER_SAMPLE };
        let first = watch.cursor.fetch_add(nr.into(), Ordering::Relaxed);
        let block_groups = (0..nr).map(|i| ((first + u64::from(i)) % u64::from(nr_block_groups)) as u32);
        let nr_free = self.add(block_groups.fold(0, |sum, block_group| sum.wrapping_add(summary.recount(block_group))));
        if is_recounting {
            watch.nr_to_recount.fetch_sub(nr.into(), Ordering::Relaxed);
        }
        nr_free
    }

    fn add(&self, more_used: u64) -> u64 {
        self.nr_free_of(self.watch.nr_used.fetch_add(more_used, Ordering::Relaxed).wrapping_add(more_used))
    }

    /// The result of the last look; none where there is no sum, so that each block is a look.
    fn nr_seen_free(&self) -> u64 {
        if self.has_sum() { self.nr_free_of(self.watch.nr_used.get()) } else { 0 }
    }

    /// Changes in progress may make it any number for a moment.
    fn nr_free_of(&self, nr_used: u64) -> u64 {
        ((self.blocks.nr() * BLOCK_FRAMES).wrapping_sub(nr_used) as i64).max(0) as u64
    }

    /// Where there are a few blocks or block groups.
    fn count_all(&self) -> u64 {
        let summary = &self.blocks.summary;
        if self.blocks.nr() <= FEW_BLOCKS {
            return self.blocks.names().iter().map(|b| self.blocks.at(b).nr_free()).sum();
        }
        let block_groups = 0..summary.nr_block_groups();
        self.nr_free_of(block_groups.fold(0, |sum, block_group| sum.wrapping_add(summary.nr_used(block_group))))
    }
}

#[cfg(test)]
mod phase_tests;
#[cfg(test)]
mod tests;
