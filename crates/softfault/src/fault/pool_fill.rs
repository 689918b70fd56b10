//! The second half of a fault on a private mapping of a pool's pages: the entry is `Busy`, and a page of the pool comes.
//!
//! ```text
//! zeroes       nothing was there
//! private      shootdown, grace: what others wrote until now belongs in the copy
//! object       shootdown, if the entry showed the page; others store to it meanwhile
//! then         a page of the pool ─▶ its bytes ─▶ head and tails ─▶ the entry
//! ```
//! Only a page without a claim may be refused. Then the entry is what it was.
//!
//! Locks on entry: none; a section, until the entry is `Busy`.

use super::context::Fault;
use super::prealloc::{Need, Prealloc};
use super::{FaultDone, FaultError, Turn};
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{Access, Pfn};
use crate::frame::{Claim, PoolId, SubpoolId};
use crate::machine::{Flush, Machine};
use crate::pace::Pace;
use crate::program;
use crate::space::vma::VmaFlags;
use crate::space::{AddressSpace, Vm};
use crate::table::format::{Entry, Leaf};
use crate::table::place::PmdSlot;

/// The bytes of the new page.
#[derive(Clone, Copy)]
pub(super) enum Origin {
    Zeroes,
    /// Those of a private page, which has counted the entry.
    Private(Leaf),
    /// Those of the object's own page, which the entry has named if `Shown`.
    Object(Leaf, Shown),
}

/// Whether an entry named the page before it was `Busy`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Yes,
    No,
}

/// An entry that the fault has made `Busy`. It has to be finished.
#[must_use]
pub(crate) struct PoolFill<'vm, M: Machine> {
    pmd: PmdSlot<'vm, M::Format>,
    origin: Origin,
    claim: Claim,
    pool: PoolId,
    /// The subpool of the object, which counts the page.
    subpool: Option<SubpoolId>,
    /// The new entry, but for its frame.
    leaf: Leaf,
    /// Index of its first page.
    index: u64,
    /// The one that faulted.
    sub_page: u32,
}

impl Fault<'_> {
    /// Returns the claim of an entry that is empty, or names a page of the object (I61).
    pub(super) fn claim_of_place(&self) -> Claim {
        if self.found.flags().contains(VmaFlags::NORESERVE) { Claim::Nothing } else { Claim::Reserved }
    }
}

impl Origin {
    /// Returns the old entry if it can be restored, else an empty one.
    fn before(self) -> Entry {
        match self {
            Origin::Object(from, Shown::Yes) => Entry::Leaf(from),
            Origin::Zeroes | Origin::Private(_) | Origin::Object(_, Shown::No) => Entry::None,
        }
    }
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Makes the empty entry `Busy`, for a page with these bytes.
    pub(super) fn claim_hole_of_pool(
        &self,
        fault: &Fault<'_>,
        hole: PmdSlot<'vm, M::Format>,
        origin: Origin,
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Turn<'vm, M> {
        if !prealloc.may_claim() {
            return Turn::Need(Need::Place);
        }
        if hole.slot.fill(Entry::Busy).is_err() {
            return Turn::Raced;
        }
        Turn::FillPool(self.new_pool_page(fault, hole, origin, fault.claim_of_place()))
    }

    pub(super) fn new_pool_page(
        &self,
        fault: &Fault<'_>,
        pmd: PmdSlot<'vm, M::Format>,
        origin: Origin,
        claim: Claim,
    ) -> PoolFill<'vm, M> {
        let Fault { request, found, .. } = *fault;
        let dirty = !matches!(origin, Origin::Zeroes) || request.access() == Access::Write;
        let pool = PoolId::of(pmd.order()).expect("I58: an entry covers one page of the pool");
        let subpool = self.vm.object_subpool(found.object());
        let leaf = Leaf { pfn: self.vm.frames.zero, rights: found.entry_rights(), accessed: true, dirty };
        let sub_page = (request.vpn.0 - pmd.base.0) as u32;
        PoolFill { pmd, origin, claim, pool, subpool, leaf, index: found.index_of(pmd.base), sub_page }
    }
}

impl<'vm, M: Machine> PoolFill<'vm, M> {
    /// # Errors
    ///
    /// The pool, or the subpool, has no page for a mapping without a reservation; the entry is as it was.
    pub(crate) fn finish(self, space: &AddressSpace<'vm, M>) -> Result<FaultDone, FaultError> {
        let vm = space.vm;
        self.leave_old(space);
        let (pool, nr_pages) = (self.pool, self.pmd.nr_pages());
        let pfn = vm.take_in(self.subpool, pool, self.claim).map_err(|refused| {
            self.pmd.slot.resolve(self.origin.before());
            FaultError::from(refused)
        })?;
        match self.origin {
            Origin::Zeroes => vm.zero_blocks(pfn, pool.order(), self.sub_page.into()),
            Origin::Private(from) => vm.copy_blocks(pfn, from.pfn, pool.order(), self.sub_page.into()),
            Origin::Object(from, _) => vm.copy_stored_to(pfn, from.pfn, nr_pages),
        }
        vm.make_pool_page(pool, pfn, space.family, self.index);
        self.pmd.slot.resolve(Entry::Leaf(Leaf { pfn, ..self.leaf }));
        let here = space.here();
        match self.origin {
            Origin::Zeroes => {
                here.rss.add(Rss::Anon, nr_pages);
                here.count_done(Event::HugetlbPrivate);
                return Ok(FaultDone::Huge);
            }
            Origin::Private(from) => vm.end_copy_of(from.pfn),
            Origin::Object(_, shown) => {
                here.rss.add(Rss::Anon, nr_pages);
                let nr_less = if shown == Shown::Yes { nr_pages } else { 0 };
                here.rss.add(Rss::Shmem, nr_less.wrapping_neg());
            }
        }
        here.count_done(Event::CowBreak);
        Ok(FaultDone::Copied)
    }

    /// Makes sure that nobody uses the old page through this entry any more.
    fn leave_old(&self, space: &AddressSpace<'vm, M>) {
        if self.origin.before() != Entry::None || matches!(self.origin, Origin::Private(_)) {
            space.shootdown(Flush::Pages(self.pmd.span()));
        }
        if let Origin::Private(_) = self.origin {
            // As for a small page: what others wrote until now belongs in the copy, and sections that saw the old
            // entry may still use the old frames.
            space.wait_after_shootdown();
        }
    }
}

impl<M: Machine> Vm<M> {
    /// Copies a page to which others may be storing.
    pub(crate) fn copy_stored_to(&self, to: Pfn, from: Pfn, nr_pages: u64) {
        let mut pace = Pace::new(&self.machine);
        for i in 0..nr_pages as u32 {
            pace.page();
            program::copy_frame(&self.machine, Pfn(to.0 + i), Pfn(from.0 + i));
        }
    }
}
