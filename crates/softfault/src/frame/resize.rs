//! Adds and removes memory at run time, in sections of 128 MiB.
//!
//! ```text
//! add      frames for the metadata (may fail) ─▶ the machine agrees ─▶ descriptors of free frames, blocks of which
//!          each frame is in use ─▶ the tables name them ─▶ each block is released, as if it had been used
//! remove   each block is claimed as for a huge page (may fail), or emptied (`isolate.rs`) ─▶ descriptors: removed
//!          ─▶ the machine has it back
//! ```
//! A hole's block looks like one whose frames are all in use and unmovable (`BlockData::of_no_memory`), so
//! no CPU sees a difference when the tables change. The rest are ordinary claims and releases: the first CPU
//! that claims the last frame of a section gets it.
//!
//! The metadata of a removed section is kept in case it comes back: 33 bytes per frame. So existing views of
//! its descriptors and blocks stay valid, and a section's metadata never changes its place in the life of a
//! [`Vm`](crate::Vm).
//!
//! Locks on entry: none, no section. Takes the lock of resizes, under which the caller is a holder of frames.

mod foreign;
mod isolate;
mod refusal;

pub(crate) use isolate::Emptied;
pub use refusal::{AddMemoryRefusal, RemoveMemoryRefusal};

use super::class::Class;
use super::lay_out::{BLOCK_FRAMES_PER_MEM_SECTION, DESC_FRAMES_PER_MEM_SECTION, REMOVED, first_desc_of};
use super::mem_sections::{MEM_SECTION_FRAMES, MEM_SECTION_SHIFT, frames_of};
use super::runs::BLOCK_WORDS;
use super::{Content, Frames, Memory, OutOfFrames};
use crate::account::Event;
use crate::addr::{BLOCK_FRAMES, BlockId, BlockRange, OptPfn, Order, Pfn};
use crate::lock::lock_word;
use crate::machine::{FrameRange, LockKind, Machine, ask};
use crate::pace::Pace;
use crate::policy::watermark::Watermarks;
use crate::sync::Ordering;
use core::ops::Range;

/// Frames for the descriptors of a section, and for its blocks: 2^order of them.
const DESC_ORDER: Order = Order(DESC_FRAMES_PER_MEM_SECTION.ilog2() as u8);
const BLOCK_ORDER: Order = Order(BLOCK_FRAMES_PER_MEM_SECTION.next_power_of_two().ilog2() as u8);

/// Metadata of sections that are about to come: the first frame of the descriptors of one, whose descriptor names the
/// first frame of its blocks, and the next.
struct Chain(OptPfn);

/// The sections that a range is made of.
fn sections_of(range: &FrameRange) -> Option<Range<usize>> {
    let (first, end) = (u64::from(range.first.0), range.end());
    let is_whole =
        range.nr_frames > 0 && first.is_multiple_of(MEM_SECTION_FRAMES) && end.is_multiple_of(MEM_SECTION_FRAMES);
    is_whole.then_some((first >> MEM_SECTION_SHIFT) as usize..(end >> MEM_SECTION_SHIFT) as usize)
}

fn blocks_of(range: &FrameRange) -> BlockRange {
    BlockRange { start: BlockId::of(range.first), end: BlockId((range.end() / BLOCK_FRAMES) as u32) }
}

impl<M: Machine> Memory<M> {
    /// Adds memory: whole sections of 128 MiB that are not there, of which the machine says that they are the
    /// subsystem's from now on ([`Machine::add_frames`]). Takes 1.03 MiB for the metadata of each section that was
    /// never there.
    ///
    /// Watermarks follow. CPUs without home blocks, or with few, get theirs in the new memory; the rest of it is used
    /// when what is near a CPU is used up. Which node memory belongs to is known only if it was there at the beginning:
    /// with several nodes, other memory becomes nobody's home.
    ///
    /// # Errors
    ///
    /// [`AddMemoryRefusal`]; nothing has changed then.
    ///
    /// # Panics
    ///
    /// In a callback ([`Machine`]).
    pub fn add_memory(&self, range: FrameRange) -> Result<(), AddMemoryRefusal> {
        self.assert_outside();
        self.call();
        let added = self.try_add_memory(&range);
        self.count(added.map_or_else(AddMemoryRefusal::event, |()| Event::MemoryAdded), 1);
        added
    }

    fn try_add_memory(&self, range: &FrameRange) -> Result<(), AddMemoryRefusal> {
        let sections = sections_of(range).ok_or(AddMemoryRefusal::NotSections)?;
        let _lock = lock_word(LockKind::MemoryResize, &self.frames.resizes, &self.machine);
        let is_zero = self.lay_out_all(range, &sections, &|| ask::add_frames(&self.machine, range))?;
        sections.for_each(|section| self.bring(section, Content::zero_if(is_zero)));
        self.nr_total_pages.fetch_add(range.nr_frames, Ordering::Relaxed);
        self.count_taken(range.nr_frames.wrapping_neg());
        self.marks_follow();
        self.homes_come(blocks_of(range));
        Ok(())
    }

    /// Gives metadata to sections that have no memory, if the machine agrees. They look removed then. Under the lock
    /// of resizes.
    fn lay_out_all<T>(
        &self,
        range: &FrameRange,
        sections: &Range<usize>,
        agrees: &dyn Fn() -> Option<T>,
    ) -> Result<T, AddMemoryRefusal> {
        if sections.start == 0 || range.end() > self.nr_frames() {
            return Err(AddMemoryRefusal::OutOfRange);
        }
        if sections.clone().any(|section| self.is_taken(section)) {
            return Err(AddMemoryRefusal::AlreadyThere);
        }
        let mut metadata = Chain(OptPfn::NONE);
        let is_new = |section: &usize| self.frames.find_desc_at_rest(first_desc_of(*section)).is_none();
        for _ in sections.clone().filter(is_new) {
            if self.obtain_metadata(&mut metadata).is_err() {
                self.give_metadata_back(metadata);
                return Err(AddMemoryRefusal::NoMetadata);
            }
        }
        let Some(agreed) = agrees() else {
            self.give_metadata_back(metadata);
            return Err(AddMemoryRefusal::NoSuchMemory);
        };
        for section in sections.clone().filter(is_new) {
            if let Some((descs_at, blocks_at)) = self.frames.next_of(&mut metadata) {
                self.lay_out(section, descs_at, blocks_at, REMOVED);
            }
        }
        Ok(agreed)
    }

    /// Whether a section has memory, or is the metadata's, which has no descriptors.
    fn is_taken(&self, section: usize) -> bool {
        let (first, end) = frames_of(section);
        let is_of_beginning = self.machine.frames().iter().any(|r| u64::from(r.first.0) < end && first < r.end());
        match self.frames.find_desc_at_rest(first_desc_of(section)) {
            Some(_) => self.frames.is_present(section),
            None => is_of_beginning,
        }
    }

    /// Frames of zeroes for the metadata of one more section. Waits as any allocation, with no frames held.
    fn obtain_metadata(&self, chain: &mut Chain) -> Result<(), OutOfFrames> {
        let descs_at = self.obtain_reserved(DESC_ORDER)?;
        let blocks_at =
            self.obtain_reserved(BLOCK_ORDER).inspect_err(|_| self.release_reserved(descs_at, DESC_ORDER))?;
        let head = self.frames.desc(descs_at);
        head.index.set(blocks_at.0.into());
        head.link.set(chain.0.to_word());
        chain.0 = OptPfn::some(descs_at);
        Ok(())
    }

    fn obtain_reserved(&self, order: Order) -> Result<Pfn, OutOfFrames> {
        let (first, _held) = self.obtain_folio(order, 0)?;
        self.frames.blocks.at(BlockId::of(first)).mark(Class::Fixed);
        (0..order.nr_pages() as u32).for_each(|i| self.reserve_frame(Pfn(first.0 + i), 0));
        Ok(first)
    }

    fn release_reserved(&self, first: Pfn, order: Order) {
        (0..order.nr_pages() as u32).for_each(|i| self.frames.desc(Pfn(first.0 + i)).clear());
        self.release_run(first, order.nr_pages(), Content::Zero);
    }

    fn give_metadata_back(&self, mut chain: Chain) {
        while let Some((descs_at, blocks_at)) = self.frames.next_of(&mut chain) {
            self.release_reserved(descs_at, DESC_ORDER);
            self.release_reserved(blocks_at, BLOCK_ORDER);
        }
    }

    /// Removes whole sections, of which every frame is free. The caller counts the outcome.
    pub(crate) fn try_remove_memory(&self, range: &FrameRange) -> Result<(), RemoveMemoryRefusal> {
        let sections = sections_of(range).ok_or(RemoveMemoryRefusal::NotSections)?;
        let _lock = lock_word(LockKind::MemoryResize, &self.frames.resizes, &self.machine);
        self.are_present(range, sections)?;
        self.steal_caches();
        let blocks = blocks_of(range);
        self.claim_to_remove(blocks.start.0..blocks.end.0)?;
        self.finish_removal(range);
        Ok(())
    }

    /// Checks that all of the sections are there. Under the lock of resizes.
    fn are_present(&self, range: &FrameRange, mut sections: Range<usize>) -> Result<(), RemoveMemoryRefusal> {
        let are_there = range.end() <= self.nr_frames() && sections.all(|section| self.frames.is_present(section));
        if are_there { Ok(()) } else { Err(RemoveMemoryRefusal::NotThere) }
    }

    /// Removes sections of which the caller has claimed each frame. Under the lock of resizes.
    fn finish_removal(&self, range: &FrameRange) {
        let blocks = blocks_of(range);
        let frames = (range.first.0..).take(range.nr_frames as usize).map(Pfn);
        let mut pace = Pace::new(&self.machine);
        for pfn in frames {
            pace.step();
            self.reserve_frame(pfn, 0);
        }
        blocks.iter().for_each(|b| self.frames.blocks.at(b).mark(Class::Fixed));
        drop(pace);
        let sections = sections_of(range).into_iter().flatten();
        sections.for_each(|section| self.reserve_frame(first_desc_of(section), REMOVED));
        self.nr_total_pages.fetch_sub(range.nr_frames, Ordering::Relaxed);
        self.marks_follow();
        self.homes_go(blocks);
        ask::frames_removed(&self.machine, range);
    }

    /// Watermarks are a share of the memory that there is; the reserve is filled when memory is reclaimed next, and trimmed by
    /// the caller of a removal. Under the lock of resizes.
    fn marks_follow(&self) {
        let (nr_pages, tunables) = (self.nr_total_pages.load(Ordering::Relaxed), &self.tunables);
        // As at the beginning, of what has been asked for half of memory at most.
        let min_free = tunables.min_free_kbytes.map(|kbytes| kbytes.min(Watermarks::kbytes(nr_pages / 2)));
        let marks = Watermarks::of(nr_pages, min_free, tunables.watermark_scale_factor);
        self.frames.watch.set(&marks);
        self.frames.begin_round();
        self.frames.reserve.want(if tunables.keep_min { marks.min_pages } else { 0 });
    }

    /// Claims all frames of these blocks, or none. No search sees them meanwhile (I28).
    fn claim_to_remove(&self, blocks: Range<u32>) -> Result<(), RemoveMemoryRefusal> {
        let _held = self.hold();
        let mut pace = Pace::new(&self.machine);
        for b in blocks.clone().map(BlockId) {
            pace.step();
            let refusal = if self.frames.is_last_resort_active() {
                RemoveMemoryRefusal::LastResort
            } else if self.frames.blocks.at(b).claim_words(0..BLOCK_WORDS, !0) {
                self.count_taken(BLOCK_FRAMES);
                continue;
            } else {
                RemoveMemoryRefusal::InUse
            };
            (blocks.start..b.0).map(BlockId).for_each(|b| self.release_as_it_was(b));
            return Err(refusal);
        }
        Ok(())
    }

    /// Gives all frames of a block back that were claimed as they were: clean ones are clean.
    fn release_as_it_was(&self, b: BlockId) {
        for w in 0..BLOCK_WORDS {
            self.release_as_known((b, w), !0, self.frames.blocks.at(b).dirty[w].load(Ordering::Relaxed));
        }
    }
}

impl Frames {
    /// The descriptors' first frame and the blocks' of one in the chain, which is on its own then.
    fn next_of(&self, chain: &mut Chain) -> Option<(Pfn, Pfn)> {
        let descs_at = chain.0.get()?;
        let head = self.desc(descs_at);
        chain.0 = OptPfn::from_word(head.link.get());
        head.link.set(0);
        Some((descs_at, Pfn(head.index.get() as u32)))
    }
}

#[cfg(test)]
mod tests;
