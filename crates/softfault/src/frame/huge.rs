//! Huge frames: whole blocks, or the format's huge size.
//!
//! A CPU searches its home blocks first, from where it found the last one, so CPUs do not share
//! cache lines of blocks while each has free ones. Blocks that CPUs refill from are used last.
//!
//! Locks on entry: none, no section.

use super::summary::Kind;
use super::want::Content;
use super::{FrameKind, Memory, OutOfFrames};
use crate::account::Event;
use crate::addr::{BLOCK_FRAMES, BlockId, OptPfn, Order, Pfn};
use crate::clear;
use crate::machine::Machine;
use crate::pace::Pace;
use crate::sync::Ordering;
use crate::table::format::huge_order;

/// Blocks that a search tries for a huge frame that is smaller than a block. A guess.
const MOST_LOOKS: usize = 64;

/// A huge frame, owned by one caller alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HugeFrame {
    pub(crate) first: Pfn,
    pub(crate) content: Content,
}

impl<M: Machine> Memory<M> {
    /// Allocates a huge frame. Called with nothing held.
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

    /// Zeroes one that the caller owns alone; the page that is used first is zeroed last. Called
    /// with nothing held.
    pub(crate) fn zero_huge(&self, first: Pfn, sub_page: Option<u64>) {
        let order = huge_order::<M::Format>();
        clear::clear_folio(&self.machine, first, order, sub_page, self.clear_order(order), self.clear_by());
    }

    /// Adjacent frames of zeroes, aligned to their number, for one fault.
    pub(crate) fn obtain_batch(&self, order: Order, sub_page: u32) -> Result<Pfn, OutOfFrames> {
        let wanted = OutOfFrames::Block(order);
        self.frames.count_down(wanted)?;
        let first = self.claim_batch(order).ok_or(wanted)?;
        self.frames.note_run_used(first, order.nr_pages());
        if !self.frames.is_clean(first, order.nr_pages()) {
            clear::clear_folio(
                &self.machine,
                first,
                order,
                Some(u64::from(sub_page)),
                self.clear_order(order),
                self.clear_by(),
            );
        }
        Ok(first)
    }

    /// Makes the huge zero frame, if there is none. It is never freed.
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
        self.release_run(first, Self::NR_SUB_FRAMES, content);
    }

    pub(super) fn claim_huge(&self, nr: u64) -> Option<HugeFrame> {
        loop {
            let found = self.claim_huge_there(nr);
            if found.is_some() || !self.next_section() {
                return found;
            }
        }
    }

    fn claim_huge_there(&self, nr: u64) -> Option<HugeFrame> {
        let blocks = &self.frames.blocks;
        let (home_range, all) = (self.home_range(), blocks.names());
        let search = BlockId(self.this_cpu_data().huge_search.get() as u32);
        let whole = [(home_range, Kind::Ready), (home_range, Kind::Whole), (all, Kind::Whole), (all, Kind::Empty)];
        // A format whose huge pages are smaller: it fails only until somebody has noted it.
        let fits = Kind::run(Order(nr.ilog2() as u8)).unwrap_or(Kind::Any);
        let part = [(home_range, fits), (all, fits), (home_range, Kind::Any), (all, Kind::Any)];
        let (places, most) = if nr == BLOCK_FRAMES { (whole, usize::MAX) } else { (part, MOST_LOOKS) };
        let mut pace = Pace::new(&self.machine);
        let near = places.into_iter().flat_map(|(some, kind)| blocks.offering(kind, some, search)).take(most);
        let (b, first) = near.inspect(|_| pace.step()).find_map(|b| {
            let found = self.claim_huge_of(b, nr);
            if found.is_none() && nr != BLOCK_FRAMES {
                blocks.at(b).lose_runs();
            }
            found.map(|first| (b, first))
        })?;
        self.this_cpu_data().huge_search.set(b.0.into());
        self.begun(b);
        Some(HugeFrame { first, content: self.frames.content(first, nr) })
    }

    /// One block, if all of it is free.
    pub(crate) fn claim_whole(&self, b: BlockId) -> Option<HugeFrame> {
        let first = self.claim_huge_of(b, BLOCK_FRAMES)?;
        Some(HugeFrame { first, content: self.frames.content(first, BLOCK_FRAMES) })
    }

    fn claim_huge_of(&self, b: BlockId, nr: u64) -> Option<Pfn> {
        let first = if nr == BLOCK_FRAMES {
            self.frames.claim_run(b, 0, nr).then(|| b.first_frame())?
        } else {
            self.frames.claim_part(b, nr)?
        };
        self.count_taken(nr);
        if self.frames.blocks.at(b).folio.reserve(first) {
            self.frames.note_run_used(first, nr);
            return Some(first);
        }
        self.release_run(first, nr, Content::Unknown);
        self.frames.nr_undone.fetch_add(1, Ordering::Relaxed);
        None
    }
}
