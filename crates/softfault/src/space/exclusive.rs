//! Whether a page is written in place, or copied first.
//!
//! The answer holds while the entry is locked.

use super::AddressSpace;
use crate::addr::Pfn;
use crate::frame::FrameKind;
use crate::machine::Machine;
use crate::section::{InSection, KeepsTables};
use crate::table::entry::Slot;

impl<M: Machine> AddressSpace<'_, M> {
    /// Whether the page, of any size, is private and only this entry maps it. Zero frames never
    /// are. Of a page of a pool `pfn` is the head.
    pub(crate) fn is_sole_mapping(&self, inside: InSection<'_>, slot: Slot<'_, M::Format>, pfn: Pfn) -> bool {
        inside.assert_of(&self.data.cpus);
        if slot.level > 0 && self.vm.frames.is_of_pool(pfn) {
            return self.vm.frames.desc(pfn).is_sole_of_pool();
        }
        if slot.level > 0 {
            return self.vm.folio_is_exclusive(self.vm.frames.folio(pfn).first());
        }
        let desc = self.vm.frames.desc(pfn);
        desc.state().kind() == FrameKind::Anon && desc.is_exclusive()
    }
}
