//! Batches: one fault maps adjacent frames at adjacent pages, for orders between a base page and a
//! huge page.
//!
//! A batch is not a folio: each frame has its own descriptor, entry and count, so nothing ever has
//! to be split. It saves up to 255 faults, zeroes all frames at once, and gives adjacent frames to
//! hardware that merges adjacent translations. The entries are filled one by one. If another CPU
//! fills one first, the frame meant for it is freed.
//!
//! Locks on entry: a section, whose token each [`Fault`] has.

use super::context::Fault;
use super::prealloc::{Need, Prealloc};
use super::{FaultDone, Turn};
use crate::account::Event;
use crate::account::rss::Rss;
use crate::account::sizes::SizeEvent;
use crate::addr::{Access, Order, PageRange, Pfn, Vpn};
use crate::frame::{Content, FrameKind};
use crate::machine::Machine;
use crate::policy::fault::FaultPlan;
use crate::policy::huge::Orders;
use crate::space::AddressSpace;
use crate::table::format::{Entry, Leaf};
use crate::table::walk;
use crate::tunables::FaultLocking;

/// The aligned pages of that order around `vpn`.
pub(super) fn aligned(vpn: Vpn, order: Order) -> PageRange {
    let start = Vpn(vpn.0 & !(order.nr_pages() - 1));
    PageRange::new(start, Vpn(start.0 + order.nr_pages()))
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Maps the page with its neighbours, if a larger order is allowed and fits; `None` if it has
    /// to be a base page.
    #[cold]
    #[inline(never)]
    pub(crate) fn fill_batch(&self, fault: &Fault<'_>, prealloc: &mut Prealloc<'vm, M>) -> Option<Turn<'vm, M>> {
        if self.vm.tunables.fault_locking != FaultLocking::Lockfree {
            return None;
        }
        let Fault { here, request, .. } = *fault;
        let orders = self.orders_around(fault, prealloc);
        // An order that no block offers costs one or two loads and no further turn.
        let there = orders.filter(|order| prealloc.has_batch(order) || self.vm.may_have_run(order));
        for order in orders.iter().take_while(|order| !there.contains(*order)) {
            prealloc.give_up(order);
            here.cpu.count_size(SizeEvent::AnonFaultFallback, order);
        }
        if there.is_empty() {
            return None;
        }
        let question = fault.question(there, self.vm.huge_now());
        let order = match self.vm.machine.fault_policy(&question) {
            FaultPlan::NewFolio(order) if there.contains(order) => order,
            FaultPlan::NewFolio(_) | FaultPlan::HugeZero => {
                here.cpu.count(Event::PlanRejected);
                return None;
            }
            FaultPlan::ZeroFrame | FaultPlan::NewFrame => return None,
        };
        let range = aligned(request.vpn, order);
        let Some(first) = prealloc.private_batch(order) else {
            return Some(Turn::Need(Need::Batch { order, sub_page: (request.vpn.0 - range.start.0) as u32 }));
        };
        Some(self.fill_range(fault, range, first, order))
    }

    /// The orders whose aligned pages lie in the VMA and are all empty. Each entry is read once,
    /// the nearest first: the pages of one order are part of those of the next.
    fn orders_around(&self, fault: &Fault<'_>, prealloc: &Prealloc<'vm, M>) -> Orders {
        let (found, table) = (fault.found, fault.leaf_table());
        let allowed = self.huge_orders(found.flags()).and(Orders::MID).and(prealloc.untried());
        let is_none = |vpn| matches!(self.leaf_at(table, Vpn(vpn)).observe().entry, Entry::None);
        let mut seen = PageRange::new(fault.request.vpn, fault.request.vpn);
        let mut is_free = |order: Order| {
            let range = aligned(fault.request.vpn, order);
            let (before, after) = (range.start.0..seen.start.0, seen.end.0..range.end.0);
            seen = range;
            found.covers(range) && range.nr_pages() < Self::NR_LEAVES && before.chain(after).all(is_none)
        };
        let orders = (0..Order::PMD.0).map(Order).filter(|order| allowed.contains(*order));
        orders.take_while(|order| is_free(*order)).fold(Orders::NONE, |all, order| Orders(all.0 | 1 << order.0))
    }

    /// Pages of a leaf table.
    const NR_LEAVES: u64 = crate::space::Vm::<M>::NR_SUB_FRAMES;

    pub(super) fn leaf_at(&self, table: Pfn, vpn: Vpn) -> crate::table::entry::Slot<'vm, M::Format> {
        walk::leaf_slot(&self.vm.machine, table, vpn)
    }

    fn fill_range(&self, fault: &Fault<'_>, range: PageRange, first: Pfn, order: Order) -> Turn<'vm, M> {
        let Fault { here, request, found, .. } = *fault;
        let table = fault.leaf_table();
        let rights = found.entry_rights();
        // Hardware that leaves A/D bits to software would fault for each neighbour.
        let marks_all = !self.vm.machine.marks_entries();
        let mut nr_filled = 0;
        let mut has_page = false;
        let descs = self.vm.frames.descs_from(first, range.nr_pages());
        for (i, vpn) in (range.start.0..range.end.0).map(Vpn).enumerate() {
            let pfn = Pfn(first.0 + i as u32);
            let is_page = vpn == request.vpn;
            let desc = descs.map_or_else(|| self.vm.frames.desc(pfn), |descs| &descs[i]);
            desc.assign(FrameKind::Anon, 1, self.family, found.index_of(vpn));
            let accessed = is_page || marks_all;
            let dirty = accessed && request.access() == Access::Write;
            let leaf = Leaf { pfn, rights, accessed, dirty };
            if self.leaf_at(table, vpn).fill(Entry::Leaf(leaf)).is_ok() {
                nr_filled += 1;
                has_page |= is_page;
            } else {
                desc.clear();
                self.vm.release_one(pfn, Content::Zero);
            }
        }
        here.rss.add(Rss::Anon, nr_filled);
        if !has_page {
            return Turn::Raced;
        }
        here.cpu.count_size(SizeEvent::AnonFaultAlloc, order);
        here.count_done(Event::AnonInstall);
        Turn::Done(FaultDone::Folio(order))
    }
}
