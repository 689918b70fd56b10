//! Advances generations, and counts idle pages.
//!
//! Locks on entry: none. `advance_generation` takes the lock of the pass.

use super::Memory;
use super::blocks::word_base;
use super::desc::FrameKind;
use super::generations::OLDEST_AGE;
use super::runs::{BLOCK_WORDS, bits};
use crate::addr::{BlockId, Pfn};
use crate::lock::lock_word;
use crate::machine::{LockKind, Machine};
use crate::pace::Pace;
use crate::sync::{self, Ordering};

/// The result of [`advance_generation`](Memory::advance_generation).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
#[non_exhaustive]
pub enum Advance {
    /// The pass has that many blocks before it; the generation is what it was.
    UnderWay {
        /// Blocks of 2 MiB.
        nr_blocks_left: u64,
    },
    /// The generation has advanced.
    Done,
}

impl<M: Machine> Memory<M> {
    /// Generations that there have been before this one.
    pub fn generation(&self) -> u64 {
        self.call_anywhere();
        self.frames.ages.now().generation()
    }

    /// Makes every page one generation older, in steps: each call passes over at most `nr_blocks`
    /// blocks of 2 MiB, and the one that passes over the last one advances. Calls on several CPUs
    /// take turns. A pass that is interrupted costs only that pages that are 3 generations old
    /// look as if they were 2.
    ///
    /// # Panics
    ///
    /// In a callback ([`Machine`]).
    pub fn advance_generation(&self, nr_blocks: u64) -> Advance {
        self.call();
        let (ages, blocks) = (&self.frames.ages, &self.frames.blocks);
        let _lock = lock_word(LockKind::Ages, &ages.lock, &self.machine);
        let state = ages.now();
        if !state.is_passing() {
            ages.cursor.set(0);
            ages.state.store(state.0 | 1, Ordering::Release);
            // A CPU that writes an old generation and is not seen below sees this.
            sync::fence();
        }
        let (from, to) = (state.of_age(OLDEST_AGE), state.of_age(OLDEST_AGE - 1));
        let first = ages.cursor.get();
        let mut pace = Pace::new(&self.machine);
        let mut end = first;
        for b in blocks.there_from(BlockId(first as u32)).take(nr_blocks.min(blocks.nr()) as usize) {
            pace.step();
            let block = blocks.at(b);
            for w in 0..BLOCK_WORDS {
                let used = !block.free_word(w);
                if used != 0 {
                    block.merge_generation(w, used, from, to);
                }
            }
            end = u64::from(b.0) + 1;
        }
        drop(pace);
        if let Some(next) = blocks.there_from(BlockId(end as u32)).next() {
            ages.cursor.set(next.0.into());
            return Advance::UnderWay { nr_blocks_left: blocks.nr() - u64::from(next.0) };
        }
        ages.state.store((state.generation() + 1) << 1, Ordering::Release);
        Advance::Done
    }

    /// Pages in memory, private ones and those of objects, that were not seen used for `age`
    /// generations: not claimed, and not found accessed by a walk ([`age_pages`]) in the last
    /// `age` of them, this one included. 0 counts all; above [`OLDEST_AGE`] nothing is known.
    ///
    /// Reads the bitmaps of all blocks, and the descriptors of frames that are old enough. Exact at
    /// rest; while a pass is in progress pages of age 3 count as 2 ([`advance_generation`]).
    ///
    /// [`age_pages`]: crate::AddressSpace::age_pages
    /// [`advance_generation`]: Self::advance_generation
    pub fn idle_pages(&self, age: u32) -> u64 {
        self.call_anywhere();
        let mut pace = Pace::new(&self.machine);
        let mut nr_idle = 0;
        for b in self.frames.blocks.there() {
            for w in 0..BLOCK_WORDS {
                pace.step();
                let idle = self.frames.idle_in(b, w, age);
                nr_idle += bits(idle).map(|i| self.nr_user_pages(Pfn((word_base(b, w) + i) as u32))).sum::<u64>();
            }
        }
        nr_idle
    }

    /// Pages of a program or an object whose age a frame in use has, and not tables or nodes, or
    /// frames in a CPU's cache: what the descriptors say, or the folio that speaks for them. A
    /// folio of an object has the age of its head.
    pub(crate) fn nr_user_pages(&self, pfn: Pfn) -> u64 {
        let Some(state) = self.state_of(pfn) else { return 0 };
        let folio = self.frames.folio(pfn).state();
        match state.kind() {
            FrameKind::Anon => 1,
            FrameKind::Shared if self.frames.desc(pfn).is_foreign() => 0,
            FrameKind::Shared => state.order().nr_pages(),
            FrameKind::Free if folio.kind() == FrameKind::Anon && !folio.is_derived() && self.is_part(pfn) => 1,
            _ => 0,
        }
    }
}
