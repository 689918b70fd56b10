//! A page is present, but the access faulted.

use super::context::Fault;
use super::copy::Copying;
use super::prealloc::{Need, Prealloc};
use super::{FaultDone, Turn};
use crate::account::Event;
use crate::addr::{Access, PageRange, Rights, Vpn};
use crate::frame::Fill;
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::space::vma::VmaFlags;
use crate::table::entry::{Seen, Slot};
use crate::table::format::Leaf;
use crate::table::walk::Walk;

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    #[inline(never)]
    pub(crate) fn fix_present(
        &self,
        fault: &Fault<'_>,
        slot: Slot<'vm, M::Format>,
        seen: Seen,
        leaf: Leaf,
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Turn<'vm, M> {
        if fault.request.wants_own() && !leaf.rights.contains(Rights::WRITE) {
            if fault.found.is_private() {
                return self.cow_break(fault, slot, seen, leaf, prealloc);
            }
            if fault.is_first_store() {
                return self.store_to_present(fault, slot, seen, leaf);
            }
        }
        self.widen(fault, slot, seen, leaf)
    }

    /// Gives an entry of any level the rights that need no decision.
    pub(crate) fn widen(&self, fault: &Fault<'_>, slot: Slot<'vm, M::Format>, seen: Seen, leaf: Leaf) -> Turn<'vm, M> {
        let Fault { here, request, found, .. } = *fault;
        // A fault only adds rights. mprotect's sweep removes those that the VMA no longer grants,
        // because it has to shoot down. Only `cow_break`, which reads the counts, may make a
        // private page writable, and only `store_to_present` a file's.
        let want = (found.entry_rights() - found.kept_back()) | leaf.rights;
        if leaf.rights == want {
            // The CPU's hint may name a table that a removal has taken and not yet announced. The
            // hardware finds `Busy` above it and faults again.
            if slot.level == 0 && matches!(self.walk(fault.inside, request.vpn), Walk::Owned) {
                return Turn::Wait;
            }
            return self.mark_used(fault, slot, seen, leaf);
        }
        // Sets the A/D bits as well: hardware that does not set them would fault for them next.
        match slot.set_rights_for(seen, want, request.access()) {
            Ok(()) => {
                here.count_done(Event::Spurious);
                Turn::Done(FaultDone::Widened)
            }
            Err(_) => Turn::Raced,
        }
    }

    /// Marks an entry that allows the access. Hardware that does not set accessed and dirty (RISC-V
    /// with Svade, Arm without FEAT_HAFDBS) faults until software does.
    fn mark_used(&self, fault: &Fault<'_>, slot: Slot<'vm, M::Format>, seen: Seen, leaf: Leaf) -> Turn<'vm, M> {
        let Fault { here, request, .. } = *fault;
        let is_marked = leaf.accessed && (leaf.dirty || request.access() != Access::Write);
        if !is_marked && slot.mark(seen, request.access()).is_err() {
            return Turn::Raced;
        }
        here.count_done(Event::Spurious);
        Turn::Done(if is_marked { FaultDone::Spurious } else { FaultDone::Marked })
    }

    /// A write to a private page that is not writable, or a pin of one.
    fn cow_break(
        &self,
        fault: &Fault<'_>,
        slot: Slot<'vm, M::Format>,
        seen: Seen,
        leaf: Leaf,
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Turn<'vm, M> {
        let Fault { here, request, found, .. } = *fault;
        let from_zero = leaf.pfn == self.vm.frames.zero;
        if self.is_sole_mapping(fault.inside, slot, leaf.pfn) {
            return self.reuse(fault, slot, seen);
        }
        // The frame first, then the entry: nothing may fail once it is `Busy`.
        let fill = if from_zero { Fill::Zeroed } else { Fill::Raw };
        let Some(to) = prealloc.take(fill, fault.inside, here.cpu) else { return Turn::Need(Need::Frame(fill)) };
        // In the section in which the entry is taken: see `subscribe`.
        if !prealloc.has_told(1) && self.has_subscribers() {
            prealloc.keep(fill, to);
            return Turn::Tell(PageRange::new(request.vpn, Vpn(request.vpn.0 + 1)));
        }
        let (rights, index) = (found.entry_rights(), found.index_of(request.vpn));
        match slot.take(seen) {
            Ok(leaf) => {
                if !from_zero {
                    // The copy may fail, and then the frame comes back (I28).
                    prealloc.hold();
                }
                Turn::Copy(Copying { slot, vpn: request.vpn, old: leaf, to, rights, index })
            }
            Err(_) => {
                prealloc.keep(fill, to);
                Turn::Raced
            }
        }
    }

    /// Whether only this space maps the page is decided under the entry's lock bit, because fork
    /// raises the count only while it owns that bit (I13).
    pub(crate) fn reuse(&self, fault: &Fault<'_>, slot: Slot<'vm, M::Format>, seen: Seen) -> Turn<'vm, M> {
        let Fault { here, request, found, .. } = *fault;
        let Ok(leaf) = slot.lock(seen) else { return Turn::Raced };
        if !self.is_sole_mapping(fault.inside, slot, leaf.pfn) {
            slot.unlock(leaf);
            return Turn::Raced;
        }
        // Rights only widen here, as in `widen`.
        let rights = found.entry_rights() | leaf.rights;
        if !found.flags().contains(VmaFlags::WRITE) {
            // A forced write, or a pin: the frame is private now, which is what was asked for.
            slot.unlock(Leaf { rights, ..leaf });
            here.count_done(Event::CowReuse);
            return Turn::Done(FaultDone::Reused);
        }
        let dirty = request.access() == Access::Write;
        slot.unlock(Leaf { rights, accessed: true, dirty: leaf.dirty | dirty, ..leaf });
        here.count_done(Event::CowReuse);
        Turn::Done(FaultDone::Reused)
    }
}
