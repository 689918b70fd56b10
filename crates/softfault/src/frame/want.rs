//! The arguments of an allocation.

use super::frame_cache::FrameCache;
use crate::cpu::CpuData;

/// The caller's use of the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fill {
    /// It has to be all zero.
    Zeroed,
    /// It will be overwritten.
    Raw,
    /// It has to be all zero, and cannot be moved once it is in use.
    Fixed,
    /// It has to be all zero, and becomes a page of an object.
    Shared,
    /// It will be overwritten, and will be pinned for long.
    Pinned,
}

/// The known content of frames that are free or have one owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// They are all zero.
    Zero,
    /// They may have any content.
    Unknown,
}

impl Content {
    #[inline(always)]
    pub(crate) const fn zero_if(is_zero: bool) -> Content {
        if is_zero { Content::Zero } else { Content::Unknown }
    }
    #[inline(always)]
    pub(crate) const fn is_zero(self) -> bool {
        matches!(self, Content::Zero)
    }
}

impl Fill {
    /// The content of a frame that is returned unused.
    pub(super) const fn content(self) -> Content {
        match self {
            Fill::Zeroed | Fill::Fixed | Fill::Shared => Content::Zero,
            Fill::Raw | Fill::Pinned => Content::Unknown,
        }
    }
}

/// Where an attempt looks for frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Search {
    /// In the CPU's own frame cache and in the blocks.
    Blocks,
    /// In other CPUs' frame caches, too. Only while no other CPU holds frames: a thief could take
    /// what a refill has just claimed.
    Everywhere,
}

impl CpuData {
    /// The CPU's frame cache for that kind.
    #[inline(always)]
    pub(crate) fn frame_cache(&self, fill: Fill) -> &FrameCache {
        match fill {
            Fill::Zeroed => &self.zeroed,
            Fill::Raw => &self.raw,
            Fill::Fixed => &self.fixed,
            Fill::Shared => &self.shared,
            Fill::Pinned => &self.pinned,
        }
    }
}
