//! The reserve, as the reaction to pressure uses it.

use crate::frame::Fill;
use crate::machine::Machine;
use crate::space::Vm;

impl<M: Machine> Vm<M> {
    /// Takes up to so many frames out of the reserve and gives them to everybody. Gives
    /// their number.
    pub fn spend_reserve(&self, nr_frames: u64) -> u64 {
        self.call();
        let taken = (0..nr_frames).map_while(|_| self.take_reserved());
        taken.map(|pfn| self.give_back(pfn, Fill::Raw)).count() as u64
    }
}
