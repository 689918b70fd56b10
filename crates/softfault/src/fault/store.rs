//! The first store to a clean page of a file, through a shared mapping: Linux's `page_mkwrite`.
//!
//! ```text
//! clean   section: the object is kept ─▶ outside: Machine::may_store ─▶ its folio is dirty; the next turn
//! dirty   section: DIRTY is seen, or set ─▶ the entry allows stores
//! ```
//! Other faults map pages of files without the write right, so an entry that has it lies in a folio that is dirty.
//! Write-back clears DIRTY, waits for sections, and then takes the right away: a fault that saw DIRTY before has written
//! its entry by then (I56).
//!
//! Locks on entry: the section of the fault.

use super::context::Fault;
use super::{FaultDone, Turn};
use crate::account::Event;
use crate::addr::Pfn;
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::table::entry::{Seen, Slot};
use crate::table::format::Leaf;

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Whether the machine has to be asked before the entry, which is none, may map the page for this fault. Afterwards
    /// DIRTY is set once more, should it have been cleared since.
    pub(super) fn is_store_to_clean(&self, fault: &Fault<'_>, head: Pfn) -> bool {
        fault.is_first_store() && !self.vm.frames.desc(head).state().is_dirty()
    }

    /// The entry maps the object's page.
    #[cold]
    #[inline(never)]
    pub(super) fn store_to_present(
        &self,
        fault: &Fault<'_>,
        slot: Slot<'_, M::Format>,
        seen: Seen,
        leaf: Leaf,
    ) -> Turn<'vm, M> {
        let Fault { here, request, found, .. } = *fault;
        let desc = self.vm.frames.head_desc(leaf.pfn);
        if !desc.state().is_dirty() {
            return self.ask_to_store(fault);
        }
        // Before the entry allows it: a CPU that has cleared DIRTY meanwhile waits for this section.
        desc.note_written();
        match slot.set_rights_for(seen, found.entry_rights() | leaf.rights, request.access()) {
            Ok(()) => {
                here.count_done(Event::FileFirstStore);
                Turn::Done(FaultDone::Widened)
            }
            Err(_) => Turn::Raced,
        }
    }

    #[cold]
    pub(super) fn ask_to_store(&self, fault: &Fault<'_>) -> Turn<'vm, M> {
        let page = fault.found.pgoff_of(fault.request.vpn);
        Turn::AskToStore(self.vm.begin_to_ask(fault.inside, fault.found.object(), page))
    }
}
