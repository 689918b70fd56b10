//! All blocks of memory, and those of them that offer something.
//!
//! Locks on entry: none.

use super::Frames;
use super::block::{Block, BlockData};
use super::folio::FolioData;
use super::summary::{Kind, Summary};
use crate::addr::{BlockId, BlockRange, Pfn};
use crate::mem::FrameArray;

/// All blocks.
pub(crate) struct Blocks {
    pub(crate) data: FrameArray<BlockData>,
    pub(crate) summary: Summary,
}

impl Blocks {
    /// One of them.
    ///
    /// # Panics
    ///
    /// If there is none: numbers are checked where they come from outside.
    #[inline(always)]
    pub(crate) fn at(&self, b: BlockId) -> Block<'_> {
        Block { data: self.data.at(b.0 as usize), b, summary: &self.summary }
    }
    pub(crate) fn nr(&self) -> u64 {
        self.data.len() as u64
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = &BlockData> {
        self.data.iter()
    }
    /// The numbers of all.
    pub(crate) fn names(&self) -> BlockRange {
        BlockRange { start: BlockId(0), end: BlockId(self.nr() as u32) }
    }
    /// Those of some blocks that offer it, from `from` on and around. Each is looked up
    /// when it is asked for.
    pub(crate) fn offering(&self, kind: Kind, some: BlockRange, from: BlockId) -> impl Iterator<Item = BlockId> {
        let from = if some.contains(from) { from } else { some.start };
        let parts = [BlockRange { start: from, ..some }, BlockRange { end: from, ..some }];
        parts.into_iter().flat_map(move |mut part| {
            core::iter::from_fn(move || {
                let b = self.summary.first_in(kind, &part)?;
                part.start = BlockId(b.0 + 1);
                Some(b)
            })
            .filter(move |b| self.at(*b).offers(kind))
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
}

/// First of the 64 frames that word `w` of a block's bitmap describes.
pub(crate) const fn word_base(b: BlockId, w: usize) -> u64 {
    b.first_frame().0 as u64 + w as u64 * 64
}

impl Frames {
    /// The folio of the block that the frame lies in.
    #[inline]
    pub(crate) fn folio(&self, pfn: Pfn) -> &FolioData {
        &self.blocks.data.at(BlockId::of(pfn).0 as usize).folio
    }
}
