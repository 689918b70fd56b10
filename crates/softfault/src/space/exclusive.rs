//! Whether a page is written in place, or copied first.
//!
//! Locks on entry: a section; the answer holds while the entry is locked.

use super::AddressSpace;
use crate::addr::Pfn;
use crate::frame::FrameKind;
use crate::machine::Machine;
use crate::table::entry::Slot;

impl<M: Machine> AddressSpace<'_, M> {
    /// Whether the page is private and nobody maps it but this entry, whatever its
    /// size. The zero frames are nobody's.
    pub(crate) fn is_sole_mapping(&self, slot: Slot<'_, M::Format>, pfn: Pfn) -> bool {
        if slot.level > 0 {
            return self.vm.folio_is_exclusive(self.vm.frames.folio(pfn).first());
        }
        let desc = self.vm.frames.desc(pfn);
        desc.state().kind() == FrameKind::Anon && desc.is_exclusive()
    }
}
