//! I45 at rest: every tail belongs to a folio of an object, and every folio has its tails.

use super::Broken;
use crate::addr::Pfn;
use crate::frame::FrameKind;
use crate::machine::Machine;
use crate::space::Vm;

impl<M: Machine> Vm<M> {
    /// A tail is in use, its descriptor is that of a free frame, and its head covers it.
    pub(super) fn check_tail(&self, pfn: Pfn) -> Result<(), Broken> {
        let head = self.frames.head(pfn);
        let is_whole = !self.is_free(pfn)
            && self.frames.desc(pfn).state().0 == 0
            && u64::from(pfn.0 - head.0) < self.nr_frames_of(head);
        if is_whole { Ok(()) } else { Err(Broken::Tail(pfn)) }
    }

    /// Frames of the folio of an object, or of the private page of a pool, that begins there.
    fn nr_frames_of(&self, head: Pfn) -> u64 {
        let state = self.frames.desc(head).state();
        match state.kind() {
            FrameKind::Shared => state.order().nr_pages(),
            FrameKind::Anon => self.pool_of(head).map_or(0, |pool| pool.order().nr_pages()),
            _ => 0,
        }
    }

    /// All frames of a folio but the first are its tails.
    pub(super) fn check_tails_of(&self, head: Pfn) -> Result<(), Broken> {
        let nr = self.frames.desc(head).state().order().nr_pages() as u32;
        let others = (1..nr).map(|i| Pfn(head.0 + i));
        match others.into_iter().find(|pfn| !self.frames.is_tail(*pfn)) {
            Some(pfn) => Err(Broken::Tail(pfn)),
            None => Ok(()),
        }
    }
}
