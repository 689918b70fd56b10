//! The counts of the pools of huge pages: pages, and claims to them. `pool_surplus.rs` has the pages beyond a pool's size.
//!
//! ```text
//! reserve     unreserved -= n, or pages come from free memory as surplus, or refused
//! take        with a reservation: a free page; else: reserve 1 first
//! put         surplus > 0: surplus -= 1, to free memory; else: free in the pool, then unreserved += 1
//! unreserve   unreserved += n; surplus pages that are free and unreserved go back to free memory
//! shrink      unreserved -= 1, to free memory; none: a page becomes surplus; is one unreserved by now? it goes
//! ```
//! A reservation is a claim to a page that is free in the pool. `unreserved` counts the free pages without a
//! claim. It is lowered before a page is taken, and raised after one was put back. So there are always as many free
//! pages as claims (I57), and the owner of a claim finds one. A fault with a reservation writes no word that CPUs share:
//! it takes a page, and the claim ends with it.
//!
//! The pages of the pool's size (*persistent*) and those beyond it (*surplus*) are counted in one word, so that no reader
//! sees half of a change of size. Numbers of free and reserved pages are sums, exact at rest.
//!
//! The descriptors of the tails of a persistent page are free memory. A page goes to free memory when there are frames
//! for them, and stays in the pool otherwise, with all counts as they were. Surplus pages keep theirs: they come to
//! callers that hold frames, which cannot wait until nobody sees them.
//!
//! Source: the counters are those of Linux (Documentation/admin-guide/mm/hugetlbpage.rst); `resv_hugepages` is the number
//! of free pages less `unreserved`.
//!
//! Locks on entry: none, no section.

use super::pool_words::SURPLUS_ONE;
use super::{FrameList, Memory, OutOfFrames, PoolId};
use crate::addr::{BlockId, Pfn};
use crate::machine::Machine;
use crate::policy::homes;
use crate::sync::{self, Ordering};

/// The counters of a pool of huge pages, as in `/sys/kernel/mm/hugepages` of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HugetlbCounts {
    /// `nr_hugepages`: all pages of the pool, surplus ones included.
    pub nr: u64,
    /// `free_hugepages`: those that no mapping or object has.
    pub free: u64,
    /// `resv_hugepages`: of the free ones, those that were promised to mappings.
    pub reserved: u64,
    /// `surplus_hugepages`: pages beyond the size that was set. They go when they are freed.
    pub surplus: u64,
    /// `nr_overcommit_hugepages`: the limit of such pages.
    pub overcommit: u64,
}

impl<M: Machine> Memory<M> {
    /// Returns the pool of a frame, which the caller owns, or which a slot names in the open section.
    pub(crate) fn pool_of(&self, pfn: Pfn) -> Option<PoolId> {
        PoolId::of(self.frames.blocks.at(crate::addr::BlockId::of(pfn)).pool_order()?)
    }

    /// Returns the pool of a page that is known to be of one. As [`pool_of`](Self::pool_of).
    pub(crate) fn pool_of_page(&self, first: Pfn) -> PoolId {
        self.pool_of(first).expect("I57: a page stays in its pool while it is used")
    }

    /// Ends claims: their pages are unreserved.
    pub(crate) fn hugetlb_unreserve(&self, id: PoolId, nr: u64) {
        if nr > 0 {
            self.pool(id).unreserved.fetch_add(nr, Ordering::AcqRel);
            // Before the look for surplus pages: a CPU that makes one looks for free pages afterwards.
            sync::fence();
            let nr_surplus = self.pool(id).nr_surplus().min(nr);
            (0..nr_surplus).for_each(|_| _ = self.trim_surplus(id));
        }
    }

    /// Returns a page that is not used any more, and to which there is no claim.
    pub(crate) fn hugetlb_put(&self, id: PoolId, first: Pfn) {
        self.pool_soil(id, first);
        if !self.pool(id).lose_surplus() {
            self.add_free(id, first);
            // A page may have become surplus since, and found none that is free.
            sync::fence();
            self.trim_surplus(id);
        } else if !self.release_surplus(id, first) {
            self.pool(id).regain_surplus();
        }
    }

    /// Adds a persistent page, up to `nr`: a surplus one, or from free memory. `false` if there are as many. Adds the
    /// frames that had the descriptors of its tails to `former`.
    pub(crate) fn hugetlb_grow(&self, id: PoolId, nr: u64, former: &mut FrameList) -> Result<bool, OutOfFrames> {
        let pool = self.pool(id);
        if pool.sizes().persistent() >= nr {
            return Ok(false);
        }
        let gathering = self.gathering();
        if pool.keep_surplus() {
            return Ok(true);
        }
        let cpu = homes::of_pool_page(pool.sizes().persistent(), nr, self.cpus.len() as u64);
        let (first, _gathering) = match self.pool_bring_if_found(id, cpu) {
            Ok(first) => (first, Some(gathering)),
            Err(_) => {
                drop(gathering);
                match self.pool_bring(id) {
                    Ok(first) => (first, None),
                    // A reservation may have taken the last one meanwhile.
                    Err(_) if pool.keep_surplus() => return Ok(true),
                    Err(refused) => return Err(refused),
                }
            }
        };
        self.drop_tail_descs_into(first, id.order(), former);
        pool.sizes.fetch_add(1, Ordering::AcqRel);
        self.add_free(id, first);
        Ok(true)
    }

    /// Removes a persistent page, down to `nr`: a free one that is unreserved goes to free memory, or else one becomes
    /// surplus. `false` if there are as few.
    ///
    /// # Errors
    ///
    /// There are no frames for the descriptors of its tails; page and counts are as they were.
    pub(crate) fn hugetlb_shrink(&self, id: PoolId, nr: u64) -> Result<bool, OutOfFrames> {
        let (pool, _gathering) = (self.pool(id), self.gathering());
        if pool.sizes().persistent() <= nr {
            return Ok(false);
        }
        if !pool.try_reserve(1) {
            let is_less = pool.change(|seen| (seen.persistent() > nr).then(|| seen.0 - 1 + SURPLUS_ONE));
            // A page that was put back meanwhile stays otherwise, surplus and free.
            sync::fence();
            if pool.nr_unreserved() > 0 {
                self.trim(id);
            }
            return Ok(is_less);
        }
        let first = self.pool_take(id);
        // Before the count: a refusal has changed nothing.
        self.pool_make_whole(id, first).inspect_err(|_| self.add_free(id, first))?;
        if pool.change(|seen| (seen.persistent() > nr).then(|| seen.0 - 1)) {
            self.pool_release(id, first).inspect_err(|_| debug_assert!(false, "it has its descriptors"))?;
            return Ok(true);
        }
        self.add_free(id, first);
        Ok(false)
    }

    /// Makes 512 pages of 2 MiB of a persistent one of 1 GiB that is free and unreserved. `false` if there is none.
    ///
    /// # Errors
    ///
    /// There are no frames for the descriptors of 511 pages; page and counts are as they were.
    pub(crate) fn hugetlb_demote(&self) -> Result<bool, OutOfFrames> {
        let (from, to, _gathering) = (PoolId::Of1G, PoolId::Of2M, self.gathering());
        if self.pool(from).sizes().persistent() == 0 || !self.pool(from).try_reserve(1) {
            return Ok(false);
        }
        let first = self.pool_take(from);
        if self.frames.lacks_tail_descs(BlockId::of(first)) {
            self.make_heads(first, from.order()).inspect_err(|_| self.add_free(from, first))?;
        }
        if !self.pool(from).change(|seen| (seen.persistent() > 0).then(|| seen.0 - 1)) {
            debug_assert!(false, "the caller has `resize`");
            self.add_free(from, first);
            return Ok(false);
        }
        // Before they are free: a page that is found counts.
        self.pool(to).sizes.fetch_add(from.order().nr_pages() / to.order().nr_pages(), Ordering::AcqRel);
        self.for_each_block(first, from.order(), &mut |b| self.frames.blocks.at(b).become_page());
        self.for_each_block(first, from.order(), &mut |b| self.add_free(to, b.first_frame()));
        Ok(true)
    }

    pub(crate) fn hugetlb_set_overcommit(&self, id: PoolId, nr: u64) {
        self.pool(id).overcommit.store(nr, Ordering::Release);
    }

    /// No fewer pages than the pool can have without a change of its size. A CPU that gives a surplus page back takes it out of
    /// the count first, and may have to keep it: one for each CPU.
    pub(crate) fn hugetlb_most(&self, id: PoolId) -> u64 {
        let (sizes, most) = (self.pool(id).sizes(), self.pool(id).most_surplus());
        sizes.persistent() + sizes.surplus() + most + self.cpus.len() as u64
    }

    /// Number of persistent pages.
    pub(crate) fn nr_persistent(&self, id: PoolId) -> u64 {
        self.pool(id).sizes().persistent()
    }

    /// The numbers for programs. They are read one after the other, and one is a sum: so while others change them, the sum may be
    /// below 0 or above the size, and fewer may seem to be free than are unreserved. What is shown keeps within the bounds that
    /// programs know. No check is made of these numbers but of the size: the checker, and tests that stop all CPUs, have
    /// the sum and `unreserved` as they are.
    pub(crate) fn hugetlb_counts_of(&self, id: PoolId) -> HugetlbCounts {
        let pool = self.pool(id);
        // Unreserved first: it is raised after a page is free.
        let unreserved = pool.nr_unreserved();
        let (free, sizes) = (self.nr_free_in_pool(id), pool.sizes());
        let nr = sizes.persistent() + sizes.surplus();
        let free = (free.max(0) as u64).min(nr);
        let overcommit = pool.overcommit.load(Ordering::Acquire);
        HugetlbCounts { nr, free, reserved: free.saturating_sub(unreserved), surplus: sizes.surplus(), overcommit }
    }
}
