//! Frame numbers of a machine at rest.

use crate::addr::{Order, PageRange, Pfn, Vpn};
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::space::ops::Translation;
use crate::table::format::order_of;

impl<M: Machine> AddressSpace<'_, M> {
    /// Returns the translation of the address. Its frame number means nothing as soon as anybody else
    /// is at work. A [`Subscription`](crate::Subscription) or a
    /// [`Walker`](crate::Walker) says how long it is good.
    pub fn translate_at_rest(&self, addr: u64) -> Option<Translation> {
        self.translation(addr)
    }

    /// The frame of a page, and the order of its entry, whatever the program may do with the page.
    pub fn frame_at_rest(&self, addr: u64) -> Option<(Pfn, Order)> {
        let vpn = Vpn::of(addr);
        if !PageRange::contains(&Self::user_range(), vpn) {
            return None;
        }
        let section = self.section();
        let mapped = self.mapped(section.inside(), vpn)?;
        let order = order_of::<M::Format>(mapped.slot.level);
        Some((mapped.leaf.pfn, order))
    }
}
