//! The slow half of copy-on-write of huge pages, outside the section: like `copy`, for 2 MiB.
//!
//! The fault owns the entry, which is `Busy`. The deposit stays, because the new mapping is huge
//! again.

use super::FaultDone;
use crate::account::Event;
use crate::account::rss::Rss;
use crate::account::sizes::SizeEvent;
use crate::addr::{Order, Pfn, Rights};
use crate::clear::{self, Poisoned};
use crate::frame::{Content, FrameKind, FreeBatch};
use crate::machine::{Flush, Machine};
use crate::space::AddressSpace;
use crate::space::Vm;
use crate::table::format::{Entry, Leaf, huge_order};
use crate::table::place::PmdSlot;

/// A huge mapping that the fault has made `Busy` in order to split it. It has to be finished and
/// cannot fail.
#[must_use]
pub(crate) struct Splitting<'vm, M: Machine> {
    pub(crate) pmd: PmdSlot<'vm, M::Format>,
    pub(crate) old: Leaf,
}

impl<'vm, M: Machine> Splitting<'vm, M> {
    pub(crate) fn finish(self, space: &AddressSpace<'vm, M>) {
        space.finish_split(self.pmd, self.old);
    }
}

/// A copy of a huge page in progress. It has to be finished. Where the memory of the old one fails the mapping is
/// split: small pages are copied then, and only the one that failed cannot be.
#[must_use]
pub(crate) struct CopyingHuge<'vm, M: Machine> {
    pub(crate) pmd: PmdSlot<'vm, M::Format>,
    pub(crate) old: Leaf,
    /// First frame of the new page; zero already where the old one is.
    pub(crate) to: Pfn,
    pub(crate) rights: Rights,
    /// Index of its first page.
    pub(crate) index: u64,
    /// The one that faulted.
    pub(crate) sub_page: u32,
}

impl<'vm, M: Machine> CopyingHuge<'vm, M> {
    /// `None` if the page was not copied.
    pub(crate) fn finish(self, space: &AddressSpace<'vm, M>) -> Option<FaultDone> {
        let vm = space.vm;
        let from_zero = vm.is_huge_zero(self.old.pfn);
        space.shootdown(Flush::Pages(self.pmd.span()));
        if !from_zero {
            // As for a small page: what others wrote until now belongs in the copy, and sections
            // that saw the old entry may still use the old frames.
            space.wait_after_shootdown();
            if self.copy(vm).is_err() {
                vm.count(Event::CopyFailed, 1);
                vm.give_back_huge(self.to, Content::Unknown);
                Splitting { pmd: self.pmd, old: self.old }.finish(space);
                return None;
            }
        }
        vm.frames.folio(self.to).assign(FrameKind::Anon, space.family, self.index);
        self.pmd.slot.resolve(Entry::Leaf(Leaf { pfn: self.to, rights: self.rights, accessed: true, dirty: true }));
        let here = space.here();
        here.cpu.count_size(SizeEvent::AnonFaultAlloc, Order::PMD);
        if from_zero {
            here.rss.add(Rss::Anon, Vm::<M>::NR_SUB_FRAMES);
            here.rss.add(Rss::Huge, Vm::<M>::NR_SUB_FRAMES);
            here.count_done(Event::ThpFaultAlloc);
            return Some(FaultDone::Huge);
        }
        vm.folio_map_drop(self.old.pfn, &mut FreeBatch::new(vm));
        here.count_done(Event::CowBreak);
        Some(FaultDone::Copied)
    }

    fn copy(&self, vm: &Vm<M>) -> Result<(), Poisoned> {
        let order = huge_order::<M::Format>();
        let hint = Some(u64::from(self.sub_page));
        // No frame here is known to be bad: the copy has nobody to ask but the machine.
        clear::copy_folio(&vm.machine, self.to, self.old.pfn, order, hint, vm.clear_order(order), &mut |_| Ok(()))
    }
}
