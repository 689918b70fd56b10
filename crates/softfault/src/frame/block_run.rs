//! Runs of blocks: 1 GiB for a folio of an object, 512 adjacent, aligned blocks that are all free.
//!
//! ```text
//! find     a GiB all of whose blocks are named by the summaries as free, from a cursor on
//! claim    block by block, the lowest first; where one is lost those before it go back
//! ```
//! Eight words of the summaries name the blocks of a GiB (more in memory so small that block groups are). They
//! may be out of date: the claim decides. So one look costs the same in any machine, and a search makes a
//! bounded number of looks. It begins where the last one ended, so after a refusal the next one looks at other
//! memory. It frees no memory: a refusal says that no run was found.
//!
//! All runs are claimed in this order, and single blocks by one change each. So of two callers that want
//! the same GiB at most one gets it.
//!
//! Locks on entry: none, no section. The caller counts as a holder (I28).

use super::mem_sections::MEM_SECTION_FRAMES;
use super::summary::Kind;
use super::{Class, Memory};
use crate::addr::{BLOCK_FRAMES, BlockId, BlockRange, Order, Pfn};
use crate::machine::Machine;
use crate::pace::Pace;
use crate::sync::Ordering;

/// Blocks of a GiB.
const NR_BLOCKS: u32 = (Order::PUD.nr_pages() / BLOCK_FRAMES) as u32;

impl<M: Machine> Memory<M> {
    /// Claims 1 GiB, which the caller then owns alone, with so many looks at most.
    pub(super) fn claim_blocks(&self, most_looks: usize) -> Option<Pfn> {
        let (blocks, cursor) = (&self.frames.blocks, &self.frames.next_run);
        let nr_runs = blocks.nr() as u32 / NR_BLOCKS;
        let first = cursor.load(Ordering::Relaxed) as u32;
        let mut pace = Pace::new(&self.machine);
        let (mut next, mut nr_passed) = (first, 0);
        for _ in 0..most_looks {
            if nr_passed >= nr_runs {
                break;
            }
            next = if next < nr_runs { next } else { 0 };
            pace.step();
            let run = self.next_whole_run(next, nr_runs);
            let found = run.and_then(|run| self.claim_blocks_of(BlockId(run * NR_BLOCKS), &mut pace));
            let after = run.map_or(nr_runs, |run| run + 1);
            nr_passed += after - next;
            next = after;
            if found.is_some() {
                cursor.store(next.into(), Ordering::Relaxed);
                return found;
            }
        }
        cursor.store(next.into(), Ordering::Relaxed);
        None
    }

    /// Whether so many folios of whole blocks, of 2 MiB or 1 GiB, seem to be free. Takes none. Lays out more memory if there are
    /// fewer.
    pub(crate) fn seems_to_have(&self, order: Order, nr: u64) -> bool {
        if nr > self.frames.blocks.nr() {
            return false;
        }
        loop {
            let nr_deferred = self.frames.deferred.nr_pages();
            let nr_found = self.nr_whole(order, nr as usize) as u64;
            if nr_found == nr {
                return true;
            }
            // As many sections as may do, before the next count.
            let nr_lacking = ((nr - nr_found) * order.nr_pages()).div_ceil(MEM_SECTION_FRAMES);
            let nr_laid_out = (0..nr_lacking).take_while(|_| self.next_section()).count();
            // Another CPU may have laid out the last one after the count.
            if nr_laid_out == 0 && self.frames.deferred.nr_pages() == nr_deferred {
                return false;
            }
        }
    }

    /// Counts them, up to `most`.
    fn nr_whole(&self, order: Order, most: usize) -> usize {
        let blocks = &self.frames.blocks;
        let mut pace = Pace::new(&self.machine);
        if order == Order::PMD {
            let whole = blocks.offering(Kind::Empty, blocks.names(), BlockId(0));
            return { whole }.inspect(|_| pace.step()).take(most).count();
        }
        let of = |run: u32| BlockRange { start: BlockId(run * NR_BLOCKS), end: BlockId((run + 1) * NR_BLOCKS) };
        let runs = 0..blocks.nr() as u32 / NR_BLOCKS;
        let is_whole = |run: &u32| blocks.summary.have_all(Kind::Whole, &of(*run));
        { runs }.inspect(|_| pace.step()).filter(is_whole).take(most).count()
    }

    /// The first GiB from number `next` on that may be whole: it is, or blocks before it are all that is free.
    fn next_whole_run(&self, next: u32, nr_runs: u32) -> Option<u32> {
        let summary = &self.frames.blocks.summary;
        let rest = BlockRange { start: BlockId(next * NR_BLOCKS), end: BlockId(nr_runs * NR_BLOCKS) };
        let run = summary.first_in(Kind::Whole, &rest)?.0.div_ceil(NR_BLOCKS);
        (run < nr_runs).then_some(run)
    }

    /// All blocks from that one on, or none.
    fn claim_blocks_of(&self, first: BlockId, pace: &mut Pace<'_, M>) -> Option<Pfn> {
        let run = BlockRange { start: first, end: BlockId(first.0 + NR_BLOCKS) };
        if !self.frames.blocks.summary.have_all(Kind::Whole, &run) {
            return None;
        }
        for b in (first.0..run.end.0).map(BlockId) {
            pace.step();
            if self.claim_whole(b).is_none() {
                self.release_blocks(first.first_frame(), b.0 - first.0, pace);
                return None;
            }
            // The frames are on their own.
            self.frames.folio(b.first_frame()).state.set(0);
            self.frames.blocks.at(b).mark(Class::Shared);
            self.begun(b);
        }
        Some(first.first_frame())
    }

    /// Gives back blocks that were claimed, with what is known of their content.
    fn release_blocks(&self, first: Pfn, nr: u32, pace: &mut Pace<'_, M>) {
        for b in (0..nr).map(|i| BlockId(BlockId::of(first).0 + i)) {
            pace.step();
            self.release_run(b.first_frame(), BLOCK_FRAMES, self.frames.content(b.first_frame(), BLOCK_FRAMES));
            self.frames.nr_undone.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
#[path = "block_run_tests.rs"]
mod tests;
