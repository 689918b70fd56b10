//! The initial layout of metadata: which memory sections have some, and the adjacent frames that it
//! takes.
//!
//! ```text
//! descriptors of the sections that are there │ their blocks │ data of CPUs │ summaries, and the
//! words that say where the first two lie │ slots of the swap area │ mutexes of faults on pages of pools │ zero frame
//! ```
//! Memory sections that the metadata fills are treated as holes: nobody reads the descriptor of a
//! metadata frame. That saves 66 MB of descriptors that say "reserved" per terabyte.
//!
//! Locks on entry: none; there is no `Vm` yet.

use super::NewVmError;
use crate::addr::{BLOCK_FRAMES, BlockId, BlockRange, Pfn};
use crate::base::HugetlbMutex;
use crate::cpu::CpuData;
use crate::frame::lay_out::{
    BLOCK_FRAMES_PER_MEM_SECTION, BLOCKS_IN_FRAMES_OF_MEM_SECTION, DESC_FRAMES_PER_MEM_SECTION,
};
use crate::frame::mem_sections::{MEM_SECTION_BLOCK_SHIFT, MEM_SECTION_FRAMES, frames_of};
use crate::frame::{BlockData, BlockPieces, Blocks, Content, DeferredSections, Descs, FrameDesc, Summary};
use crate::machine::{FrameRange, Machine};
use crate::mem::{self, FrameArray};
use crate::swap::area::SlotData;
use crate::sync::Word;
use core::ops::Range;

/// Number of the parts in the picture of the module.
const NR_PARTS: usize = 7;
/// Sections of memory that is not zero of which the metadata is written at the beginning: 2 GiB. A guess.
const NR_AT_ONCE: usize = 16;

/// How many there are of what does not depend on memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    pub(super) cpus: usize,
    pub(super) swap_slots: usize,
    pub(super) hugetlb_mutexes: usize,
}

#[derive(Debug)]
pub(super) struct Layout {
    /// One past the highest frame.
    nr_frames: u64,
    lengths: Lengths,
    /// Sections that are wholly metadata.
    filled: Range<usize>,
    /// Frames of each part.
    nr_of: [u64; NR_PARTS],
    /// All parts.
    pub(super) meta: FrameRange,
}

impl Layout {
    /// Finds the first range with room.
    pub(super) fn of(ranges: &[FrameRange], nr_frames: u64, lengths: Lengths) -> Result<Layout, NewVmError> {
        let nr_sections = nr_frames.div_ceil(MEM_SECTION_FRAMES) as usize;
        let nr_there = (0..nr_sections).filter(|section| has_memory(ranges, *section)).count();
        let nr_of = |nr_filled: usize| parts(nr_frames, lengths, nr_there - nr_filled);
        let nr_most: u64 = nr_of(0).iter().sum();
        let home = ranges.iter().find(|r| r.nr_frames > nr_most);
        let first = home.ok_or(NewVmError::NoRoom { nr_frames: nr_most })?.first;
        // The zero frame, which comes last, has a descriptor.
        let filled_by = |nr_meta: u64| {
            let start = u64::from(first.0).div_ceil(MEM_SECTION_FRAMES) as usize;
            start..((u64::from(first.0) + nr_meta - 1) / MEM_SECTION_FRAMES).max(start as u64) as usize
        };
        // The more sections are deferred, the less metadata there is to fill them.
        let mut filled = filled_by(nr_most);
        loop {
            let nr_of = nr_of(filled.len());
            let meta = FrameRange { first, nr_frames: nr_of.iter().sum() };
            let now = filled_by(meta.nr_frames);
            if now.len() >= filled.len() {
                return Ok(Layout { nr_frames, lengths, filled, nr_of, meta });
            }
            filled = now;
        }
    }

    fn nr_sections(&self) -> usize {
        Descs::nr_pieces(self.nr_frames as usize)
    }

    fn nr_blocks(&self) -> usize {
        self.nr_frames.div_ceil(BLOCK_FRAMES) as usize
    }

    /// First frame of a part.
    fn at(&self, part: usize) -> Pfn {
        Pfn(self.meta.first.0 + self.nr_of[..part].iter().sum::<u64>() as u32)
    }

    pub(super) fn zero(&self) -> Pfn {
        self.at(6)
    }

    pub(super) fn swap_slots<M: Machine>(&self, machine: &M) -> FrameArray<SlotData> {
        FrameArray::over(machine, self.at(4), 0, self.lengths.swap_slots)
    }

    pub(super) fn hugetlb_mutexes<M: Machine>(&self, machine: &M) -> FrameArray<HugetlbMutex> {
        FrameArray::over(machine, self.at(5), 0, self.lengths.hugetlb_mutexes)
    }

    pub(super) fn cpus<M: Machine>(&self, machine: &M) -> FrameArray<CpuData> {
        FrameArray::over(machine, self.at(2), 0, self.lengths.cpus)
    }

    /// Whether a section is deferred where memory is not zero: all of it is free, and others come first.
    fn is_for_later(&self, ranges: &[FrameRange], section: usize, rank: usize) -> bool {
        let (first, end) = frames_of(section);
        let is_meta = u64::from(self.meta.first.0) < end && first < self.meta.end();
        let is_all_in = |r: &FrameRange| u64::from(r.first.0) <= first && end <= r.end();
        rank >= NR_AT_ONCE && !is_meta && ranges.iter().any(is_all_in)
    }

    /// The sections that have descriptors, or will have.
    fn there(&self, ranges: &[FrameRange]) -> impl DoubleEndedIterator<Item = usize> + Clone {
        (0..self.nr_sections()).filter(move |section| has_memory(ranges, *section) && !self.filled.contains(section))
    }

    /// Zeroes the metadata, but for that of deferred sections.
    pub(super) fn zero_metadata<M: Machine>(&self, machine: &M) {
        let ranges = machine.frames();
        for (rank, section) in self.there(ranges).enumerate() {
            if self.is_for_later(ranges, section, rank) {
                continue;
            }
            let nr_in_section = [DESC_FRAMES_PER_MEM_SECTION, BLOCK_FRAMES_PER_MEM_SECTION].map(u64::from);
            for (part, nr) in nr_in_section.into_iter().enumerate() {
                let first = rank as u64 * nr;
                // The last section may end early.
                let nr = nr.min(self.nr_of[part] - first);
                mem::zero_frames(machine, Pfn((u64::from(self.at(part).0) + first) as u32), nr);
            }
        }
        (2..NR_PARTS).for_each(|part| mem::zero_frames(machine, self.at(part), self.nr_of[part]));
    }

    /// Sections whose turn has not come.
    pub(super) fn deferred(&self, descs: &Descs) -> DeferredSections {
        let nr = (0..self.nr_sections()).filter(|section| descs.deferred(*section).is_some()).count();
        DeferredSections::new(nr, self.at(0), self.at(1))
    }

    /// Descriptors and blocks, which are zeroes.
    pub(super) fn sections<M: Machine>(&self, machine: &M, content: Content) -> (Descs, Blocks) {
        let (nr_sections, nr_blocks) = (self.nr_sections(), self.nr_blocks());
        let is_there = |section: usize| has_memory(machine.frames(), section) && !self.filled.contains(&section);
        let nr_there = (0..nr_sections).filter(|section| is_there(*section)).count();
        let (nr_descs, nr_block_data) = in_sections(self.nr_frames, nr_there);
        let all_descs = FrameArray::<FrameDesc>::over(machine, self.at(0), 0, nr_descs);
        let all_blocks = FrameArray::<BlockData>::over(machine, self.at(1), 0, nr_block_data);
        let after = Summary::bytes_for(nr_blocks as u32, self.lengths.cpus);
        let places = FrameArray::<Word>::over(machine, self.at(3), after, 2 * nr_sections);
        let descs = Descs::over(places.part(0, nr_sections), self.nr_frames as usize);
        let data = BlockPieces::over(places.part(nr_sections, nr_sections), nr_blocks);
        let summary = Summary::over(machine, self.at(3), nr_blocks as u32, self.lengths.cpus);
        let (mut rank, mut next) = (nr_there, nr_sections);
        for section in (0..nr_sections).rev() {
            if !is_there(section) {
                descs.leave_out(section, next);
                data.leave_out(section, next);
                continue;
            }
            rank -= 1;
            if content == Content::Unknown && self.is_for_later(machine.frames(), section, rank) {
                descs.leave_for_later(section, next, rank);
                data.leave_for_later(section, next, rank);
                continue;
            }
            descs.put(section, &all_descs.part(rank << MEM_SECTION_FRAMES.ilog2(), descs.len_of(section)));
            data.put(section, &all_blocks.part(rank * BLOCKS_IN_FRAMES_OF_MEM_SECTION, data.len_of(section)));
            leave_out(&summary, section + 1..next);
            next = section;
        }
        leave_out(&summary, 0..next);
        (descs, Blocks::new(data, summary))
    }
}

/// Whether some of a section is memory.
fn has_memory(ranges: &[FrameRange], section: usize) -> bool {
    let (first, end) = frames_of(section);
    ranges.iter().any(|r| u64::from(r.first.0) < end && first < r.end())
}

/// The summaries learn of a hole.
fn leave_out(summary: &Summary, sections: Range<usize>) {
    let [start, end] =
        [sections.start, sections.end].map(|section| BlockId((section << MEM_SECTION_BLOCK_SHIFT) as u32));
    let end = end.min(BlockId(summary.nr_places()));
    if start < end {
        summary.leave_out(&BlockRange { start, end });
    }
}

/// Numbers of descriptors and blocks for which so many sections have room, among them the last, which may end early.
fn in_sections(nr_frames: u64, nr_there: usize) -> (usize, usize) {
    let nr_missing = nr_frames.next_multiple_of(MEM_SECTION_FRAMES) - nr_frames;
    let nr_descs = nr_there as u64 * MEM_SECTION_FRAMES - nr_missing;
    let nr_blocks = nr_there * BLOCKS_IN_FRAMES_OF_MEM_SECTION - (nr_missing / BLOCK_FRAMES) as usize;
    (nr_descs as usize, nr_blocks)
}

/// Frames of each part, with so many sections.
fn parts(nr_frames: u64, lengths: Lengths, nr_there: usize) -> [u64; NR_PARTS] {
    let (nr_descs, nr_block_data) = in_sections(nr_frames, nr_there);
    let nr_places = 2 * nr_frames.div_ceil(MEM_SECTION_FRAMES) as usize;
    let words_of_summary =
        Summary::bytes_for(nr_frames.div_ceil(BLOCK_FRAMES) as u32, lengths.cpus) / size_of::<Word>();
    [
        FrameArray::<FrameDesc>::frames_for(nr_descs),
        FrameArray::<BlockData>::frames_for(nr_block_data),
        FrameArray::<CpuData>::frames_for(lengths.cpus),
        FrameArray::<Word>::frames_for(words_of_summary + nr_places),
        FrameArray::<SlotData>::frames_for(lengths.swap_slots),
        FrameArray::<HugetlbMutex>::frames_for(lengths.hugetlb_mutexes),
        1,
    ]
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
