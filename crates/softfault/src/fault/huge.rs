//! Huge pages in a fault: maps one into an empty PMD range, or widens, copies or splits one that is
//! mapped.
//!
//! ```text
//! hole of level 1 ─▶ policy ─▶ folio, deposit, twin obtained? ─▶ lock the entry
//!    ─▶ is the tree still the one that was asked? ─▶ deposit ─▶ mapping
//! ```
//! Everything here may fail and falls back to a smaller size, at last to 4 KiB in a leaf table. The
//! program does not notice. A size that failed is not tried again in the same fault.
//!
//! The generation is checked after the entry is locked, with fences on both sides. So an operation
//! that puts an edge of a VMA inside a PMD range need not wait for sections: it publishes, then
//! reads the entry (`space/split.rs`).
//!
//! `prealloc` obtains the frames; `copy_huge` is the slow half. Locks on entry: a section, whose
//! token each [`Fault`] has.

use super::context::{Fault, Here, Lost};
use super::copy_huge::{CopyingHuge, Splitting};
use super::prealloc::{HugeParts, Need, Prealloc, Twin};
use super::{FaultDone, Turn};
use crate::account::Event;
use crate::account::rss::Rss;
use crate::account::sizes::SizeEvent;
use crate::addr::{Access, Order, Rights};
use crate::frame::{Content, FrameKind};
use crate::machine::Machine;
use crate::policy::fault::FaultPlan;
use crate::policy::huge::{CowHuge, HugeAdvice, Orders};
use crate::space::AddressSpace;
use crate::space::Vm;
use crate::space::vma::ObjectId;
use crate::sync::{self, Ordering};
use crate::table::entry::Seen;
use crate::table::format::{Entry, Leaf};
use crate::table::place::PmdSlot;
use crate::table::pmd;

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// The walk ended above the leaf tables: maps a huge page if one is allowed and fits, else
    /// installs the missing table.
    #[cold]
    pub(crate) fn fix_hole(
        &self,
        fault: &Fault<'_>,
        hole: PmdSlot<'vm, M::Format>,
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Turn<'vm, M> {
        let Fault { here, request, found, .. } = *fault;
        if found.object() != ObjectId::NONE
            && let Some(pool) = self.vm.object_pool(found.object())
            && pool.order() == hole.order()
        {
            // Such mappings have no tables below (`space/pools.rs`).
            if found.is_private() {
                return self.fill_private_of_pool(fault, hole, prealloc);
            }
            return self.fill_shared(fault, hole.slot, prealloc);
        }
        let orders = self.orders_of_hole(fault, &hole, prealloc);
        if !orders.is_empty() {
            let question = fault.question(orders, self.vm.huge_now());
            match self.vm.machine.fault_policy(&question) {
                FaultPlan::NewFolio(Order::PMD) => return self.fill_huge(fault, hole, prealloc),
                FaultPlan::HugeZero if !request.wants_own() => {
                    return self.fill_huge_zero(fault, hole, prealloc);
                }
                FaultPlan::HugeZero | FaultPlan::NewFolio(_) => here.cpu.count(Event::PlanRejected),
                FaultPlan::ZeroFrame | FaultPlan::NewFrame => {}
            }
        }
        self.add_table(fault, hole.slot, prealloc)
    }

    /// The huge order, if knobs and VMA allow it, its whole span is inside the VMA, and it has not
    /// failed before.
    fn orders_of_hole(&self, fault: &Fault<'_>, hole: &PmdSlot<'_, M::Format>, prealloc: &Prealloc<'vm, M>) -> Orders {
        let found = fault.found;
        if hole.slot.level != 1 || found.object() != ObjectId::NONE || !found.covers(hole.span()) {
            return Orders::NONE;
        }
        self.huge_orders(found.flags()).and(Orders::PMD).and(prealloc.untried())
    }

    fn twin_of(&self, hole: &PmdSlot<'_, M::Format>) -> Twin {
        if self.vm.frames.twin(hole.table).is_none() { Twin::Missing } else { Twin::Present }
    }

    fn fill_huge(
        &self,
        fault: &Fault<'_>,
        hole: PmdSlot<'vm, M::Format>,
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Turn<'vm, M> {
        let Fault { here, request, found, .. } = *fault;
        let twin = self.twin_of(&hole);
        let Some((huge, parts)) = prealloc.huge_with_parts(twin) else {
            let advice = HugeAdvice::of(found.flags());
            let sub_page = (request.vpn.0 - hole.base.0) as u32;
            return Turn::Need(Need::Huge { sub_page, twin, advice });
        };
        let writes = request.access() == Access::Write;
        let leaf = Leaf { pfn: huge.first, rights: found.entry_rights(), accessed: true, dirty: writes };
        let folio = self.vm.frames.folio(huge.first);
        folio.assign(FrameKind::Anon, self.family, found.index_of(hole.base));
        if self.put_huge(fault, hole, leaf, parts, prealloc).is_err() {
            folio.unassign();
            prealloc.keep_huge(huge);
            return Turn::Raced;
        }
        here.rss.add(Rss::Anon, Vm::<M>::NR_SUB_FRAMES);
        here.rss.add(Rss::Huge, Vm::<M>::NR_SUB_FRAMES);
        here.cpu.count_size(SizeEvent::AnonFaultAlloc, Order::PMD);
        here.count_done(Event::ThpFaultAlloc);
        Turn::Done(FaultDone::Huge)
    }

    fn fill_huge_zero(
        &self,
        fault: &Fault<'_>,
        hole: PmdSlot<'vm, M::Format>,
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Turn<'vm, M> {
        let Fault { here, request, found, .. } = *fault;
        let twin = self.twin_of(&hole);
        let zero = self.vm.frames.huge_zero().get();
        // The frames are taken last: what is taken from the preallocation has to be used.
        let Some((zero, parts)) = zero.and_then(|zero| Some((zero, prealloc.parts(twin)?))) else {
            return Turn::Need(Need::HugeZero { twin });
        };
        let rights = found.entry_rights() - Rights::WRITE;
        let leaf = Leaf { pfn: zero, rights, accessed: true, dirty: false };
        if self.put_huge(fault, hole, leaf, parts, prealloc).is_err() {
            return Turn::Raced;
        }
        debug_assert!(request.access() != Access::Write);
        here.count_done(Event::ZeroMap);
        Turn::Done(FaultDone::HugeZero)
    }

    /// Makes the mapping, with its deposit. Unused frames stay in the preallocation.
    fn put_huge(
        &self,
        fault: &Fault<'_>,
        hole: PmdSlot<'vm, M::Format>,
        leaf: Leaf,
        parts: HugeParts,
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Result<(), Lost> {
        let Fault { here, found, .. } = *fault;
        let frames = &self.vm.frames;
        let mut nr_tables = 1;
        if let Some(twin) = parts.twin {
            if frames.put_twin(hole.table, twin) {
                nr_tables += 1;
            } else {
                prealloc.keep_twin(twin);
            }
        }
        if hole.slot.test_and_lock().is_err() {
            here.rss.add(Rss::Tables, nr_tables - 1);
            prealloc.keep_deposit(parts.deposit);
            return Err(Lost);
        }
        sync::fence();
        if self.data.generation.load(Ordering::Acquire) != found.generation() {
            hole.slot.publish_locked(Entry::None);
            here.rss.add(Rss::Tables, nr_tables - 1);
            prealloc.keep_deposit(parts.deposit);
            return Err(Lost);
        }
        frames.desc(parts.deposit).assign(FrameKind::Table, 0, u64::from(self.frame.0), 0);
        pmd::deposit::<M>(&self.vm.machine, frames, hole.table, hole.base, parts.deposit);
        hole.slot.publish_locked(Entry::Leaf(leaf));
        here.cpu.count_by(Event::TableInstall, nr_tables);
        here.rss.add(Rss::Tables, nr_tables);
        Ok(())
    }

    /// A huge mapping is present, but the access faulted.
    #[cold]
    pub(crate) fn fix_huge(
        &self,
        fault: &Fault<'_>,
        pmd: PmdSlot<'vm, M::Format>,
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Turn<'vm, M> {
        let Fault { here, request, found, .. } = *fault;
        let seen = pmd.slot.observe();
        match seen.entry {
            Entry::Leaf(leaf) if self.vm.frames.is_of_pool(leaf.pfn) => {
                self.fix_pool(fault, pmd, (seen, leaf), prealloc)
            }
            // An operation has published VMAs that end within the huge page, and will split it.
            // Until then no VMA's rights apply to all of it (I16).
            Entry::Leaf(_) if !found.covers(pmd.span()) => split(here, pmd, seen),
            Entry::Leaf(leaf) if request.wants_own() && !leaf.rights.contains(Rights::WRITE) => {
                self.cow_break_huge(fault, pmd, seen, leaf, prealloc)
            }
            Entry::Leaf(leaf) => self.widen(fault, pmd.slot, seen, leaf),
            Entry::Poison => self.fix_lost_of_pool(fault, pmd, seen, prealloc),
            Entry::None | Entry::Table(_) | Entry::Guard | Entry::Swap(_) => Turn::Raced,
            Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => Turn::Wait,
        }
    }

    /// A write to a huge page that is not writable: reused if only this space maps it, copied whole
    /// if that is wanted and possible, else split; the next turn handles the small page.
    fn cow_break_huge(
        &self,
        fault: &Fault<'_>,
        pmd: PmdSlot<'vm, M::Format>,
        seen: Seen,
        leaf: Leaf,
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Turn<'vm, M> {
        if self.is_sole_mapping(fault.inside, pmd.slot, leaf.pfn) {
            return self.reuse(fault, pmd.slot, seen);
        }
        let Fault { here, request, found, .. } = *fault;
        let from_zero = self.vm.is_huge_zero(leaf.pfn);
        let whole = from_zero || self.vm.huge_now().cow() == CowHuge::Copy;
        let orders = self.huge_orders(found.flags()).and(Orders::PMD).and(prealloc.untried());
        if !whole || orders.is_empty() {
            return split(here, pmd, seen);
        }
        let sub_page = (request.vpn.0 - pmd.base.0) as u32;
        let content = Content::zero_if(from_zero);
        let Some(huge) = prealloc.huge(content) else {
            let advice = HugeAdvice::of(found.flags());
            return Turn::Need(Need::HugeCopy { sub_page, content, advice });
        };
        // As for a small page.
        if !prealloc.has_told(pmd.span().nr_pages()) && self.has_subscribers() {
            prealloc.keep_huge(huge);
            return Turn::Tell(pmd.span());
        }
        let (rights, index) = (found.entry_rights(), found.index_of(pmd.base));
        match pmd.slot.take(seen) {
            Ok(old) => Turn::CopyHuge(CopyingHuge { pmd, old, to: huge.first, rights, index, sub_page }),
            Err(_) => {
                prealloc.keep_huge(huge);
                Turn::Raced
            }
        }
    }
}

/// Takes the mapping in order to split it. Not in a notice: the slow half refuses such a fault, and
/// nobody would resolve the entry.
fn split<'vm, M: Machine>(here: Here<'_>, pmd: PmdSlot<'vm, M::Format>, seen: Seen) -> Turn<'vm, M> {
    if here.cpu.is_telling() {
        return Turn::Again;
    }
    match pmd.slot.take(seen) {
        Ok(old) => Turn::Split(Splitting { pmd, old }),
        Err(_) => Turn::Raced,
    }
}
