//! Huge frames: whole blocks, or what the format calls huge.
//!
//! A CPU looks in its own zone first, on from where it found the last one, so
//! that CPUs meet in no block's line as long as each has free ones. A block that
//! serves somebody's small frames is left alone as long as there are others.
//!
//! Locks on entry: none, no section.

use super::block::{BLOCK_WORDS, BlockData};
use super::fragment::run_starts;
use super::want::{Content, InUse};
use super::{FrameKind, Frames, Memory, OutOfFrames};
use crate::account::Event;
use crate::addr::{BLOCK_FRAMES, BlockId, BlockRange, OptPfn, Order, Pfn};
use crate::clear;
use crate::machine::Machine;
use crate::pace::Pace;
use crate::sync::Ordering;
use crate::table::format::huge_order;

/// A huge frame that is the caller's alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HugeFrame {
    pub(crate) first: Pfn,
    pub(crate) content: Content,
}

impl<M: Machine> Memory<M> {
    /// A huge frame, the caller's alone. Called with nothing held.
    pub(crate) fn obtain_huge(&self) -> Result<HugeFrame, OutOfFrames> {
        let wanted = OutOfFrames::huge::<M::Format>();
        self.frames.count_down(wanted)?;
        self.claim_huge(Self::NR_SUB_FRAMES).ok_or(wanted)
    }

    /// One, if one is free.
    pub(crate) fn obtain_huge_if_free(&self) -> Result<Option<HugeFrame>, OutOfFrames> {
        // An injected failure is one: nothing is made in its place.
        self.frames.count_down(OutOfFrames::huge::<M::Format>())?;
        Ok(self.claim_huge(Self::NR_SUB_FRAMES))
    }

    /// Zeroes one that is the caller's alone, the page that is wanted first last.
    /// Called with nothing held.
    pub(crate) fn zero_huge(&self, first: Pfn, sub_page: Option<u64>) {
        let order = huge_order::<M::Format>();
        clear::clear_folio(&self.machine, first, order, sub_page, self.clear_order(order));
    }

    /// Adjacent frames of zeroes, aligned to their number, for one fault.
    pub(crate) fn obtain_batch(&self, order: Order, sub_page: u32) -> Result<Pfn, OutOfFrames> {
        let wanted = OutOfFrames::Block(order);
        self.frames.count_down(wanted)?;
        let first = self.claim_order(order).ok_or(wanted)?;
        if !self.frames.is_clean(first, order.nr_pages()) {
            clear::clear_folio(&self.machine, first, order, Some(u64::from(sub_page)), self.clear_order(order));
        }
        Ok(first)
    }

    /// Sees to it that there is a huge zero frame. It stays for good.
    pub(crate) fn make_huge_zero(&self) -> Result<(), OutOfFrames> {
        if self.frames.huge_zero() != OptPfn::NONE {
            return Ok(());
        }
        let huge = self.obtain_huge().inspect_err(|_| self.count(Event::ThpZeroPageAllocFailed, 1))?;
        if !huge.content.is_zero() {
            self.zero_huge(huge.first, None);
        }
        self.frames.folio(huge.first).state.set(FrameKind::Zero as u64);
        let named = OptPfn::some(huge.first).to_word();
        if self.frames.huge_zero.compare_exchange(0, named, Ordering::AcqRel, Ordering::Acquire).is_err() {
            self.give_back_huge(huge.first, Content::Zero);
        } else {
            self.count(Event::ThpZeroPageAlloc, 1);
        }
        Ok(())
    }

    /// Gives it back; the folio ends first (I26).
    pub(crate) fn give_back_huge(&self, first: Pfn, content: Content) {
        self.frames.folio(first).state.set(0);
        self.frames.release_run(first, Self::NR_SUB_FRAMES, content);
    }

    fn claim_huge(&self, nr: u64) -> Option<HugeFrame> {
        let (zone, all) = (self.zone(), self.frames.blocks.names());
        let mut pace = Pace::new(&self.machine);
        let found = self.claim_ahead(&zone, nr, &mut pace).or_else(|| {
            [(&zone, InUse::Avoid), (&all, InUse::Avoid), (&all, InUse::Accept)]
                .into_iter()
                .find_map(|(blocks, reserved)| self.claim_huge_in(blocks, reserved, nr, &mut pace))
        });
        found.map(|first| HugeFrame { first, content: self.frames.content(first, nr) })
    }

    /// One that was zeroed ahead, which are the first ones of the zone.
    fn claim_ahead(&self, zone: &BlockRange, nr: u64, pace: &mut Pace<'_, M>) -> Option<Pfn> {
        let id = self.machine.this_cpu();
        let nr_ahead = self.cpu(id).nr_ahead.get().checked_sub(1)?;
        let found = zone.iter().find_map(|b| {
            pace.step();
            let block = self.frames.blocks.at(b);
            let is_ready = block.nr_free() == BLOCK_FRAMES && !block.is_reserved() && block.is_clean();
            if is_ready { self.frames.claim_huge_of(b, block, nr) } else { None }
        });
        // An answer may have been given on another CPU, whose word this is not.
        if self.machine.this_cpu() == id {
            self.cpu(id).nr_ahead.set(if found.is_some() { nr_ahead } else { 0 });
        }
        found
    }

    fn claim_huge_in(&self, blocks: &BlockRange, reserved: InUse, nr: u64, pace: &mut Pace<'_, M>) -> Option<Pfn> {
        let search = || &self.cpu(self.machine.this_cpu()).huge_search;
        for b in blocks.iter_from(BlockId(search().get() as u32)) {
            pace.step();
            let block = self.frames.blocks.at(b);
            if block.nr_free() < nr || reserved == InUse::Avoid && block.is_reserved() {
                continue;
            }
            if let Some(first) = self.frames.claim_huge_of(b, block, nr) {
                search().set(b.0.into());
                return Some(first);
            }
        }
        None
    }
}

impl Frames {
    /// One block, if all of it is free.
    pub(crate) fn claim_whole(&self, b: BlockId) -> Option<HugeFrame> {
        let first = self.claim_huge_of(b, self.blocks.at(b), BLOCK_FRAMES)?;
        Some(HugeFrame { first, content: self.content(first, BLOCK_FRAMES) })
    }

    fn claim_huge_of(&self, b: BlockId, block: &BlockData, nr: u64) -> Option<Pfn> {
        let at = if nr == BLOCK_FRAMES {
            self.claim_run(b, 0, nr).then_some(0)?
        } else {
            // A format whose huge pages are smaller: only where bits are clear.
            let starts = |w: usize| (run_starts(block.free_word(w), nr.ilog2()), w as u64 * 64);
            let fits = |(mask, base): (u64, u64)| {
                (0..64).filter(|i| mask & 1 << i != 0).map(|i| base + i).find(|at| self.claim_run(b, *at, nr))
            };
            (0..BLOCK_WORDS).map(starts).find_map(fits)?
        };
        let first = Pfn(b.first_frame().0 + at as u32);
        if block.folio.reserve(first) {
            return Some(first);
        }
        self.release_run(first, nr, Content::Unknown);
        None
    }
}
