//! The frames that have a block's descriptors, if these are not in the memory section's place: see
//! `tail_descs.rs`.
//!
//! Locks on entry: none.

use super::FrameDesc;
use crate::addr::{BLOCK_FRAMES, PAGE_SIZE, Pfn};
use crate::sync::{self, Ordering, Word};

/// Descriptors in a frame.
pub(super) const DESCS_PER_FRAME: u64 = PAGE_SIZE / size_of::<FrameDesc>() as u64;
/// Frames that the descriptors of a block take.
pub(super) const NR_QUARTERS: usize = (BLOCK_FRAMES / DESCS_PER_FRAME) as usize;
const NUMBER_BITS: usize = 32;

/// For each quarter of a block the frame that has its descriptors, or 0 if they are in the memory
/// section's place. The zero frame means that the descriptors' frame is free memory.
#[repr(transparent)]
pub(crate) struct DescFrames([Word; NR_QUARTERS * NUMBER_BITS / 64]);

impl DescFrames {
    pub(super) const fn none() -> DescFrames {
        DescFrames([const { Word::new(0) }; NR_QUARTERS * NUMBER_BITS / 64])
    }

    pub(super) fn is_none(&self) -> bool {
        self.0.iter().all(|word| word.get() == 0)
    }

    fn place(&self, quarter: usize) -> (&Word, usize) {
        (&self.0[quarter / 2], quarter % 2 * NUMBER_BITS)
    }

    pub(super) fn get(&self, quarter: usize) -> Option<Pfn> {
        let (word, shift) = self.place(quarter);
        // Acquire: the frame is all zero.
        Some(Pfn((sync::read_mostly(word) >> shift) as u32)).filter(|pfn| pfn.0 != 0)
    }

    /// By the owner of the folio alone.
    pub(super) fn set(&self, quarter: usize, pfn: Pfn) {
        let (word, shift) = self.place(quarter);
        let others = word.load(Ordering::Relaxed) & !(u64::from(u32::MAX) << shift);
        word.store(others | u64::from(pfn.0) << shift, Ordering::Release);
    }
}

/// Quarter of its block, and offset of the descriptor in the frame that has those of the quarter.
pub(super) fn place_of(pfn: Pfn) -> (usize, usize) {
    let offset = u64::from(pfn.0) % BLOCK_FRAMES;
    ((offset / DESCS_PER_FRAME) as usize, (offset % DESCS_PER_FRAME) as usize * size_of::<FrameDesc>())
}
