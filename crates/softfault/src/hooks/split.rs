//! Splits a whole huge page on demand.
//!
//! Locks on entry: none, no section.

use crate::addr::Pfn;
use crate::machine::Machine;
use crate::space::Vm;

impl<M: Machine> Vm<M> {
    /// Splits the huge page that the frame is part of, for all who map it: then it is 512 small
    /// pages. Nothing can go wrong; nothing happens where it is part of none. It waits for entries
    /// that others own, so this is not for those who hold anything.
    pub fn split_folio(&self, pfn: Pfn) {
        self.call();
        self.split_private(pfn);
    }
}
