//! An empty entry of shared memory: the object's frame, made if there is none.

use super::find::FoundVma;
use super::kit::{Kit, Need};
use super::{FaultDone, FaultError, Here, Request, Turn};
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{Access, Pfn};
use crate::frame::FrameKind;
use crate::machine::Machine;
use crate::source::object::{self, ObjectSlot};
use crate::space::{AddressSpace, MetaUse};
use crate::sync::{Ordering, Word};
use crate::table::entry::Slot;
use crate::table::format::{Entry, Leaf};

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    pub(crate) fn fill_shared(
        &self,
        here: &Here<'_>,
        request: &Request,
        found: &FoundVma<'vm>,
        slot: Slot<'_, M::Format>,
        kit: &mut Kit<'vm, M>,
    ) -> Turn<'vm, M> {
        let id = found.object();
        let index = found.index_of(request.vpn);
        if index >= self.vm.object(id).nr_pages.get() {
            return Turn::Refused(FaultError::BeyondObject);
        }
        match self.vm.object_slot(id, index) {
            ObjectSlot::Hole(word) => self.fill_object(here, word, FrameKind::Meta, id.0, MetaUse::Object as u64, kit),
            ObjectSlot::Page(word) => match object::frame_of(word.load(Ordering::Acquire)) {
                None => self.fill_object(here, word, FrameKind::Shared, id.0, index, kit),
                Some(pfn) => self.map_shared(here, request, found, slot, pfn),
            },
        }
    }

    /// A page or a node into an empty word of the object; the loser keeps its
    /// frame.
    fn fill_object(
        &self,
        here: &Here<'_>,
        word: &Word,
        kind: FrameKind,
        owner: u64,
        index: u64,
        kit: &mut Kit<'vm, M>,
    ) -> Turn<'vm, M> {
        let Some(pfn) = kit.zeroed(here.cpu) else { return Turn::Need(Need::Zeroed) };
        self.vm.frames.desc(pfn).assign(kind, 0, owner, index);
        if object::fill(word, pfn).is_err() {
            kit.keep_zeroed(pfn);
            return Turn::Raced;
        }
        Turn::Again
    }

    fn map_shared(
        &self,
        here: &Here<'_>,
        request: &Request,
        found: &FoundVma<'vm>,
        slot: Slot<'_, M::Format>,
        pfn: Pfn,
    ) -> Turn<'vm, M> {
        let desc = self.vm.frames.desc(pfn);
        if desc.map_raise().is_err() {
            return Turn::Refused(FaultError::OutOfFrames);
        }
        let dirty = request.access == Access::Write;
        let leaf = Leaf { pfn, rights: found.entry_rights(), accessed: true, dirty };
        match slot.fill(Entry::Leaf(leaf)) {
            Ok(()) => {
                here.rss.add(Rss::Shmem, 1);
                self.settle(here, Event::SharedMap);
                Turn::Done(FaultDone::Shared)
            }
            Err(_) => {
                desc.map_drop();
                Turn::Raced
            }
        }
    }
}
