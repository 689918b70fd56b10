//! Folios of 2 MiB whose tails have no descriptors: 3 of the 4 frames that the descriptors of a block
//! take are free memory meanwhile.
//!
//! ```text
//! drop     no entry names the folio ─▶ the block names the zero frame in place of the 3 frames ─▶ its section
//!          is apart ─▶ grace ─▶ the frames are free
//! whole    3 frames (may fail) ─▶ zeroed ─▶ the block names them
//! ```
//! Tails are never written, so that all of their descriptors look the same (`object_folio.rs`). The zero
//! frame is 128 such descriptors: whoever looks a tail up reads there what it read before. So no reader of
//! descriptors has to ask first whether there are any, and nothing is to be told when they come back.
//!
//! A lookup finds the word of its section apart and looks at the block. That costs two lines, for all
//! frames of such a section and for no others. A section stays apart for good: where the frames that come
//! back are others than those that went, this is where they are looked for.
//!
//! | who reads descriptors of tails | why they are there |
//! | --- | --- |
//! | whoever read the entry, slot or number in a section | the grace period |
//! | a remover that owns the entry | tail descriptors are dropped when no entry names the folio, after a wait for owned ones |
//! | the holder of a pin | it does not: the bitmap of tails says what the head is |
//!
//! Source: Linux, `mm/hugetlb_vmemmap.c`, which maps the pages of tails to one page.
//!
//! Locks on entry: none.

use super::desc_frames::{DESCS_PER_FRAME, NR_QUARTERS, place_of};
use super::mem_sections::MEM_SECTION_SHIFT;
use super::{Class, Content, Fill, FrameKind, Frames, Memory, OutOfFrames};
use crate::addr::{BLOCK_FRAMES, BlockId, Order, Pfn};
use crate::machine::Machine;
use crate::mem;
use crate::sync::Ordering;

/// Of the frames that the descriptors of a block take, the ones that have those of tails alone.
pub(crate) const NR_OF_TAILS: usize = NR_QUARTERS - 1;

/// Frames that had the descriptors of a folio's tails. Nobody finds them any more; those who have are
/// still there.
#[must_use]
pub(crate) struct FormerDescs([Pfn; NR_OF_TAILS]);

/// Frames of zeroes that are the caller's alone, to have them again.
pub(crate) type DescSpares = [Pfn; NR_OF_TAILS];

/// What the descriptor of such a frame has as its owner: no section that was removed has that.
fn owner_of(b: BlockId, quarter: usize) -> u64 {
    (u64::from(b.first_frame().0) + quarter as u64 * DESCS_PER_FRAME) * 2
}

impl Frames {
    /// Whether the tails of the folio that fills the block have no descriptors.
    pub(crate) fn lacks_tail_descs(&self, b: BlockId) -> bool {
        self.desc_frames(b).get(NR_OF_TAILS) == Some(self.zero)
    }

    /// The frame that has the descriptors of a quarter where the section has them; `None` if it has no
    /// descriptor itself.
    fn frame_in_place(&self, b: BlockId, quarter: usize) -> Option<Pfn> {
        let first = (u64::from(b.first_frame().0) + quarter as u64 * DESCS_PER_FRAME) as usize;
        let pfn = self.map.frame_at(self.descs.find_near(first)?.place_of(first));
        self.descs.is_there(pfn.0 as usize).then_some(pfn)
    }

    /// Nobody finds the descriptors of these tails from now on, but who is in a section. No entry names the
    /// folio, which fills the block and is the caller's to change. `None` if they lie in frames without
    /// descriptors, which nobody could have.
    pub(crate) fn drop_tail_descs(&self, b: BlockId) -> Option<FormerDescs> {
        let frames = self.desc_frames(b);
        let mut former = FormerDescs([self.zero; NR_OF_TAILS]);
        for (i, pfn) in former.0.iter_mut().enumerate() {
            *pfn = frames.get(i + 1).or_else(|| self.frame_in_place(b, i + 1))?;
        }
        // The last one says that all are.
        (1..NR_QUARTERS).for_each(|quarter| frames.set(quarter, self.zero));
        // After them: who finds it apart finds them.
        self.descs.take_apart((b.first_frame().0 >> MEM_SECTION_SHIFT) as usize);
        Some(former)
    }

    /// Writes what that of a private page looks like where the descriptor of a tail was.
    #[cfg(any(test, feature = "hooks"))]
    pub(crate) fn overwrite_former(&self, former: &FormerDescs, tail: Pfn) {
        let (quarter, offset) = place_of(tail);
        if let Some(frame) = quarter.checked_sub(1).and_then(|i| former.0.get(i)) {
            self.map.view::<super::FrameDesc>(*frame, offset).assign(FrameKind::Anon, 1, 0, 0);
        }
    }

    /// I51 of a block: its descriptors are in frames that are reserved for them, or those of a folio's
    /// tails are nowhere. The first frame for which that is not so.
    pub(crate) fn wrong_descs(&self, b: BlockId) -> Option<Pfn> {
        let is_apart = self.descs.is_apart((b.first_frame().0 >> MEM_SECTION_SHIFT) as usize);
        let frames = self.desc_frames(b);
        (0..NR_QUARTERS).find_map(|quarter| {
            let is_right = match frames.get(quarter) {
                None => true,
                Some(_) if !is_apart => false,
                Some(pfn) if pfn == self.zero => quarter > 0 && self.lacks_tail_descs(b) && self.is_filled_by_folio(b),
                Some(pfn) => quarter > 0 && !self.lacks_tail_descs(b) && self.has_descs_of(pfn) == Some((b, quarter)),
            };
            (!is_right).then_some(Pfn(b.first_frame().0 + (quarter as u64 * DESCS_PER_FRAME) as u32))
        })
    }

    fn is_filled_by_folio(&self, b: BlockId) -> bool {
        let head = self.desc(b.first_frame()).state();
        head.kind() == FrameKind::Shared && head.order() >= Order::PMD
    }

    /// The quarter of which the frame has the descriptors, if it says that it has some that came back.
    fn has_descs_of(&self, pfn: Pfn) -> Option<(BlockId, usize)> {
        let desc = self.desc(pfn);
        let owner = desc.owner.get();
        let is_one = desc.state().kind() == FrameKind::Reserved
            && owner > 0
            && owner.is_multiple_of(2)
            && self.blocks.at(BlockId::of(pfn)).class() == Class::Fixed;
        let (first, quarter) = (Pfn((owner / 2) as u32), place_of(Pfn((owner / 2) as u32)).0);
        is_one.then(|| (BlockId::of(first), quarter))
    }

    /// I51 of a frame: what says that it has descriptors of a block is named by it.
    pub(crate) fn is_lost_of_descs(&self, pfn: Pfn) -> bool {
        self.has_descs_of(pfn).is_some_and(|(b, quarter)| self.desc_frames(b).get(quarter) != Some(pfn))
    }
}

impl<M: Machine> Memory<M> {
    /// The frames are free memory from now on; their number. The sections are over that had found them.
    pub(crate) fn free_former_descs(&self, former: &FormerDescs) -> u64 {
        self.nr_total_pages.fetch_add(NR_OF_TAILS as u64, Ordering::Relaxed);
        for pfn in former.0 {
            self.frames.desc(pfn).clear();
            // Of the descriptors in it only the states are known to be zero.
            self.release_one(pfn, Content::Unknown);
        }
        NR_OF_TAILS as u64
    }

    /// Frames for the descriptors of a folio's tails, for a holder; all or none.
    pub(crate) fn desc_spares(
        &self,
        get: &mut dyn FnMut() -> Result<Pfn, OutOfFrames>,
    ) -> Result<DescSpares, OutOfFrames> {
        let mut spares = [Pfn(0); NR_OF_TAILS];
        for i in 0..NR_OF_TAILS {
            match get() {
                Ok(pfn) => spares[i] = pfn,
                Err(lack) => {
                    spares[..i].iter().for_each(|pfn| self.give_back(*pfn, Fill::Fixed));
                    return Err(lack);
                }
            }
        }
        Ok(spares)
    }

    /// The same without a wait, for callers who may hold frames.
    pub(crate) fn desc_spares_if_free(&self) -> Result<DescSpares, OutOfFrames> {
        if self.frames.is_frozen() {
            return Err(OutOfFrames::Frame);
        }
        let _held = self.hold();
        let source = self.source();
        self.desc_spares(&mut || source.frame(Fill::Fixed))
    }

    /// The tails have descriptors again. The folio is the caller's to change.
    pub(crate) fn make_whole(&self, b: BlockId, spares: &DescSpares) {
        for (i, pfn) in spares.iter().enumerate() {
            self.frames.desc(*pfn).assign(FrameKind::Reserved, 0, owner_of(b, i + 1), 0);
            self.frames.desc_frames(b).set(i + 1, *pfn);
        }
        self.nr_total_pages.fetch_sub(NR_OF_TAILS as u64, Ordering::Relaxed);
    }

    /// The folio is about to be given back, and the caller's alone: that cannot fail. Where no frame is
    /// free its own last ones become descriptors. How many of them stay in use.
    pub(super) fn make_whole_at_end(&self, b: BlockId) -> u64 {
        if let Ok(spares) = self.desc_spares_if_free() {
            self.make_whole(b, &spares);
            return 0;
        }
        let first = Pfn(b.first_frame().0 + (BLOCK_FRAMES - NR_OF_TAILS as u64) as u32);
        mem::zero_frames(&self.machine, first, NR_OF_TAILS as u64);
        self.frames.blocks.at(b).mark(Class::Fixed);
        // Those of the frames are in the last of them.
        let own: DescSpares = core::array::from_fn(|i| Pfn(first.0 + i as u32));
        self.make_whole_of_own(b, &own);
        NR_OF_TAILS as u64
    }

    fn make_whole_of_own(&self, b: BlockId, own: &DescSpares) {
        own.iter().enumerate().for_each(|(i, pfn)| self.frames.desc_frames(b).set(i + 1, *pfn));
        self.make_whole(b, own);
    }
}
