//! Faults on a private mapping of a pool's pages: a first touch, and a store to a page that others have, too.
//!
//! ```text
//! touch    section: entry, which is empty ─▶ Busy │ a page of the pool, zeroed ─▶ the entry
//! store    section: entry ─▶ Busy; the page: one entry less, COPIED │ a page of the pool ─▶ shootdown, grace ─▶ copied ─▶ the entry
//! dry      the pool has none for the copy: refused; the owner of the page takes it from the others       rmap/pool_owner.rs
//! lost     a place that reserves and has no claim: section: entry ─▶ Busy │ a claim ─▶ the entry is empty, or lost still
//! ```
//! Where the mapping shows an object that has the page, see `pool_object.rs`. For the second half of both see `pool_fill.rs`.
//!
//! The entry comes before the page. So of those who want it one takes a page from the pool, and no other one is refused
//! the page that this one is about to give back. In a mapping that reserves, an empty entry is a claim to a page, and a page is
//! its owner's (`frame/pool_page.rs`): only a mapping without a reservation is refused.
//!
//! Locks on entry: a section, whose token each [`Fault`] has.

use super::context::Fault;
use super::pool_fill::Origin;
use super::prealloc::{Need, Prealloc};
use super::{FaultError, Turn, Want};
use crate::addr::Rights;
use crate::frame::{Claim, FrameKind, NoCopy};
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::table::entry::Seen;
use crate::table::format::{Entry, Leaf};
use crate::table::place::PmdSlot;

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
        if let Some(turn) = self.hugetlb_mutex(id, index, prealloc) {
            return turn;
        }
        if let Some(turn) = self.show_object_of_pool(fault, (id, index), hole, prealloc) {
            return turn;
        }
        if request.want == Want::Ready {
            // Other pages are the mapping's own, and none is there.
            return Turn::Refused(FaultError::Missing);
        }
        self.claim_hole_of_pool(fault, hole, Origin::Zeroes, prealloc)
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
        if desc.state().kind() == FrameKind::Shared {
            return self.copy_shown_of_pool(fault, pmd, seen, prealloc);
        }
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
            Ok(()) => Turn::FillPool(self.new_pool_page(fault, pmd, Origin::Private(old), Claim::Nothing)),
            Err(NoCopy::Alone | NoCopy::UnderWay) => {
                pmd.slot.resolve(Entry::Leaf(old));
                Turn::Raced
            }
        }
    }

    /// The place has lost its page. A mapping that reserves has lost a claim, and is given one if there is one by now.
    pub(crate) fn fix_lost_of_pool(
        &self,
        fault: &Fault<'_>,
        pmd: PmdSlot<'vm, M::Format>,
        seen: Seen,
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Turn<'vm, M> {
        if fault.claim_of_place() == Claim::Nothing {
            return Turn::Refused(FaultError::Taken);
        }
        if fault.request.want == Want::Ready {
            return Turn::Refused(FaultError::Missing);
        }
        if !prealloc.may_claim() {
            return Turn::Need(Need::Place);
        }
        if pmd.slot.replace(seen, Entry::Busy).is_err() {
            return Turn::Raced;
        }
        Turn::FillPool(self.new_pool_page(fault, pmd, Origin::Lost, Claim::Nothing))
    }
}
