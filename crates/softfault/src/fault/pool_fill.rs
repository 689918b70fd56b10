//! The second half of a fault on a private mapping of a pool's pages: the entry is `Busy`, and a page of the pool comes.
//!
//! ```text
//! zeroes       nothing was there
//! private      shootdown, grace: what others wrote until now belongs in the copy
//! object       shootdown, if the entry showed the page; others store to it meanwhile
//! then         a page of the pool, before these ─▶ its bytes ─▶ head and tails ─▶ the entry
//! lost         a claim ─▶ the entry is empty, and the fault begins again
//! ```
//! Only a page without a claim may be refused, and a copy may fail with the memory of the old page. Then the entry is what
//! it was. The owner of a private page takes it from the others then (`rmap/pool_owner.rs`).
//!
//! Locks on entry: none; a section, until the entry is `Busy`.

use super::context::Fault;
use super::prealloc::{Need, Prealloc};
use super::{FaultDone, Turn};
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{Access, Pfn};
use crate::frame::{Claim, PoolId, PoolRefusal, SubpoolId};
use crate::machine::{Flush, Machine};
use crate::mem::SourceFailed;
use crate::pace::Pace;
use crate::program;
use crate::rmap::MayTake;
use crate::source::slot::PageFrame;
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
    /// None yet: the place has to have a claim first.
    Lost,
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
    /// Whether the mapping reserves: a private page is its, and not its children's.
    is_owner: bool,
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
    /// Returns the old entry.
    fn before(self) -> Entry {
        match self {
            Origin::Object(from, Shown::Yes) | Origin::Private(from) => Entry::Leaf(from),
            Origin::Zeroes | Origin::Object(_, Shown::No) => Entry::None,
            Origin::Lost => Entry::Poison,
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
        let is_owner = fault.claim_of_place() == Claim::Reserved;
        PoolFill { pmd, origin, claim, is_owner, pool, subpool, leaf, index: found.index_of(pmd.base), sub_page }
    }
}

impl<'vm, M: Machine> PoolFill<'vm, M> {
    /// Is refused if the pool, or the subpool, has no page for a mapping without a reservation, or the page cannot be
    /// copied; the entry is as it was. The owner of the page takes it from others, if it `may_take` by now.
    pub(crate) fn finish(self, space: &AddressSpace<'vm, M>, may_take: Option<&MayTake<'vm, M>>) -> Turn<'vm, M> {
        let vm = space.vm;
        let (pool, nr_pages) = (self.pool, self.pmd.nr_pages());
        if let Origin::Lost = self.origin {
            return self.claim_again(vm);
        }
        let pfn = match vm.take_in(self.subpool, pool, self.claim) {
            Ok(pfn) => pfn,
            Err(refused) => return self.without_page(space, refused, may_take),
        };
        self.leave_old(space);
        if let Err(failed) = self.write_bytes(vm, pfn) {
            return self.abandon(vm, pfn, failed);
        }
        vm.make_pool_page(pool, pfn, space.family, self.index);
        self.pmd.slot.resolve(Entry::Leaf(Leaf { pfn, ..self.leaf }));
        let here = space.here();
        match self.origin {
            Origin::Zeroes | Origin::Lost => {
                here.rss.add(Rss::Anon, nr_pages);
                here.count_done(Event::HugetlbPrivate);
                return Turn::Done(FaultDone::Huge);
            }
            Origin::Private(from) => vm.end_copy_of(from.pfn),
            Origin::Object(_, shown) => {
                here.rss.add(Rss::Anon, nr_pages);
                let nr_less = if shown == Shown::Yes { nr_pages } else { 0 };
                here.rss.add(Rss::Shmem, nr_less.wrapping_neg());
            }
        }
        here.count_done(Event::CowBreak);
        Turn::Done(FaultDone::Copied)
    }

    /// The pool has no page, so the entry stays what it was, unless its owner has the old page alone now.
    #[cold]
    fn without_page(
        self,
        space: &AddressSpace<'vm, M>,
        refused: PoolRefusal,
        may_take: Option<&MayTake<'vm, M>>,
    ) -> Turn<'vm, M> {
        let (vm, mut now) = (space.vm, self.origin.before());
        let mut turn = Turn::Refused(refused.into());
        if let Origin::Private(from) = self.origin {
            // The entry counts again: nobody else has the last one.
            vm.abandon_copy_of(from.pfn);
            if self.is_owner {
                let page = PageFrame { pfn: from.pfn, order: self.pool.order() };
                turn = match may_take.map(|how| vm.take_from_others(page, how)) {
                    Some(Ok(())) if vm.frames.desc(from.pfn).is_sole_of_pool() => {
                        now = Entry::Leaf(Leaf { pfn: from.pfn, ..self.leaf });
                        space.here().count_done(Event::CowReuse);
                        Turn::Done(FaultDone::Reused)
                    }
                    // Another operation owns an entry for a moment.
                    Some(Ok(())) => Turn::Wait,
                    None | Some(Err(_)) => Turn::PoolIsDry(page),
                };
            }
        }
        self.pmd.slot.resolve(now);
        turn
    }

    /// An empty entry of a mapping that reserves is a claim.
    fn claim_again(self, vm: &Vm<M>) -> Turn<'vm, M> {
        let claimed = vm.reserve_in(self.subpool, self.pool, 1);
        self.pmd.slot.resolve(if claimed.is_ok() { Entry::None } else { Entry::Poison });
        claimed.map_or_else(|refused| Turn::Refused(refused.into()), |()| Turn::Again)
    }

    fn write_bytes(&self, vm: &Vm<M>, to: Pfn) -> Result<(), SourceFailed> {
        let (order, sub_page) = (self.pool.order(), self.sub_page.into());
        match self.origin {
            Origin::Zeroes | Origin::Lost => {
                vm.zero_blocks(to, order, sub_page);
                Ok(())
            }
            Origin::Private(from) => vm.copy_blocks(to, from.pfn, order, sub_page),
            Origin::Object(from, _) => vm.copy_stored_to(to, from.pfn, self.pmd.nr_pages()),
        }
    }

    /// The old page cannot be read. The new one is free in the pool, and the claim is what it was.
    #[cold]
    fn abandon(self, vm: &Vm<M>, to: Pfn, SourceFailed(pfn): SourceFailed) -> Turn<'vm, M> {
        vm.free_pool_page(to, self.claim);
        if let Origin::Private(from) = self.origin {
            vm.abandon_copy_of(from.pfn);
        }
        self.pmd.slot.resolve(self.origin.before());
        Turn::SourceFailed(pfn)
    }

    /// Makes sure that nobody uses the old page through this entry any more.
    fn leave_old(&self, space: &AddressSpace<'vm, M>) {
        if self.origin.before() != Entry::None {
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
    pub(crate) fn copy_stored_to(&self, to: Pfn, from: Pfn, nr_pages: u64) -> Result<(), SourceFailed> {
        let mut pace = Pace::new(&self.machine);
        (0..nr_pages as u32).try_for_each(|i| {
            pace.page();
            program::copy_frame(&self.machine, Pfn(to.0 + i), Pfn(from.0 + i))
        })
    }
}
