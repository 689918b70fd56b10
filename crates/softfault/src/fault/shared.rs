//! An empty entry of shared memory: the object's frame, made if there is none.

use super::context::Fault;
use super::kit::{Kit, Need};
use super::{FaultDone, FaultError, Turn};
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{Access, Pfn};
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::table::entry::Slot;
use crate::table::format::{Entry, Leaf};

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    #[inline(never)]
    pub(crate) fn fill_shared(
        &self,
        fault: &Fault<'_>,
        slot: Slot<'_, M::Format>,
        kit: &mut Kit<'vm, M>,
    ) -> Turn<'vm, M> {
        let Fault { here, request, found, .. } = *fault;
        let id = found.object();
        let index = found.index_of(request.vpn);
        if index >= self.vm.object_nr_pages(id) {
            return Turn::Refused(FaultError::BeyondObject);
        }
        let place = self.vm.object_slot(fault.inside, id, index);
        if let Some(pfn) = place.frame() {
            return self.map_shared(fault, slot, pfn);
        }
        // A page or a node is missing; the loser keeps its frame.
        let is_page = place.is_page();
        let pfn = if is_page { kit.zeroed(fault.inside, here.cpu) } else { kit.table(fault.inside, here.cpu) };
        let Some(pfn) = pfn else { return Turn::Need(if is_page { Need::Zeroed } else { Need::Table }) };
        if self.vm.object_fill(id, index, &place, pfn).is_err() {
            if is_page {
                kit.keep_zeroed(pfn);
            } else {
                kit.keep_table(pfn);
            }
            return Turn::Raced;
        }
        Turn::Again
    }

    fn map_shared(&self, fault: &Fault<'_>, slot: Slot<'_, M::Format>, pfn: Pfn) -> Turn<'vm, M> {
        let Fault { here, request, found, .. } = *fault;
        let desc = self.vm.frames.desc(pfn);
        if desc.map_raise().is_err() {
            return Turn::Refused(FaultError::MapsFull);
        }
        let dirty = request.access() == Access::Write;
        let leaf = Leaf { pfn, rights: found.entry_rights(), accessed: true, dirty };
        match slot.fill(Entry::Leaf(leaf)) {
            Ok(()) => {
                here.rss.add(Rss::Shmem, 1);
                here.count_done(Event::SharedMap);
                Turn::Done(FaultDone::Shared)
            }
            Err(_) => {
                // The object has it still: who takes pages out waits for this section.
                desc.map_drop();
                Turn::Raced
            }
        }
    }
}
