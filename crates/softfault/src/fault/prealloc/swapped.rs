//! The frame for a page that was swapped out.

use super::{Need, Prealloc};
use crate::addr::{Pfn, SwapSlot};
use crate::fault::Turn;
use crate::frame::Fill;
use crate::machine::Machine;

impl<'vm, M: Machine> Prealloc<'vm, M> {
    /// The outcome of an attempt that finds a page swapped out. The frame comes first, because
    /// no CPU may wait for frames during a read.
    #[cold]
    pub(crate) fn for_swapped(&self, slot: SwapSlot) -> Turn<'vm, M> {
        let has_frame = self.kept.is_some_and(|kept| kept.singles[Fill::Raw as usize].is_some());
        if has_frame { Turn::SwapIn(slot) } else { Turn::Need(Need::Frame(Fill::Raw)) }
    }

    /// Takes the frame out of the preallocation, which still counts it as held (I28).
    pub(crate) fn take_raw(&mut self) -> Option<Pfn> {
        self.take_single(Fill::Raw)
    }

    /// Puts it back, whatever it contains.
    pub(crate) fn put_raw(&mut self, pfn: Pfn) {
        debug_assert!(self.held.is_some());
        self.put_single(Fill::Raw, pfn);
    }
}
