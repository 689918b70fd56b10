//! Frame numbers of a machine at rest.

use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::space::ops::Translation;

impl<M: Machine> AddressSpace<'_, M> {
    /// What the address translates to: the number means nothing as soon as anybody else
    /// is at work. A [`Subscription`](crate::Subscription) or a
    /// [`Walker`](crate::Walker) says how long it is good.
    pub fn translate_at_rest(&self, addr: u64) -> Option<Translation> {
        self.translation(addr)
    }
}
