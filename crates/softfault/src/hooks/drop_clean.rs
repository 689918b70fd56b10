//! Drops clean folios of files at any moment, not only where an allocation would be refused.

use crate::machine::Machine;
use crate::space::Vm;
use crate::space::vm::Shortage;

impl<M: Machine> Vm<M> {
    /// Drops up to so many frames of clean folios of files, 512 at most. Gives their number.
    pub fn drop_clean(&self, nr_frames: u64) -> u64 {
        self.call();
        self.drop_clean_until(u64::MAX, nr_frames, Shortage::Refused)
    }
}
