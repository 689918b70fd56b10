//! Finds blocks that could be emptied: by their counts, then by the descriptors of a few.
//!
//! Locks on entry: none, no section.

use super::attempt::Attempt;
use super::candidates::{Candidates, NR_CANDIDATES};
use super::moves::Movable;
use super::{CompactRefusal, MigrateRefusal};
use crate::addr::{BLOCK_FRAMES, BlockId, BlockRange, Order, Pfn};
use crate::frame::{BLOCK_WORDS, Class, FrameKind, Kind, word_base};
use crate::machine::{Machine, Tick};
use crate::policy::compact::BlockSummary;
use crate::sync;

/// Blocks of one window, among which candidates are chosen: the number of counts that are read between
/// two checks of what is left. A guess.
const NR_IN_WINDOW: u64 = 256;
/// Blocks that are searched for full ones, at the end of an attempt without success. A guess.
const NR_FULL_LOOKS: u64 = 16;
/// Blocks of long-term pins whose pins are counted, at the end of an attempt without success. A guess.
const NR_PINNED_LOOKS: usize = 4;
/// Free frames that are enough for all pages of any block.
const ENOUGH_FREE: u64 = 2 * BLOCK_FRAMES;
/// Most blocks that are searched for them, if the window has too few. A guess.
const MOST_LOOKS: usize = 64;

impl<M: Machine> Attempt<'_, M> {
    /// Gathers full blocks of movable pages, from a random block on. Used if the free frames are in
    /// blocks with tables and pinned pages: pages of a full block move there, and it becomes free.
    pub(super) fn gather_full(&self) -> Candidates {
        let (frames, round) = (&self.vm.frames, self.vm.compact.round.get() + 1);
        // Not for a fault, whose budget is smaller.
        if self.left.nr_migrated < BLOCK_FRAMES {
            return Candidates::default();
        }
        let mut found = Candidates { nr_free: self.nr_free_elsewhere(), ..Candidates::default() };
        if found.nr_free < BLOCK_FRAMES {
            return found;
        }
        let first = self.vm.machine.random() % frames.blocks.nr();
        for b in (0..NR_FULL_LOOKS.min(frames.blocks.nr())).map(|i| frames.blocks.around(first + i)) {
            self.vm.machine.tick(Tick::Step);
            let block = frames.blocks.at(b);
            let is_movable = block.class() <= Class::Shared && block.folio.state().kind() == FrameKind::Free;
            if is_movable && block.nr_free() == 0 && block.folio.passed_over.get() != round {
                found.offer(b, 0);
            }
            if found.nr == NR_CANDIDATES {
                break;
            }
        }
        found
    }

    /// Unmarks some blocks that no longer have pages with long-term pins. Returns whether there were
    /// any.
    pub(super) fn forget_pins(&mut self) -> Result<bool, CompactRefusal> {
        let blocks = &self.vm.frames.blocks;
        // Not for a fault, whose budget is smaller.
        if self.left.nr_migrated < BLOCK_FRAMES {
            return Ok(false);
        }
        let first = blocks.around(self.vm.machine.random() % blocks.nr());
        let mut forgot = false;
        for b in blocks.offering(Kind::Pinned, blocks.names(), first).take(NR_PINNED_LOOKS) {
            self.check_budget()?;
            self.spend_scan(2 * BLOCK_FRAMES)?;
            if self.has_pins(b) {
                continue;
            }
            blocks.at(b).weaken(Class::Pinned, Class::Shared);
            // A CPU that pins a page there either finds the block unmarked, or its pin is counted.
            sync::fence();
            if self.has_pins(b) {
                blocks.at(b).raise(Class::Pinned);
            } else {
                forgot = true;
            }
        }
        Ok(forgot)
    }

    fn has_pins(&self, b: BlockId) -> bool {
        let first = b.first_frame().0;
        self.vm.machine.tick(Tick::Step);
        (first..first + BLOCK_FRAMES as u32).any(|pfn| {
            let state = self.vm.state_of(Pfn(pfn));
            state.is_some_and(|s| matches!(s.kind(), FrameKind::Anon | FrameKind::Shared) && s.pins() > 0)
        })
    }

    /// Gathers candidates from the counts of blocks that the summaries list as partly used. Reads no
    /// descriptors.
    pub(super) fn gather(&self, rest: BlockRange) -> Candidates {
        let (frames, round) = (&self.vm.frames, self.vm.compact.round.get() + 1);
        let mut found = Candidates { end: rest.end, ..Candidates::default() };
        let nr_most = NR_IN_WINDOW.min(self.left.nr_blocks);
        let of_objects = self.moves_objects().then_some(Kind::Shared);
        for b in frames.blocks.offering_either(Kind::Spare, of_objects, rest) {
            if found.nr_looks == nr_most {
                found.end = b;
                break;
            }
            self.vm.machine.tick(Tick::Step);
            found.nr_looks += 1;
            let block = frames.blocks.at(b);
            let nr_free = block.nr_free();
            found.nr_free += nr_free;
            let is_new = block.folio.passed_over.get() != round && block.folio.state().kind() == FrameKind::Free;
            if is_new && nr_free > 0 {
                found.offer(b, nr_free);
            }
        }
        if found.nr > 0 && found.nr_free < ENOUGH_FREE {
            found.nr_free = found.nr_free.max(self.nr_free_elsewhere());
        }
        found
    }

    /// Counts free frames that pages of a block may move to, in some blocks. Hardly any block is wholly
    /// free when this is called.
    fn nr_free_elsewhere(&self) -> u64 {
        let blocks = &self.vm.frames.blocks;
        let some = blocks.offering(Kind::Any, blocks.names(), BlockId(0)).take(MOST_LOOKS);
        some.inspect(|_| self.vm.machine.tick(Tick::Step)).map(|b| blocks.at(b).nr_free()).sum()
    }

    /// Whether pages of objects may be moved at all.
    fn moves_objects(&self) -> bool {
        self.left.nr_mappings > 0
    }

    /// Whether a frame looks movable within the budget. A folio that fills a block stays: its target would
    /// be a free block.
    pub(super) fn check_movable(&self, pfn: Pfn) -> Result<Movable, MigrateRefusal> {
        match self.vm.check_movable(pfn)? {
            Movable::OfObject { order, .. } if order >= Order::PMD => Err(MigrateRefusal::HugePage),
            Movable::OfObject { .. } if !self.moves_objects() => Err(MigrateRefusal::TooManyMaps),
            movable => Ok(movable),
        }
    }

    /// Reads the descriptors of the frames in use, up to the first frame that cannot move.
    pub(super) fn summarize(&mut self, b: BlockId) -> Result<BlockSummary, CompactRefusal> {
        let block = self.vm.frames.blocks.at(b);
        let mut now = BlockSummary { nr_free: block.nr_free_exact(), ..BlockSummary::default() };
        now.nr_used = BLOCK_FRAMES - now.nr_free;
        for (w, free) in (0..BLOCK_WORDS).map(|w| (w, block.free_word(w))) {
            self.spend_scan(free.count_zeros().into())?;
            for i in (0..64).filter(|i| free & 1 << i == 0) {
                let pfn = Pfn((word_base(b, w) + i) as u32);
                self.vm.machine.tick(Tick::Step);
                match self.check_movable(pfn) {
                    Ok(_) => now.nr_movable += 1,
                    Err(MigrateRefusal::NotInUse) if !self.stole => {
                        // Most likely in the frame cache of a CPU.
                        self.steal_caches();
                        return self.summarize(b);
                    }
                    Err(refusal) => {
                        self.refusal = Self::refuse(self.vm, refusal);
                        return Ok(now);
                    }
                }
            }
        }
        Ok(now)
    }
}
