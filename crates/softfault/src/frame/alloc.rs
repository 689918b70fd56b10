//! Blocks of 2^order frames, and batches of single ones on their way back.

use super::want::{Content, Fill, Search};
use super::{Frames, Memory, OutOfFrames};
use crate::addr::{BLOCK_FRAMES, BlockId, BlockRange, Order, Pfn};
use crate::machine::{Machine, Tick};
use crate::mem;
use crate::pace::Pace;

impl<M: Machine> Memory<M> {
    /// 2^order adjacent frames, aligned to their size, the caller's alone.
    /// Called with nothing held.
    #[cfg(test)]
    pub(crate) fn obtain_order(&self, order: Order, fill: Fill) -> Result<Pfn, OutOfFrames> {
        self.obtain_all(&mut |source| source.order(order, fill)).map(|(first, _held)| first)
    }

    /// The same for a caller who is counted as a holder.
    pub(super) fn try_obtain_order(&self, order: Order, fill: Fill, search: Search) -> Result<Pfn, OutOfFrames> {
        if order > Order::MAX {
            return Err(OutOfFrames::Block(order));
        }
        let claim = || self.claim_order(order);
        let mut found = claim();
        if found.is_none() && search == Search::Everywhere {
            self.steal_groups();
            found = claim();
        }
        let first = found.ok_or(OutOfFrames::Block(order))?;
        if fill != Fill::Raw {
            mem::zero_frames(&self.machine, first, order.nr_pages());
        }
        Ok(first)
    }

    /// Looks whether so many single frames are free, before they are asked for one
    /// by one. Everywhere is as for one frame: the groups of others are emptied.
    pub(super) fn look_for(&self, nr_frames: u64, search: Search) -> Result<(), OutOfFrames> {
        let missing = || nr_frames.saturating_sub(self.nr_free_pages());
        if search == Search::Everywhere && missing() > 0 {
            self.steal_groups();
        }
        if missing() == 0 { Ok(()) } else { Err(OutOfFrames::frames(nr_frames)) }
    }

    /// Gives back 2^order frames that are the caller's alone.
    pub(crate) fn give_back_order(&self, first: Pfn, order: Order) {
        let end = u64::from(first.0) + order.nr_pages();
        let mut pace = Pace::new(&self.machine);
        for p in first.0..end as u32 {
            pace.step();
            self.frames.desc(Pfn(p)).clear();
        }
        let step = order.nr_pages().min(64);
        for base in (u64::from(first.0)..end).step_by(step as usize) {
            self.frames.release_word(base & !63, ones(step) << (base % 64), Content::Unknown);
        }
    }

    /// Claims 2^order adjacent frames.
    pub(super) fn claim_order(&self, order: Order) -> Option<Pfn> {
        let (frames, nr) = (&self.frames, order.nr_pages());
        let all = frames.blocks.names();
        let mut pace = Pace::new(&self.machine);
        if nr < BLOCK_FRAMES {
            let mut places = [false, true].into_iter().flat_map(|fixed| all.iter().map(move |b| (b, fixed)));
            return places.find_map(|(b, fixed)| {
                pace.step();
                if frames.blocks.at(b).is_fixed() == fixed { frames.claim_part(b, nr) } else { None }
            });
        }
        let step = (nr / BLOCK_FRAMES) as u32;
        all.iter()
            .step_by(step as usize)
            .map(|start| BlockRange { start, end: BlockId(start.0 + step) })
            .find(|run| run.end <= all.end && self.claim_blocks(run, &mut pace))
            .map(|run| run.start.first_frame())
    }

    fn claim_blocks(&self, run: &BlockRange, pace: &mut Pace<'_, M>) -> bool {
        let frames = &self.frames;
        for b in run.iter() {
            pace.step();
            if frames.blocks.at(b).nr_free() < BLOCK_FRAMES {
                return false;
            }
        }
        // What is claimed here is not counted as held, so that nothing is answered until
        // it is the caller's or back. These are 512 blocks at most.
        for b in run.iter() {
            self.machine.tick(Tick::Step);
            if !frames.claim_run(b, 0, BLOCK_FRAMES) {
                let before = BlockRange { end: b, ..*run };
                before.iter().for_each(|b| frames.release_run(b.first_frame(), BLOCK_FRAMES, Content::Unknown));
                return false;
            }
        }
        true
    }
}

impl Frames {
    /// `nr` < 512 frames inside block `b`.
    fn claim_part(&self, b: BlockId, nr: u64) -> Option<Pfn> {
        if self.blocks.at(b).nr_free() < nr {
            return None;
        }
        let found = (0..BLOCK_FRAMES).step_by(nr as usize).find(|at| self.claim_run(b, *at, nr));
        found.map(|at| Pfn(b.first_frame().0 + at as u32))
    }

    /// Frames `at..at + nr` of block `b`, all or none.
    pub(super) fn claim_run(&self, b: BlockId, at: u64, nr: u64) -> bool {
        let block = self.blocks.at(b);
        let mask = ones(nr.min(64)) << (at % 64);
        let words = (at / 64) as usize..(at + nr).div_ceil(64) as usize;
        for w in words.clone() {
            if block.claim_exact(w, mask).is_none() {
                for w in words.start..w {
                    block.release(w, mask, Content::Unknown);
                }
                return false;
            }
        }
        true
    }
}

/// The lowest `nr` bits, `nr` from 1 to 64.
fn ones(nr: u64) -> u64 {
    !0 >> (64 - nr)
}

/// Frames on their way back, gathered by bitmap word so that adjacent ones cost
/// one operation together.
pub(crate) struct FreeBatch<'a> {
    frames: &'a Frames,
    base: u64,
    mask: u64,
}

impl<'a> FreeBatch<'a> {
    pub(crate) fn new(frames: &'a Frames) -> FreeBatch<'a> {
        FreeBatch { frames, base: 0, mask: 0 }
    }
    /// Adds a frame that is the caller's alone.
    #[inline]
    pub(crate) fn add(&mut self, pfn: Pfn) {
        self.frames.desc(pfn).clear();
        let base = u64::from(pfn.0) & !63;
        if base != self.base {
            self.flush();
            self.base = base;
        }
        self.mask |= 1 << (pfn.0 & 63);
    }
    fn flush(&mut self) {
        if self.mask != 0 {
            self.frames.release_word(self.base, core::mem::take(&mut self.mask), Content::Unknown);
        }
    }
}

impl Drop for FreeBatch<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}
