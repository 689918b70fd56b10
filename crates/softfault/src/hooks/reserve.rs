//! The reserve, as the reaction to pressure uses it.

use crate::frame::Fill;
use crate::machine::{FrameRange, Machine};
use crate::space::Vm;

impl<M: Machine> Vm<M> {
    /// Frames of the reserve in this memory. Call it at rest.
    pub fn nr_reserve_pages_in(&self, range: &FrameRange) -> u64 {
        self.frames.nr_chained(&|pfn| (u64::from(range.first.0)..range.end()).contains(&pfn.0.into()))
    }

    /// Takes up to so many frames out of the reserve and gives them to everybody. Gives
    /// their number.
    pub fn spend_reserve(&self, nr_frames: u64) -> u64 {
        self.call();
        let taken = (0..nr_frames).map_while(|_| self.take_reserved());
        taken.map(|pfn| self.give_back(pfn, Fill::Raw)).count() as u64
    }
}
