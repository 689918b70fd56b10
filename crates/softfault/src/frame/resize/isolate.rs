//! Memory that is about to go: its free frames are taken out of use, one after the other, while the rest is moved out of it
//! (`compact/offline.rs`).
//!
//! ```text
//! isolate    each frame that is free ─▶ claimed, and reserved with a mark
//! ...        the caller moves others out; what becomes free is isolated
//! remove     all are isolated ─▶ as if they had been claimed at once
//! drop       those with the mark are free again
//! ```
//! Nothing comes to the range meanwhile but what is allocated between its release and the next look. The frames count as
//! memory that has gone: an allocation that is refused for want of them does not wait.
//!
//! Locks on entry: none, no section. Takes the lock of memory that is emptied, and later that of resizes.

use super::{RemoveMemoryRefusal, blocks_of, sections_of};
use crate::addr::{BlockId, Pfn};
use crate::frame::runs::BLOCK_WORDS;
use crate::frame::{FrameKind, Memory, word_base};
use crate::lock::{WordLock, lock_word};
use crate::machine::{FrameRange, LockKind, Machine};
use crate::pace::Pace;
use crate::sync::Ordering;

/// The owner of a reserved frame that was isolated: no frame's number, and no owner of a frame of descriptors.
const ISOLATED: u64 = u64::MAX;

/// Memory that is being emptied, by one caller at a time. Dropping it frees what was isolated.
pub(crate) struct Emptied<'m, M: Machine> {
    memory: &'m Memory<M>,
    range: FrameRange,
    _lock: WordLock<'m, M>,
}

impl<M: Machine> Memory<M> {
    /// Begins to empty whole sections that are there. Isolates what is free.
    pub(crate) fn begin_to_empty(&self, range: FrameRange) -> Result<Emptied<'_, M>, RemoveMemoryRefusal> {
        let sections = sections_of(&range).ok_or(RemoveMemoryRefusal::NotSections)?;
        let _lock = lock_word(LockKind::Emptying, &self.frames.emptying, &self.machine);
        // Memory of the beginning that has not had its turn is there, too.
        let has_turn = |section| !self.is_taken(section) || self.frames.is_present(section);
        while !sections.clone().all(has_turn) && self.next_section() {}
        {
            let _resizes = lock_word(LockKind::MemoryResize, &self.frames.resizes, &self.machine);
            self.are_present(&range, sections.clone())?;
        }
        let emptied = Emptied { memory: self, range, _lock };
        emptied.isolate_free();
        Ok(emptied)
    }

    /// Whether the frame is isolated. Anybody's: it may be another one's at the next moment.
    pub(crate) fn is_isolated(&self, pfn: Pfn) -> bool {
        let section = self.section();
        let Some(desc) = self.frames.find_desc(section.inside(), pfn) else { return false };
        let is_reserved = || desc.state().kind() == FrameKind::Reserved;
        // Others may make the frame something else between two looks.
        is_reserved() && desc.owner.load(Ordering::Acquire) == ISOLATED && is_reserved()
    }
}

impl<M: Machine> Emptied<'_, M> {
    /// All frames, the isolated ones included.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Pfn> + use<M> {
        (self.range.first.0..).take(self.range.nr_frames as usize).map(Pfn)
    }

    /// Isolates what is free, in the caches of CPUs, too.
    pub(crate) fn isolate_free(&self) {
        self.memory.steal_caches();
        let mut pace = Pace::new(&self.memory.machine);
        for b in blocks_of(&self.range).iter() {
            pace.step();
            (0..BLOCK_WORDS).for_each(|w| self.isolate_word(b, w));
        }
    }

    /// Whether the frame is isolated, now if it was free.
    pub(crate) fn isolate(&self, pfn: Pfn) -> bool {
        if !self.memory.is_isolated(pfn) {
            self.isolate_word(BlockId::of(pfn), pfn.0 as usize / 64 % BLOCK_WORDS);
        }
        self.memory.is_isolated(pfn)
    }

    fn isolate_word(&self, b: BlockId, w: usize) {
        let (mask, _) = self.memory.frames.blocks.at(b).claim_some(w, 64);
        if mask == 0 {
            return;
        }
        self.memory.count_taken(mask.count_ones().into());
        (0..64).filter(|i| mask & 1 << i != 0).for_each(|i| {
            self.memory.reserve_frame(Pfn((word_base(b, w) + i) as u32), ISOLATED);
        });
    }

    /// Removes the memory. All of it is isolated.
    pub(crate) fn remove(mut self) {
        let memory = self.memory;
        debug_assert!(self.frames().all(|pfn| memory.is_isolated(pfn)), "a frame that is in use does not go");
        let _resizes = lock_word(LockKind::MemoryResize, &memory.frames.resizes, &memory.machine);
        memory.finish_removal(&self.range);
        // Nothing is given back.
        self.range.nr_frames = 0;
    }

    /// Frees the isolated frames of a word. What is known of their content is what it was.
    fn give_back_word(&self, b: BlockId, w: usize) {
        let at = |i: u64| Pfn((word_base(b, w) + i) as u32);
        let mask = (0..64).filter(|i| self.memory.is_isolated(at(*i))).fold(0, |mask, i| mask | 1 << i);
        (0..64).filter(|i| mask & 1 << i != 0).for_each(|i| self.memory.frames.desc(at(i)).clear());
        let dirty = self.memory.frames.blocks.at(b).dirty[w].load(Ordering::Relaxed);
        self.memory.release_as_known((b, w), mask, dirty);
    }
}

impl<M: Machine> Drop for Emptied<'_, M> {
    fn drop(&mut self) {
        let mut pace = Pace::new(&self.memory.machine);
        for b in blocks_of(&self.range).iter() {
            pace.step();
            (0..BLOCK_WORDS).for_each(|w| self.give_back_word(b, w));
        }
    }
}
