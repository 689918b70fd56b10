//! Where memory is.

use crate::addr::Pfn;

/// The largest number of nodes of memory.
pub const MAX_NODES: usize = 64;

/// A node of memory, counted from 0: frames, and the CPUs that are near them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemoryNode(pub u8);

/// Adjacent frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameRange {
    /// The first.
    pub first: Pfn,
    /// How many.
    pub nr_frames: u64,
}

impl FrameRange {
    /// Number of the frame after the last.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.first.0).saturating_add(self.nr_frames)
    }
    pub(crate) fn holds(&self, frame: u64) -> bool {
        u64::from(self.first.0) <= frame && frame < self.end()
    }
}
