//! Folios of 2 MiB whose tails have no descriptors: 3 of the 4 frames that the descriptors of a block
//! take are free memory meanwhile. Of one of 1 GiB it is all 4 of the blocks behind the first: 2,047 of 2,048.
//!
//! ```text
//! drop     no entry names the folio ─▶ the block names the zero frame in place of the 3 frames ─▶ its section
//!          is apart ─▶ grace ─▶ the frames are free
//! whole    3 frames (may fail) ─▶ zeroed ─▶ the block names them
//! ```
//! Tails are never written, so that all of their descriptors look the same (`object_folio.rs`). The zero
//! frame is 128 such descriptors: a CPU that looks a tail up reads there what it read before. So no reader of
//! descriptors has to ask first whether there are any, and nothing is to be told when they come back.
//!
//! A lookup finds the word of its section apart and looks at the block. That costs two lines, for all
//! frames of such a section and for no others. A section stays apart for ever: where the frames that come
//! back are others than those that went, this is where they are looked for.
//!
//! | who reads descriptors of tails | why they are there |
//! | --- | --- |
//! | a CPU that read the entry, slot or number in a section | the grace period |
//! | a remover that owns the entry | tail descriptors are dropped when no entry names the folio, after a wait for owned ones |
//! | the holder of a pin | it does not: the bitmap of tails says what the head is |
//!
//! A page of a pool loses those of its tails when it comes to the pool, where nobody names it, and has them again before it
//! leaves (`pool_counts.rs`). It has none while it is used: it is
//! not cut, and moves to a page that has none either (`pool_target.rs`).
//!
//! Source: Linux, `mm/hugetlb_vmemmap.c`, which maps the pages of tails to one page.
//!
//! Locks on entry: none.

use super::desc_frames::{DESCS_PER_FRAME, NR_QUARTERS, place_of};
use super::frame_list::FrameList;
use super::mem_sections::MEM_SECTION_SHIFT;
use super::{Class, Content, Fill, FrameKind, Frames, Memory, OutOfFrames};
use crate::addr::{BLOCK_FRAMES, BlockId, Order, Pfn};
use crate::machine::Machine;
use crate::mem;
use crate::pace::Pace;
use crate::sync::Ordering;
use core::ops::Range;

/// Returns how many of the frames with the descriptors of a folio of whole blocks have descriptors of tails alone.
pub(crate) fn nr_frames_of_tails(order: Order) -> u64 {
    order.nr_pages() / DESCS_PER_FRAME - 1
}

/// The owner in the descriptor of such a frame. No section that was removed has this value.
fn owner_of(b: BlockId, quarter: usize) -> u64 {
    (u64::from(b.first_frame().0) + quarter as u64 * DESCS_PER_FRAME) * 2
}

impl Frames {
    /// Whether the tails of the folio that fills the block have no descriptors.
    pub(crate) fn lacks_tail_descs(&self, b: BlockId) -> bool {
        self.desc_frames(b).get(NR_QUARTERS - 1) == Some(self.zero)
    }

    /// The frame that has the descriptors of a quarter where the section has them; `None` if it has no
    /// descriptor itself.
    fn frame_in_place(&self, b: BlockId, quarter: usize) -> Option<Pfn> {
        let first = (u64::from(b.first_frame().0) + quarter as u64 * DESCS_PER_FRAME) as usize;
        let pfn = self.map.frame_at(self.descs.find_near(first)?.place_of(first));
        self.descs.is_there(pfn.0 as usize).then_some(pfn)
    }

    /// The quarters of a block that have descriptors of tails alone: all, if its first frame is one. Of a page that is
    /// free in its pool no frame is marked as a tail.
    fn tail_quarters(&self, b: BlockId) -> Range<usize> {
        let is_behind = self.is_tail(b.first_frame()) || self.blocks.at(b).is_behind_in_pool(b);
        usize::from(!is_behind)..NR_QUARTERS
    }

    /// The frame that has the descriptors of a quarter. `None` if that has no descriptor itself: nobody could have it.
    fn desc_frame(&self, b: BlockId, quarter: usize) -> Option<Pfn> {
        self.desc_frames(b).get(quarter).or_else(|| self.frame_in_place(b, quarter))
    }

    fn drop_tail_descs_of(&self, b: BlockId, former: &mut FrameList) {
        for quarter in self.tail_quarters(b) {
            if let Some(pfn) = self.desc_frame(b, quarter) {
                former.push(self, pfn);
            }
            // The last one says that all are.
            self.desc_frames(b).set(quarter, self.zero);
        }
        // After them: a CPU that finds it apart finds them.
        self.descs.take_apart((b.first_frame().0 >> MEM_SECTION_SHIFT) as usize);
    }

    /// Where the descriptor of a tail is, if it is in a frame that may go.
    #[cfg(any(test, feature = "hooks"))]
    pub(crate) fn place_of_tail(&self, tail: Pfn) -> Option<(Pfn, usize)> {
        let (quarter, offset) = place_of(tail);
        let b = BlockId::of(tail);
        let frame = self.tail_quarters(b).contains(&quarter).then(|| self.desc_frame(b, quarter))??;
        Some((frame, offset))
    }

    /// Writes what that of a private page looks like where the descriptor of a tail was.
    #[cfg(any(test, feature = "hooks"))]
    pub(crate) fn overwrite_former(&self, (frame, offset): (Pfn, usize)) {
        self.map.view::<super::FrameDesc>(frame, offset).assign(FrameKind::Anon, 1, 0, 0);
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
                Some(pfn) if pfn == self.zero => {
                    self.tail_quarters(b).contains(&quarter) && self.lacks_tail_descs(b) && self.is_filled_by_folio(b)
                }
                // The first one may have come back alone, of a page of 2 MiB that was a part of 1 GiB.
                Some(pfn) => {
                    let may_be_there = !self.lacks_tail_descs(b) || !self.tail_quarters(b).contains(&quarter);
                    may_be_there && self.has_descs_of(pfn) == Some((b, quarter))
                }
            };
            (!is_right).then_some(Pfn(b.first_frame().0 + (quarter as u64 * DESCS_PER_FRAME) as u32))
        })
    }

    fn is_filled_by_folio(&self, b: BlockId) -> bool {
        if self.blocks.at(b).is_in_pool() {
            return true;
        }
        let head = self.desc(self.head(b.first_frame())).state();
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
    /// Hides the descriptors of the tails of a folio of whole blocks: only open sections still find them. Returns the
    /// frames that had them. No entry names the folio, and the caller may change it. `None` if some lie in frames
    /// without descriptors.
    pub(crate) fn drop_tail_descs(&self, first: Pfn, order: Order) -> Option<FrameList> {
        let mut former = FrameList::EMPTY;
        self.drop_tail_descs_into(first, order, &mut former).then_some(former)
    }

    /// Does the same, and adds the frames to others.
    pub(super) fn drop_tail_descs_into(&self, first: Pfn, order: Order, former: &mut FrameList) -> bool {
        let (frames, mut have_all) = (&self.frames, true);
        self.for_each_block(first, order, &mut |b| {
            have_all &= frames.tail_quarters(b).all(|quarter| frames.desc_frame(b, quarter).is_some());
        });
        if have_all {
            self.for_each_block(first, order, &mut |b| frames.drop_tail_descs_of(b, former));
        }
        have_all
    }

    /// Frees the frames, and returns their number. The sections that had found them are over.
    pub(crate) fn free_former_descs(&self, mut former: FrameList) -> u64 {
        let nr = former.nr();
        self.nr_total_pages.fetch_add(nr, Ordering::Relaxed);
        let mut pace = Pace::new(&self.machine);
        while let Some(pfn) = former.pop(&self.frames) {
            pace.step();
            self.frames.desc(pfn).clear();
            // Of the descriptors in it only the states are known to be zero.
            self.release_one(pfn, Content::Unknown);
        }
        nr
    }

    /// Gives the tails of a folio descriptors in frames that had those of another one of its size, where it has none; else frees the
    /// frames. Those descriptors were of free frames, so their states are zero, and nothing else is known of them. The
    /// sections that had found them are over. The caller may change the folio.
    pub(super) fn hand_over_descs(&self, mut former: FrameList, first: Pfn, order: Order) {
        if !self.frames.lacks_tail_descs(BlockId::of(first)) {
            self.free_former_descs(former);
            return;
        }
        // Nobody had counted them.
        self.nr_total_pages.fetch_add(former.nr(), Ordering::Relaxed);
        let (mut spares, mut pace) = (FrameList::EMPTY, Pace::new(&self.machine));
        while let Some(pfn) = former.pop(&self.frames) {
            pace.step();
            self.frames.blocks.at(BlockId::of(pfn)).mark(Class::Fixed);
            self.frames.desc(pfn).assign(FrameKind::Reserved, 0, 0, 0);
            spares.push(&self.frames, pfn);
        }
        drop(pace);
        self.make_whole(first, order, &mut spares);
        debug_assert_eq!(spares.nr(), 0, "I51: as many as it lacks");
    }

    /// Frames of zeroes for so many descriptors of a folio's tails, for a holder; all or none.
    pub(crate) fn desc_spares(
        &self,
        nr: u64,
        get: &mut dyn FnMut() -> Result<Pfn, OutOfFrames>,
    ) -> Result<FrameList, OutOfFrames> {
        let mut spares = FrameList::EMPTY;
        let mut pace = Pace::new(&self.machine);
        for _ in 0..nr {
            pace.step();
            match get() {
                Ok(pfn) => {
                    self.frames.desc(pfn).assign(FrameKind::Reserved, 0, 0, 0);
                    spares.push(&self.frames, pfn);
                }
                Err(lack) => {
                    self.give_back_spares(spares);
                    return Err(lack);
                }
            }
        }
        Ok(spares)
    }

    pub(crate) fn give_back_spares(&self, mut spares: FrameList) {
        let mut pace = Pace::new(&self.machine);
        while let Some(pfn) = spares.pop(&self.frames) {
            pace.step();
            self.give_back(pfn, Fill::Fixed);
        }
    }

    /// The same without a wait, for callers that may hold frames.
    pub(super) fn desc_spares_if_free(&self, nr: u64) -> Result<FrameList, OutOfFrames> {
        if self.frames.is_frozen() {
            return Err(OutOfFrames::Frame);
        }
        let _held = self.hold();
        let source = self.source();
        self.desc_spares(nr, &mut || source.frame(Fill::Fixed))
    }

    /// Gives the tails of a folio of whole blocks descriptors again, in as many frames as they take. The caller may
    /// change the folio.
    pub(crate) fn make_whole(&self, first: Pfn, order: Order, spares: &mut FrameList) {
        self.for_each_block(first, order, &mut |b| self.make_block_whole(b, spares));
    }

    /// Does the same, if there are such frames. For callers that may hold others.
    pub(crate) fn make_whole_if_free(&self, first: Pfn, order: Order) -> Result<(), OutOfFrames> {
        let mut spares = self.desc_spares_if_free(nr_frames_of_tails(order))?;
        self.make_whole(first, order, &mut spares);
        Ok(())
    }

    fn make_block_whole(&self, b: BlockId, spares: &mut FrameList) {
        self.frames.tail_quarters(b).for_each(|quarter| self.make_quarter_whole(b, quarter, spares));
    }

    fn make_quarter_whole(&self, b: BlockId, quarter: usize, spares: &mut FrameList) {
        let Some(pfn) = spares.pop(&self.frames) else { return debug_assert!(false, "I51: frames were counted") };
        self.frames.desc(pfn).assign(FrameKind::Reserved, 0, owner_of(b, quarter), 0);
        self.frames.desc_frames(b).set(quarter, pfn);
        self.nr_total_pages.fetch_sub(1, Ordering::Relaxed);
    }

    /// Gives the first frame of each block of a page of a pool descriptors, before the page becomes pages of one block each.
    /// It lacks the descriptors of its tails, and the caller owns it.
    ///
    /// # Errors
    ///
    /// There are no frames for them; nothing has changed.
    pub(super) fn make_heads(&self, first: Pfn, order: Order) -> Result<(), OutOfFrames> {
        let mut spares = self.desc_spares_if_free(order.nr_pages() / BLOCK_FRAMES - 1)?;
        self.for_each_block(first, order, &mut |b| {
            if b.first_frame() != first {
                self.make_quarter_whole(b, 0, &mut spares);
            }
        });
        Ok(())
    }

    /// Gives the tails of a block descriptors, before the block is given back with its folio. Cannot fail: where no frame
    /// is free its own last ones become descriptors. Returns how many of them stay in use. The caller owns the block alone.
    pub(super) fn make_whole_at_end(&self, b: BlockId) -> u64 {
        let quarters = self.frames.tail_quarters(b);
        let nr = quarters.len() as u64;
        if let Ok(mut spares) = self.desc_spares_if_free(nr) {
            self.make_block_whole(b, &mut spares);
            return 0;
        }
        let first = Pfn(b.first_frame().0 + (BLOCK_FRAMES - nr) as u32);
        mem::zero_frames(&self.machine, first, nr);
        self.frames.blocks.at(b).mark(Class::Fixed);
        let own = || quarters.clone().zip((first.0..).map(Pfn));
        // Those of the frames are in the last of them.
        own().for_each(|(quarter, pfn)| self.frames.desc_frames(b).set(quarter, pfn));
        own().for_each(|(quarter, pfn)| {
            self.frames.desc(pfn).assign(FrameKind::Reserved, 0, owner_of(b, quarter), 0);
        });
        self.nr_total_pages.fetch_sub(nr, Ordering::Relaxed);
        nr
    }
}
