//! Faults on a private mapping of a pool's pages: a first touch, and a store to a page that others have, too.
//!
//! ```text
//! touch    section: entry, which is empty ─▶ Busy │ a page of the pool, zeroed ─▶ the entry
//! store    section: entry ─▶ Busy; the page: one entry less, COPIED │ shootdown, grace ─▶ a page of the pool, copied ─▶ the entry
//! ```
//! The entry comes before the page. So of those who want it one takes a page from the pool, and no other one is refused
//! the page that this one is about to give back. In a mapping that reserves, an empty entry is a claim to a page, and so
//! is each entry but one of a shared page (`frame/pool_page.rs`): only a first touch without a reservation is refused.
//!
//! Locks on entry: a section, whose token each [`Fault`] has; none for the second half.

use super::context::Fault;
use super::prealloc::{Need, Prealloc};
use super::{FaultDone, FaultError, Turn, Want};
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{Access, Order, Pfn, Rights};
use crate::clear;
use crate::frame::{Claim, NoCopy, PoolId};
use crate::machine::{Flush, Machine};
use crate::space::vma::VmaFlags;
use crate::space::{AddressSpace, Vm};
use crate::table::entry::Seen;
use crate::table::format::{Entry, Leaf};
use crate::table::place::PmdSlot;

/// An entry that the fault has made `Busy`. It has to be finished.
#[must_use]
pub(crate) struct PoolFill<'vm, M: Machine> {
    pmd: PmdSlot<'vm, M::Format>,
    /// The page that is copied, which has counted the entry.
    from: Option<Leaf>,
    claim: Claim,
    /// The new entry, but for its frame.
    leaf: Leaf,
    /// Of its first page.
    index: u64,
    /// The one that faulted.
    sub_page: u32,
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// The entry is empty.
    pub(crate) fn fill_private_of_pool(
        &self,
        fault: &Fault<'_>,
        hole: PmdSlot<'vm, M::Format>,
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Turn<'vm, M> {
        let Fault { request, found, .. } = *fault;
        let (id, index) = (found.object(), found.pgoff_of(request.vpn));
        if index >= self.vm.object_nr_pages(id) {
            return Turn::Refused(FaultError::BeyondObject);
        }
        if request.want == Want::Ready {
            // Pages are the mapping's own, and none is there.
            return Turn::Refused(FaultError::Missing);
        }
        if let Some(turn) = self.hugetlb_mutex(id, index, prealloc) {
            return turn;
        }
        if !prealloc.may_claim() {
            return Turn::Need(Need::Place);
        }
        if hole.slot.fill(Entry::Busy).is_err() {
            return Turn::Raced;
        }
        let is_owner = !found.flags().contains(VmaFlags::NORESERVE);
        let claim = if is_owner { Claim::Reserved } else { Claim::Nothing };
        Turn::FillPool(self.new_pool_page(fault, hole, None, claim))
    }

    /// A page is there, but the access faulted.
    pub(crate) fn fix_pool(
        &self,
        fault: &Fault<'_>,
        pmd: PmdSlot<'vm, M::Format>,
        (seen, leaf): (Seen, Leaf),
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Turn<'vm, M> {
        let Fault { request, found, .. } = *fault;
        if !request.wants_own() || leaf.rights.contains(Rights::WRITE) || !found.is_private() {
            return self.widen(fault, pmd.slot, seen, leaf);
        }
        let desc = self.vm.frames.desc(leaf.pfn);
        if desc.is_sole_of_pool() {
            return self.reuse(fault, pmd.slot, seen);
        }
        if desc.state().is_copied() {
            return Turn::Wait;
        }
        if !prealloc.may_claim() {
            return Turn::Need(Need::Place);
        }
        // As for a small page.
        if !prealloc.has_told(pmd.span().nr_pages()) && self.has_subscribers() {
            return Turn::Tell(pmd.span());
        }
        let Ok(old) = pmd.slot.take(seen) else { return Turn::Raced };
        match desc.begin_copy() {
            Ok(()) => Turn::FillPool(self.new_pool_page(fault, pmd, Some(old), Claim::Reserved)),
            Err(NoCopy::Alone | NoCopy::UnderWay) => {
                pmd.slot.resolve(Entry::Leaf(old));
                Turn::Raced
            }
        }
    }

    fn new_pool_page(
        &self,
        fault: &Fault<'_>,
        pmd: PmdSlot<'vm, M::Format>,
        from: Option<Leaf>,
        claim: Claim,
    ) -> PoolFill<'vm, M> {
        let Fault { request, found, .. } = *fault;
        let dirty = from.is_some() || request.access() == Access::Write;
        let leaf = Leaf { pfn: self.vm.frames.zero, rights: found.entry_rights(), accessed: true, dirty };
        let sub_page = (request.vpn.0 - pmd.base.0) as u32;
        PoolFill { pmd, from, claim, leaf, index: found.index_of(pmd.base), sub_page }
    }
}

impl<'vm, M: Machine> PoolFill<'vm, M> {
    /// # Errors
    ///
    /// The pool has no page for a mapping without a reservation; the entry is empty again.
    pub(crate) fn finish(self, space: &AddressSpace<'vm, M>) -> Result<FaultDone, FaultError> {
        let vm = space.vm;
        if self.from.is_some() {
            // As for a small page: what others wrote until now belongs in the copy, and sections that saw the old
            // entry may still use the old frames.
            space.shootdown(Flush::Pages(self.pmd.span()));
            space.wait_after_shootdown();
        }
        let Ok(pfn) = vm.hugetlb_take(PoolId::Of2M, self.claim) else {
            self.pmd.slot.resolve(Entry::None);
            return Err(FaultError::NoHugePage);
        };
        match self.from {
            Some(from) => self.copy(vm, pfn, from),
            None => vm.zero_blocks(pfn, Order::PMD, self.sub_page.into()),
        }
        vm.make_pool_page(pfn, space.family, self.index);
        self.pmd.slot.resolve(Entry::Leaf(Leaf { pfn, ..self.leaf }));
        let here = space.here();
        if let Some(from) = self.from {
            vm.end_copy_of(from.pfn);
            here.count_done(Event::CowBreak);
            return Ok(FaultDone::Copied);
        }
        here.rss.add(Rss::Anon, Vm::<M>::NR_SUB_FRAMES);
        here.count_done(Event::HugetlbPrivate);
        Ok(FaultDone::Huge)
    }

    fn copy(&self, vm: &Vm<M>, to: Pfn, from: Leaf) {
        let (order, hint) = (Order::PMD, Some(u64::from(self.sub_page)));
        // No frame here is known to be bad, so the copy has nobody to ask.
        let _ = clear::copy_folio(&vm.machine, to, from.pfn, order, hint, vm.clear_order(order), &mut |_| Ok(()));
    }
}
