//! All blocks of memory, and searches for those that offer a kind.
//!
//! Locks on entry: none.

use super::Frames;
use super::block::{Block, BlockData};
use super::class::Class;
use super::folio::FolioData;
use super::mem_sections::{BlockPieces, MEM_SECTION_BLOCK_SHIFT, blocks_there};
use super::summary::{Kind, Summary};
use crate::addr::{BlockId, BlockRange, Pfn};

/// All blocks.
pub(crate) struct Blocks {
    pub(crate) data: BlockPieces,
    pub(crate) summary: Summary,
    /// Stands for each block of a hole: see `mem_sections`.
    no_memory: BlockData,
}

impl Blocks {
    pub(crate) fn new(data: BlockPieces, summary: Summary) -> Blocks {
        Blocks { data, summary, no_memory: BlockData::of_no_memory() }
    }

    /// One of them. A hole's has no free frame.
    #[inline(always)]
    pub(crate) fn at(&self, b: BlockId) -> Block<'_> {
        let data = self.data.get(b.0 as usize).unwrap_or(&self.no_memory);
        Block { data, b, summary: &self.summary }
    }
    /// Whether there is memory in its memory section.
    pub(crate) fn is_there(&self, b: BlockId) -> bool {
        self.data.get(b.0 as usize).is_some()
    }
    /// Whether there may be folios of files below 2 MiB. A block keeps the mark of their frames until it is wholly free.
    pub(crate) fn may_have_files(&self, b: BlockId) -> bool {
        self.is_there(b) && self.at(b).class() != Class::Movable
    }
    /// One past the highest.
    pub(crate) fn nr(&self) -> u64 {
        self.data.len() as u64
    }
    /// The numbers of those that are there.
    pub(crate) fn there(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.there_from(BlockId(0))
    }
    /// Returns those from `b` on.
    pub(crate) fn there_from(&self, b: BlockId) -> impl Iterator<Item = BlockId> + '_ {
        let first = (b.0 >> MEM_SECTION_BLOCK_SHIFT) as usize;
        blocks_there(&self.data, first).skip_while(move |there| *there < b)
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = &BlockData> {
        self.there().map(|b| self.at(b).data)
    }
    /// Whether the block that stands for holes is unchanged.
    pub(crate) fn are_holes_unwritten(&self) -> bool {
        self.no_memory.is_of_no_memory()
    }
    /// The numbers of all, holes included.
    pub(crate) fn names(&self) -> BlockRange {
        BlockRange { start: BlockId(0), end: BlockId(self.nr() as u32) }
    }
    /// Those of some blocks that offer a kind, from `from` on and wrapping around. Each is looked
    /// up lazily.
    pub(crate) fn offering(&self, kind: Kind, some: BlockRange, from: BlockId) -> impl Iterator<Item = BlockId> {
        self.named(kind, some, from).filter(move |b| self.at(*b).offers(kind))
    }

    /// Those that the summaries name, which may be outdated, in the same order. No block is looked at.
    pub(crate) fn named(&self, kind: Kind, some: BlockRange, from: BlockId) -> impl Iterator<Item = BlockId> {
        let from = if some.contains(from) { from } else { some.start };
        let parts = [BlockRange { start: from, ..some }, BlockRange { end: from, ..some }];
        parts.into_iter().flat_map(move |mut part| {
            core::iter::from_fn(move || {
                let b = self.summary.first_in(kind, &part)?;
                part.start = BlockId(b.0 + 1);
                Some(b)
            })
        })
    }
    /// Those that offer one of two, in order.
    pub(crate) fn offering_either(
        &self,
        kind: Kind,
        other: Option<Kind>,
        some: BlockRange,
    ) -> impl Iterator<Item = BlockId> {
        let offering = move |kind| self.offering(kind, some, some.start);
        let mut a = offering(kind).peekable();
        let mut b = other.into_iter().flat_map(offering).peekable();
        core::iter::from_fn(move || match (a.peek(), b.peek()) {
            (Some(first), Some(second)) if second < first => b.next(),
            (Some(_), _) => a.next(),
            (None, _) => b.next(),
        })
    }
    /// The same as `offering`, from the end on.
    pub(crate) fn offering_last(&self, kind: Kind, mut some: BlockRange) -> impl Iterator<Item = BlockId> {
        core::iter::from_fn(move || {
            some.end = self.summary.last_in(kind, &some)?;
            Some(some.end)
        })
        .filter(move |b| self.at(*b).offers(kind))
    }
    /// Number `n`, where the first one follows the last.
    pub(crate) fn around(&self, n: u64) -> BlockId {
        BlockId((n % self.nr()) as u32)
    }
    /// How many blocks lie between `b` and the next one that is there; 0 if it is there itself.
    pub(crate) fn distance(&self, b: BlockId) -> u64 {
        let next = self.data.next_piece((b.0 >> MEM_SECTION_BLOCK_SHIFT) as usize);
        let next = next.map_or(self.nr(), |section| (section as u64) << MEM_SECTION_BLOCK_SHIFT);
        next.saturating_sub(b.0.into())
    }
}

/// First of the 64 frames that word `w` of a block's bitmap describes.
pub(crate) const fn word_base(b: BlockId, w: usize) -> u64 {
    b.first_frame().0 as u64 + w as u64 * 64
}

impl Frames {
    /// The folio of the block that the frame lies in.
    #[inline]
    pub(crate) fn folio(&self, pfn: Pfn) -> &FolioData {
        &self.blocks.at(BlockId::of(pfn)).data.folio
    }
}
