//! The trees over blocks alone, with a count for each block in place of its state: for
//! models of their protocol (I40), which would have no end with an allocator around it.

use crate::addr::{BlockId, BlockRange, Pfn};
use crate::frame::{Kind, Summary};
use crate::machine::Machine;
use crate::mem::FrameArray;
use crate::sync::{Ordering, Word};

/// Blocks of which each offers something or nothing.
pub struct Trees {
    summary: Summary,
    counts: FrameArray<Word>,
    nr_blocks: u32,
}

impl Trees {
    /// In frames of zeroes from `first` on, blocks with nothing.
    pub fn over<M: Machine>(machine: &M, first: Pfn, nr_blocks: u32, nr_cpus: usize) -> Trees {
        let summary = Summary::over(machine, first, nr_blocks, nr_cpus);
        summary.clear(Kind::Any);
        let after = Pfn(first.0 + Summary::frames_for(nr_blocks, nr_cpus) as u32);
        Trees { summary, counts: FrameArray::over(machine, after, 0, nr_blocks as usize), nr_blocks }
    }

    /// Block `b` has one more.
    pub fn give(&self, b: u32) {
        if self.counts.at(b as usize).fetch_add(1, Ordering::Relaxed) == 0 {
            self.summary.offer(Kind::Any, BlockId(b));
        }
    }

    /// Takes one out of block `b`, if it has any.
    pub fn take(&self, b: u32) -> bool {
        let count = self.counts.at(b as usize);
        let mut seen = count.load(Ordering::Relaxed);
        while seen != 0 {
            match count.compare_exchange(seen, seen - 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        if seen == 1 {
            self.summary.withdraw(Kind::Any, BlockId(b), || count.load(Ordering::Relaxed) != 0);
        }
        seen != 0
    }

    /// Puts a page that begins with block `b` into its pool (`frame/block/pool.rs`).
    pub fn put_page(&self, b: u32) {
        self.summary.offer(Kind::Pool2M, BlockId(b));
    }

    /// Takes it, if it is there.
    pub fn take_page(&self, b: u32) -> bool {
        self.summary.take(Kind::Pool2M, BlockId(b))
    }

    /// The first page that a search finds.
    pub fn page(&self) -> Option<u32> {
        self.summary.first_in(Kind::Pool2M, &self.all()).map(|b| b.0)
    }

    /// Whether a search at rest finds each page that is there.
    pub fn finds_all_pages(&self) -> bool {
        let is_there = |b: &u32| self.summary.holds(Kind::Pool2M, BlockId(*b));
        (0..self.nr_blocks).filter(is_there).all(|b| self.summary.says(Kind::Pool2M, BlockId(b)))
    }

    fn all(&self) -> BlockRange {
        BlockRange { start: BlockId(0), end: BlockId(self.nr_blocks) }
    }

    /// The first block that a search finds.
    pub fn offering(&self) -> Option<u32> {
        self.summary.first_in(Kind::Any, &self.all()).map(|b| b.0)
    }

    /// Whether a search at rest finds each block that has something.
    pub fn are_true(&self) -> bool {
        (0..self.nr_blocks).all(|b| self.counts.at(b as usize).get() == 0 || self.summary.says(Kind::Any, BlockId(b)))
    }
}
