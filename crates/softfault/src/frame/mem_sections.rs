//! Memory sections of 128 MiB: where the descriptors and blocks of their frames are. Each section
//! has memory or is a hole.
//!
//! ```text
//! places of descriptors   a word per section ──▶ 32,768 descriptors, 256 frames
//! places of blocks        a word per section ──▶ 64 blocks
//! ```
//! Within a memory section both are dense. So finding a descriptor by frame number takes one load,
//! of a word that no CPU writes while the section exists. A hole has neither: 1 GiB at 512 GiB
//! costs the descriptors of 1 GiB, plus a word of each table and a row of the summaries for each
//! 128 MiB below it. If part of a section is a hole, the hole's frames have descriptors and are
//! reserved.
//!
//! A block of a hole looks like one whose frames are all in use (`no_memory`), so a pass over
//! blocks by number needs no check. It is never written: it offers nothing, so no CPU reserves it
//! or claims from it. Descriptors differ. The owner of a frame, or of an entry or slot that names
//! it, knows that the descriptor exists ([`desc`](Frames::desc)). For any other number
//! [`find_desc`](Frames::find_desc) checks, and its result lives as long as a read-side section.
//! Tails of a folio may have none: see `tail_descs.rs`.
//!
//! Source: Linux, `SPARSEMEM` (sections of 128 MiB on x86-64, `mem_section`).
//!
//! Locks on entry: none.

use super::Frames;
use super::block::BlockData;
use super::desc::FrameDesc;
use super::desc_frames::{DescFrames, place_of};
use crate::addr::{BLOCK_FRAMES, BlockId, BlockRange, Pfn};
use crate::mem::{Cursor, Near, Pieces};
use crate::section::InSection;

/// log2 of the blocks in a memory section. In loom's models it is one block: the words of 32,768 frames are too many.
pub(crate) const MEM_SECTION_BLOCK_SHIFT: u32 = if cfg!(softfault_sync = "loom") { 0 } else { 6 };
/// log2 of the frames in a memory section.
pub(crate) const MEM_SECTION_SHIFT: u32 = MEM_SECTION_BLOCK_SHIFT + BLOCK_FRAMES.ilog2();
/// Frames in a section.
pub(crate) const MEM_SECTION_FRAMES: u64 = 1 << MEM_SECTION_SHIFT;

/// The descriptors of all frames.
pub(crate) type Descs = Pieces<FrameDesc, MEM_SECTION_SHIFT>;
/// Descriptors of frames, most of which lie near each other.
pub(crate) struct DescCursor<'a> {
    frames: &'a Frames,
    descs: Cursor<'a, FrameDesc, MEM_SECTION_SHIFT>,
}
/// All blocks' data.
pub(crate) type BlockPieces = Pieces<BlockData, MEM_SECTION_BLOCK_SHIFT>;

/// Frames `start..end` of a section.
pub(crate) fn frames_of(section: usize) -> (u64, u64) {
    let first = (section as u64) << MEM_SECTION_SHIFT;
    (first, first + MEM_SECTION_FRAMES)
}

impl Frames {
    /// Returns the descriptor of a frame that is in use, or that the caller has claimed. Of a tail only within a
    /// section, or at rest: it may be one that stands for many.
    ///
    /// # Panics
    ///
    /// If there is none: numbers from outside go to [`find_desc`](Self::find_desc).
    #[inline(always)]
    pub(crate) fn desc(&self, pfn: Pfn) -> &FrameDesc {
        match self.descs.get(pfn.0 as usize) {
            Some(desc) => desc,
            None => self.desc_apart(pfn),
        }
    }

    /// The same, and where those of its neighbours are.
    #[inline(always)]
    pub(crate) fn desc_near(&self, pfn: Pfn) -> (&FrameDesc, Near<FrameDesc>) {
        self.descs.get_near(pfn.0 as usize).unwrap_or_else(|| self.desc_near_apart(pfn))
    }

    /// Those of adjacent frames of one block, where they lie beside each other.
    #[inline(always)]
    pub(crate) fn descs_from(&self, first: Pfn, nr: u64) -> Option<&[FrameDesc]> {
        self.descs.run(first.0 as usize, nr as usize)
    }

    /// The descriptor of a frame, if the number is one of the machine's memory. It is that frame's
    /// until the section ends.
    pub(crate) fn find_desc<'s>(&'s self, _inside: InSection<'s>, pfn: Pfn) -> Option<&'s FrameDesc> {
        self.find_desc_at_rest(pfn)
    }

    /// The same for callers that know that no folio of the block changes: at rest, or for a frame that the
    /// caller has claimed or that is metadata.
    pub(crate) fn find_desc_at_rest(&self, pfn: Pfn) -> Option<&FrameDesc> {
        self.descs.get(pfn.0 as usize).or_else(|| self.find_desc_apart(pfn))
    }

    /// Which frames have descriptors of the block.
    pub(super) fn desc_frames(&self, b: BlockId) -> &DescFrames {
        &self.blocks.at(b).data.folio.descs
    }

    /// The descriptor of a frame of a section that is apart.
    #[cold]
    #[inline(never)]
    fn find_desc_apart(&self, pfn: Pfn) -> Option<&FrameDesc> {
        let there = self.descs.get_in_place(pfn.0 as usize)?;
        let (quarter, offset) = place_of(pfn);
        let moved = self.desc_frames(BlockId::of(pfn)).get(quarter);
        Some(moved.map_or(there, |frame| self.map.view(frame, offset)))
    }

    #[cold]
    #[inline(never)]
    fn desc_apart(&self, pfn: Pfn) -> &FrameDesc {
        self.find_desc_apart(pfn).unwrap_or_else(|| no_desc(pfn))
    }

    /// Returns the descriptor, and a guess at those near it.
    #[cold]
    #[inline(never)]
    fn desc_near_apart(&self, pfn: Pfn) -> (&FrameDesc, Near<FrameDesc>) {
        let near = self.descs.find_near(pfn.0 as usize).unwrap_or_else(|| no_desc(pfn));
        (self.desc_apart(pfn), near)
    }

    /// The first section of which the two tables do not say the same, or do not lead to the next one
    /// that is there (I50).
    pub(crate) fn wrong_section(&self) -> Option<usize> {
        let mut next = None;
        (0..Descs::nr_pieces(self.descs.len())).rev().find(|p| {
            let is_there = self.descs.is_there(p << MEM_SECTION_SHIFT);
            next = if is_there { Some(*p) } else { next };
            is_there != self.blocks.is_there(BlockId((p << MEM_SECTION_BLOCK_SHIFT) as u32))
                || [self.descs.next_piece(*p), self.blocks.data.next_piece(*p)] != [next; 2]
        })
    }

    /// Whether the block lies in a deferred section.
    pub(crate) fn is_deferred(&self, b: BlockId) -> bool {
        self.descs.deferred((b.0 >> MEM_SECTION_BLOCK_SHIFT) as usize).is_some()
    }

    /// The numbers of all frames that have descriptors but 0, which names none.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = Pfn> + Clone + '_ {
        let first = |p: usize| p << MEM_SECTION_SHIFT;
        let pieces = core::iter::successors(self.descs.next_piece(0), |p| self.descs.next_piece(p + 1));
        let frames = pieces.flat_map(move |p| first(p)..first(p) + self.descs.len_of(p));
        frames.filter(|pfn| *pfn != 0).map(|pfn| Pfn(pfn as u32))
    }
}

impl<'a> DescCursor<'a> {
    pub(crate) fn over(frames: &'a Frames) -> DescCursor<'a> {
        DescCursor { frames, descs: Cursor::new(&frames.descs) }
    }

    /// As [`Frames::desc`], of a frame whose section stays, as do those of the frames before it. The
    /// entries that name them are the caller's, or the frames are: since before the first look, so that
    /// none of their descriptors has come to another place since.
    #[inline(always)]
    pub(crate) fn at(&mut self, pfn: Pfn) -> &'a FrameDesc {
        match self.descs.get(pfn.0 as usize) {
            Some(desc) => desc,
            None => self.frames.desc_apart(pfn),
        }
    }
}

#[cold]
#[inline(never)]
fn no_desc(pfn: Pfn) -> ! {
    panic!("{pfn:?}: should be a frame of the machine");
}

/// The numbers of the blocks of all sections that have memory, from section `first` on.
pub(crate) fn blocks_there(data: &BlockPieces, first: usize) -> impl Iterator<Item = BlockId> + '_ {
    let sections = core::iter::successors(data.next_piece(first), |p| data.next_piece(p + 1));
    sections.flat_map(|p| range_of(data, p).iter())
}

/// The blocks of a section.
pub(crate) fn range_of(data: &BlockPieces, section: usize) -> BlockRange {
    let start = (section << MEM_SECTION_BLOCK_SHIFT) as u32;
    BlockRange { start: BlockId(start), end: BlockId(start + data.len_of(section) as u32) }
}
