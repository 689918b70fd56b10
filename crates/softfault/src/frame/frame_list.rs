//! Frames that are one caller's, any number of them: each names the next one in its own descriptor.
//!
//! Locks on entry: none. Nobody else changes the frames, or what their descriptors link.

use super::Frames;
use crate::addr::{OptPfn, Pfn};

/// See the module. Has to be emptied.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameList {
    first: OptPfn,
    nr: u64,
}

impl FrameList {
    pub(crate) const EMPTY: FrameList = FrameList { first: OptPfn::NONE, nr: 0 };

    /// Frames in it.
    pub(crate) fn nr(&self) -> u64 {
        self.nr
    }

    pub(crate) fn push(&mut self, frames: &Frames, pfn: Pfn) {
        frames.desc(pfn).link.set(self.first.to_word());
        *self = FrameList { first: OptPfn::some(pfn), nr: self.nr + 1 };
    }

    pub(crate) fn pop(&mut self, frames: &Frames) -> Option<Pfn> {
        let pfn = self.first.get()?;
        let link = &frames.desc(pfn).link;
        *self = FrameList { first: OptPfn::from_word(link.get()), nr: self.nr - 1 };
        link.set(0);
        Some(pfn)
    }
}
