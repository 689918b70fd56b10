//! Subpools: the share of a pool that the files of one hugetlbfs have, with a largest size and a smallest one.
//!
//! ```text
//! get     lock ─▶ used + n above the most? refused ─▶ claims to the pool, as many as are needed above the least ─▶ used += n
//! put     the page is free in the pool ─▶ used -= n ─▶ claims above the least go back to the pool
//! end     used and holders are 0: the claims of the least go back, the frame is free
//! ```
//! `used` counts pages of the files, and claims of theirs. Below the least size the subpool itself has the claims: as many
//! as `used` is below it. So one word says both, and its change is the moment at which claims pass to a file or
//! back (I60).
//!
//! A get takes claims before it counts them. `used` falls meanwhile, or stays, since gets are one at a time; so as many are
//! needed as were taken, or fewer. A get that is refused has changed nothing at any moment: no other get is refused
//! because of claims that it held. A put takes no lock: it comes from wherever pages are freed.
//!
//! A page says in `link` of its first descriptor which subpool it is of, since it may outlive its object (pins).
//! `holders` counts the handle, objects, and `used` once more: the last one ends the subpool.
//!
//! Source: the subpools of hugetlbfs in Linux (mount options `size=`, `min_size=`).
//!
//! Locks on entry: none, no section. `getting` is taken last, with words of missing pages claimed.

use super::pool_words::{Claim, NoHugePages};
use super::{Fill, FrameKind, Memory, MetaUse, OutOfFrames, PoolId, Source};
use crate::addr::{OptPfn, Pfn};
use crate::lock::{self, Spin};
use crate::machine::{LockKind, Machine};
use crate::mem;
use crate::sync::{Ordering, Word};

/// The frame with the words of a subpool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SubpoolId(pub(crate) Pfn);

/// Limits of a subpool, in pages of its pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SubpoolLimits {
    /// The most that its objects have, if there is a limit.
    pub most: Option<u64>,
    /// How many are promised to them from the beginning.
    pub least: u64,
}

impl SubpoolLimits {
    /// No more than so many.
    #[must_use]
    pub const fn with_most(self, most: Option<u64>) -> SubpoolLimits {
        SubpoolLimits { most, ..self }
    }
    /// So many are promised.
    #[must_use]
    pub const fn with_least(self, least: u64) -> SubpoolLimits {
        SubpoolLimits { least, ..self }
    }
}

/// The words of a subpool, in a frame of its own; the rest of the frame is unused.
#[repr(C, align(64))]
pub(crate) struct SubpoolData {
    /// Pages of its objects, and their claims.
    pub(crate) used: Word,
    /// The handle, objects, and `used`.
    pub(crate) holders: Word,
    /// Held during a get. Spins: faults take it with a word claimed, and others may be spinning for that (I45).
    getting: Word,
    /// Set at the beginning, as all that follow: the limits.
    most: Word,
    least: Word,
    pool: Word,
    /// 1 while there is a handle.
    pub(crate) handles: Word,
    pad: Word,
}

/// Why a subpool, or its pool, gave nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PoolRefusal {
    NoHugePages,
    SubpoolFull,
}

impl SubpoolData {
    pub(crate) fn pool(&self) -> PoolId {
        PoolId::ALL[self.pool.get() as usize]
    }

    pub(crate) fn limits(&self) -> SubpoolLimits {
        let most = self.most.get();
        SubpoolLimits { most: (most != u64::MAX).then_some(most), least: self.least.get() }
    }

    /// Claims that it has itself, when so many are used.
    fn nr_kept(&self, used: u64) -> u64 {
        self.least.get().saturating_sub(used)
    }

    /// Claims of its own. Exact at rest.
    pub(crate) fn nr_claims(&self) -> u64 {
        self.nr_kept(self.used.load(Ordering::Acquire))
    }

    /// Whether nobody is in a get. For the checker.
    pub(crate) fn is_at_rest(&self) -> bool {
        lock::is_free(&self.getting)
    }
}

impl<M: Machine> Memory<M> {
    pub(crate) fn subpool(&self, id: SubpoolId) -> &SubpoolData {
        mem::view(&self.machine, id.0, 0)
    }

    /// Makes a subpool, which the caller has the handle of.
    ///
    /// # Errors
    ///
    /// There is no frame, or the pool has too few pages for the least size; nothing has changed.
    pub(crate) fn new_subpool(
        &self,
        pool: PoolId,
        limits: SubpoolLimits,
        source: &Source<'_, M>,
    ) -> Result<Result<SubpoolId, NoHugePages>, OutOfFrames> {
        let frame = source.frame(Fill::Fixed)?;
        if let Err(refused) = self.hugetlb_reserve(pool, limits.least) {
            self.give_back(frame, Fill::Fixed);
            return Ok(Err(refused));
        }
        let data = self.subpool(SubpoolId(frame));
        data.holders.set(1);
        data.handles.set(1);
        data.most.set(limits.most.unwrap_or(u64::MAX));
        data.least.set(limits.least);
        data.pool.set(pool as u64);
        self.frames.desc(frame).assign(FrameKind::Meta, 0, 0, MetaUse::Subpool as u64);
        Ok(Ok(SubpoolId(frame)))
    }

    /// Adds an object of the subpool. The caller has the handle.
    pub(crate) fn subpool_join(&self, id: SubpoolId) {
        self.subpool(id).holders.fetch_add(1, Ordering::Relaxed);
    }

    /// Drops the handle, objects or used pages. The last one ends the subpool.
    pub(crate) fn subpool_leave(&self, id: SubpoolId, nr: u64) {
        let data = self.subpool(id);
        if data.holders.fetch_sub(nr, Ordering::AcqRel) != nr {
            return;
        }
        debug_assert_eq!(data.used.get(), 0, "I60: what is used is counted");
        self.hugetlb_unreserve(data.pool(), data.least.get());
        self.give_back(id.0, Fill::Raw);
    }

    /// Refuses more pages of one object than the subpool, or the pool, can have: before anything is made for each of them.
    ///
    /// # Errors
    ///
    /// [`PoolRefusal`].
    pub(crate) fn can_have(&self, id: Option<SubpoolId>, pool: PoolId, nr: u64) -> Result<(), PoolRefusal> {
        match id {
            Some(id) if nr > self.subpool(id).most.get() => Err(PoolRefusal::SubpoolFull),
            _ if nr > self.hugetlb_most(pool) => Err(PoolRefusal::NoHugePages),
            _ => Ok(()),
        }
    }

    /// Claims so many pages for an object, all or none.
    ///
    /// # Errors
    ///
    /// [`PoolRefusal`]; nothing has changed.
    pub(crate) fn reserve_in(&self, id: Option<SubpoolId>, pool: PoolId, nr: u64) -> Result<(), PoolRefusal> {
        let reserve = |nr| self.hugetlb_reserve(pool, nr).map_err(|NoHugePages| PoolRefusal::NoHugePages);
        let Some(id) = id else { return reserve(nr) };
        let data = self.subpool(id);
        let _getting = Spin::lock(LockKind::Subpool, &data.getting, &self.machine);
        let mut seen = data.used.load(Ordering::Acquire);
        if seen.saturating_add(nr) > data.most.get() {
            return Err(PoolRefusal::SubpoolFull);
        }
        let needed = |seen| nr - (data.nr_kept(seen) - data.nr_kept(seen + nr));
        let nr_taken = needed(seen);
        reserve(nr_taken)?;
        data.holders.fetch_add(nr, Ordering::Relaxed);
        while let Err(now) = data.used.compare_exchange(seen, seen + nr, Ordering::AcqRel, Ordering::Acquire) {
            seen = now;
        }
        self.hugetlb_unreserve(pool, nr_taken - needed(seen));
        Ok(())
    }

    /// Ends claims of an object.
    pub(crate) fn unreserve_in(&self, id: Option<SubpoolId>, pool: PoolId, nr: u64) {
        let Some(id) = id else { return self.hugetlb_unreserve(pool, nr) };
        if nr == 0 {
            return;
        }
        let data = self.subpool(id);
        let before = data.used.fetch_sub(nr, Ordering::AcqRel);
        debug_assert!(before >= nr, "I60: claims and pages are counted");
        self.hugetlb_unreserve(pool, nr - (data.nr_kept(before - nr) - data.nr_kept(before)));
        self.subpool_leave(id, nr);
    }

    /// Takes a page for a fault, with a reservation or without. Its content may be other than zero.
    ///
    /// # Errors
    ///
    /// [`PoolRefusal`]; never with a reservation.
    pub(crate) fn take_in(&self, id: Option<SubpoolId>, pool: PoolId, claim: Claim) -> Result<Pfn, PoolRefusal> {
        if claim == Claim::Nothing {
            self.reserve_in(id, pool, 1)?;
        }
        let first = self.pool_take(pool);
        if let Some(id) = id {
            self.frames.desc(first).link.set(OptPfn::some(id.0).to_word());
        }
        Ok(first)
    }

    /// The subpool that counts a page, which stays meanwhile.
    pub(crate) fn subpool_of(&self, first: Pfn) -> Option<SubpoolId> {
        OptPfn::from_word(self.frames.desc(first).link.get()).get().map(SubpoolId)
    }

    /// The page, which the caller owns, is about to be free in the pool.
    pub(super) fn forget_subpool(&self, first: Pfn) -> Option<SubpoolId> {
        let id = self.subpool_of(first);
        self.frames.desc(first).link.set(0);
        id
    }

    /// Returns a page that is not used any more to the pool and to its subpool. The caller owns it; its descriptor is
    /// cleared but for the link.
    pub(crate) fn put_in(&self, pool: PoolId, first: Pfn) {
        let id = self.forget_subpool(first);
        if id.is_none() {
            return self.hugetlb_put(pool, first);
        }
        // Free before the claim to it is the subpool's.
        self.pool_soil(pool, first);
        self.pool_put(pool, first);
        self.unreserve_in(id, pool, 1);
    }
}
