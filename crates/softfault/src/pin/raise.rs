//! The fast path of a pin: one read of the entry, in one section.
//!
//! ```text
//! pin   state += pin       ; entry still the same?   else: undo, the slow way
//! fork  entry locked       ; state += map, pins?     else: undo, copy
//! ```
//! Both changes of the state are read-modify-writes of one word, and one of them comes second. If
//! it is fork's, fork sees the pin. If it is the pin's, it acquires what fork released before, and
//! sees the lock bit. So no further fence is needed (I23).
//!
//! A frame cannot be freed during the section in which its entry was read: a CPU that takes the entry
//! waits for the section before it drops the count, and then sees the pin.

use crate::addr::{Access, Order, Pfn, Rights, Vpn};
use crate::frame::{FrameDesc, FrameKind};
use crate::machine::Machine;
use crate::section::InSection;
use crate::space::AddressSpace;
use crate::table::entry::{Seen, Slot};
use crate::table::format::{Entry, Format, Leaf};
use crate::table::place::PmdSlot;
use crate::table::walk::Walk;

/// How a look ended.
pub(super) enum Tried {
    Pinned(Pfn, Order),
    /// The count of pins is at its limit.
    Full,
    /// The entry changed between the two looks.
    Changed,
    /// A fault has something to do first.
    NotYet,
}

impl<M: Machine> AddressSpace<'_, M> {
    pub(super) fn try_pin(&self, vpn: Vpn, access: Access) -> Tried {
        let section = self.section();
        let inside = section.inside();
        let slot = match self.walk(inside, vpn) {
            Walk::Leaf(slot) => slot,
            Walk::Huge(pmd) => return self.try_pin_huge(inside, pmd, vpn, access),
            Walk::Hole(_) | Walk::Owned => return Tried::NotYet,
        };
        let seen = slot.observe();
        let Entry::Leaf(leaf) = seen.entry else { return Tried::NotYet };
        if !leaf.rights.contains(access.needs()) {
            return Tried::NotYet;
        }
        let desc = self.vm.frames.head_desc(leaf.pfn);
        match desc.state().kind() {
            // Writable is exclusive (I13).
            FrameKind::Anon if leaf.rights.contains(Rights::WRITE) => raise(inside, slot, seen, leaf, desc, access),
            // A private mapping gets a copy first, also to be read: the holder and the program see
            // each other's writes (I23).
            FrameKind::Shared if !leaf.rights.contains(Rights::WRITE) && self.is_private_at(inside, vpn) => {
                Tried::NotYet
            }
            FrameKind::Shared => raise(inside, slot, seen, leaf, desc, access),
            FrameKind::Anon if desc.is_exclusive() => raise_locked(inside, slot, seen, desc),
            _ => Tried::NotYet,
        }
    }

    /// Whether the page is in a private mapping. In a hole that munmap(2) has just made it does not
    /// matter.
    fn is_private_at(&self, inside: InSection<'_>, vpn: Vpn) -> bool {
        self.tree_in(inside).lookup(vpn).is_some_and(|found| found.vma.is_private())
    }

    /// A page of a huge mapping: the pin is its own frame's, and the folio is told
    /// first, so that fork and the CPU that drops the last entry know to look (I26).
    fn try_pin_huge(&self, inside: InSection<'_>, pmd: PmdSlot<'_, M::Format>, vpn: Vpn, access: Access) -> Tried {
        let seen = pmd.slot.observe();
        let Entry::Leaf(leaf) = seen.entry else { return Tried::NotYet };
        if !leaf.rights.contains(access.needs()) || self.vm.is_huge_zero(leaf.pfn) {
            return Tried::NotYet;
        }
        if self.vm.frames.is_of_pool(leaf.pfn) {
            // Of a page of a pool the head counts pins.
            let pfn = Pfn(leaf.pfn.0 + (vpn.0 - pmd.base.0) as u32);
            let desc = self.vm.frames.head_desc(leaf.pfn);
            if desc.state().kind() == FrameKind::Anon && !leaf.rights.contains(Rights::WRITE) {
                if !desc.is_sole_of_pool() {
                    return Tried::NotYet;
                }
                return match raise_locked(inside, pmd.slot, seen, desc) {
                    Tried::Pinned(..) => Tried::Pinned(pfn, pmd.order()),
                    tried => tried,
                };
            }
            // As a small page.
            let is_of_object = desc.state().kind() == FrameKind::Shared;
            if is_of_object && !leaf.rights.contains(Rights::WRITE) && self.is_private_at(inside, vpn) {
                return Tried::NotYet;
            }
            return match raise(inside, pmd.slot, seen, leaf, desc, access) {
                Tried::Pinned(..) => Tried::Pinned(pfn, pmd.order()),
                tried => tried,
            };
        }
        let folio = self.vm.frames.folio(leaf.pfn);
        let pfn = Pfn(leaf.pfn.0 + (vpn.0 - pmd.base.0) as u32);
        let desc = self.vm.frames.desc(pfn);
        if leaf.rights.contains(Rights::WRITE) {
            folio.note_pin();
            return match raise(inside, pmd.slot, seen, leaf, desc, access) {
                Tried::Pinned(..) => Tried::Pinned(pfn, pmd.order()),
                tried => tried,
            };
        }
        let Ok(leaf) = pmd.slot.lock(seen) else { return Tried::Changed };
        // No other entry can come while the only one is locked.
        let tried = if self.vm.folio_is_exclusive(leaf.pfn) {
            folio.note_pin();
            desc.pin_raise().map_or(Tried::Full, |_| Tried::Pinned(pfn, pmd.order()))
        } else {
            Tried::NotYet
        };
        pmd.slot.unlock(Leaf { accessed: true, ..leaf });
        tried
    }
}

/// The entry was read in this section.
fn raise<F: Format>(
    _inside: InSection<'_>,
    slot: Slot<'_, F>,
    seen: Seen,
    leaf: Leaf,
    desc: &FrameDesc,
    access: Access,
) -> Tried {
    // Before the pin: what is written through it is the program's data, though no
    // store of the program's sets the bit.
    if slot.mark(seen, access).is_err() {
        return Tried::Changed;
    }
    if desc.pin_raise().is_err() {
        return Tried::Full;
    }
    if slot.is_still(seen) {
        return Tried::Pinned(leaf.pfn, Order::BASE);
    }
    let freed = desc.pin_drop();
    debug_assert!(!freed, "I23: an entry read in this section keeps its frame");
    Tried::Changed
}

/// A page that may not be written at present: whether it is unshared is decided under the entry's
/// lock bit, as reuse decides it (I13).
fn raise_locked<F: Format>(_inside: InSection<'_>, slot: Slot<'_, F>, seen: Seen, desc: &FrameDesc) -> Tried {
    let Ok(leaf) = slot.lock(seen) else { return Tried::Changed };
    let tried = match desc.pin_raise() {
        Err(_) => Tried::Full,
        // A fault that copies a page of a pool may put its entry back: so long the page is not this space's alone.
        Ok(before) if before.nr_maps() == 1 && !before.is_copied() => Tried::Pinned(leaf.pfn, Order::BASE),
        Ok(_) => {
            desc.pin_drop();
            Tried::Changed
        }
    };
    slot.unlock(Leaf { accessed: true, ..leaf });
    tried
}
