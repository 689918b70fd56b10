//! The allocator's refusal.

use crate::addr::Order;
use crate::table::format::{Format, huge_order};

/// The requested frames are not free. Nothing was kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OutOfFrames {
    /// One frame. The caller may need more after it.
    Frame,
    /// So many frames, all or none; nothing else is needed.
    Frames(u32),
    /// 2^order adjacent frames.
    Block(Order),
}

impl OutOfFrames {
    /// So many frames; the number saturates, at one that no machine has.
    pub(crate) fn frames(nr_frames: u64) -> OutOfFrames {
        OutOfFrames::Frames(u32::try_from(nr_frames).unwrap_or(u32::MAX))
    }

    /// A huge frame.
    pub(crate) fn huge<F: Format>() -> OutOfFrames {
        OutOfFrames::Block(huge_order::<F>())
    }
}

impl core::fmt::Display for OutOfFrames {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            OutOfFrames::Frame => f.write_str("out of frames"),
            OutOfFrames::Frames(nr_frames) => write!(f, "out of frames: {nr_frames} were asked for"),
            OutOfFrames::Block(order) => write!(f, "out of frames: {} adjacent ones were asked for", order.nr_pages()),
        }
    }
}
impl core::error::Error for OutOfFrames {}
