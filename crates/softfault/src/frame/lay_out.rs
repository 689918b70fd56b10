//! Initialises the metadata of a memory section and frees its frames: for added memory, and for deferred
//! sections.
//!
//! ```text
//! lay out   descriptors and blocks, which are zeroes, say that each frame is in use ─▶ the tables name them
//! bring     each block is released, as if it had been used
//! ```
//! Locks on entry: none, no section. Takes one under which no CPU waits.

use super::desc::FrameKind;
use super::mem_sections::{MEM_SECTION_BLOCK_SHIFT, MEM_SECTION_FRAMES, frames_of, range_of};
use super::{BlockData, Content, FrameDesc, Frames, Memory};
use crate::addr::{BLOCK_FRAMES, Pfn};
use crate::lock::Spin;
use crate::machine::{LockKind, Machine};
use crate::mem::FrameArray;
use crate::pace::Pace;

/// The owner in the first descriptor of a section that was removed; that of other reserved frames is 0.
pub(super) const REMOVED: u64 = 1;
/// Frames that the descriptors of a section take, and its blocks.
pub(crate) const DESC_FRAMES_PER_MEM_SECTION: u32 =
    (MEM_SECTION_FRAMES as usize * size_of::<FrameDesc>() / 4096) as u32;
pub(crate) const BLOCK_FRAMES_PER_MEM_SECTION: u32 =
    (size_of::<BlockData>() << MEM_SECTION_BLOCK_SHIFT).div_ceil(4096) as u32;
/// Blocks for which these frames have room: those of a section, and more where a section is small.
pub(crate) const BLOCKS_IN_FRAMES_OF_MEM_SECTION: usize =
    BLOCK_FRAMES_PER_MEM_SECTION as usize * 4096 / size_of::<BlockData>();
const _: () = {
    assert!(DESC_FRAMES_PER_MEM_SECTION as usize * 4096 == MEM_SECTION_FRAMES as usize * size_of::<FrameDesc>());
    assert!(cfg!(softfault_sync = "loom") || BLOCKS_IN_FRAMES_OF_MEM_SECTION == 1 << MEM_SECTION_BLOCK_SHIFT);
};

pub(super) fn first_desc_of(section: usize) -> Pfn {
    Pfn(frames_of(section).0 as u32)
}

impl<M: Machine> Memory<M> {
    /// Gives a section that never existed its metadata. Its frames are reserved, the first one with that owner:
    /// the section looks removed, or present.
    pub(super) fn lay_out(&self, section: usize, descs_at: Pfn, blocks_at: Pfn, owner: u64) {
        let frames = &self.frames;
        let descs = FrameArray::<FrameDesc>::over(&self.machine, descs_at, 0, frames.descs.len_of(section));
        let blocks = FrameArray::<BlockData>::over(&self.machine, blocks_at, 0, frames.blocks.data.len_of(section));
        descs.iter().for_each(|desc| desc.assign(FrameKind::Reserved, 0, 0, 0));
        descs.at(0).owner.set(owner);
        blocks.iter().for_each(BlockData::hide);
        // Also called for initial memory, without the lock of resizes.
        let _lock = Spin::lock(LockKind::Leading, &frames.leading, &self.machine);
        // Passes over blocks read descriptors.
        frames.descs.put(section, &descs);
        frames.blocks.data.put(section, &blocks);
        frames.lead_to(section);
    }

    pub(super) fn reserve_frame(&self, pfn: Pfn, owner: u64) {
        self.frames.desc(pfn).assign(FrameKind::Reserved, 0, owner, 0);
    }

    /// Frees all frames of a section, each of which is reserved. Counts nothing.
    pub(super) fn bring(&self, section: usize, content: Content) {
        let mut pace = Pace::new(&self.machine);
        for b in range_of(&self.frames.blocks.data, section).iter() {
            pace.step();
            let first = b.first_frame();
            (0..BLOCK_FRAMES as u32).for_each(|i| self.frames.desc(Pfn(first.0 + i)).clear());
            self.release_uncounted(b, content);
        }
    }
}

impl Frames {
    /// Whether a section has memory. Under the lock of resizes.
    pub(super) fn is_present(&self, section: usize) -> bool {
        self.find_desc_at_rest(first_desc_of(section)).is_some() && !self.is_removed(section)
    }

    /// Whether a section had memory, which was removed, or has only metadata yet. Under the lock of resizes.
    pub(super) fn is_removed(&self, section: usize) -> bool {
        let desc = self.find_desc_at_rest(first_desc_of(section));
        desc.is_some_and(|desc| desc.state().kind() == FrameKind::Reserved && desc.owner.get() == REMOVED)
    }

    /// Lets the holes below a section lead to it. Under the lock for such changes.
    fn lead_to(&self, section: usize) {
        for hole in (0..section).rev().take_while(|hole| self.find_desc_at_rest(first_desc_of(*hole)).is_none()) {
            self.descs.leave_out(hole, section);
            self.blocks.data.leave_out(hole, section);
        }
    }
}
