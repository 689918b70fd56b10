//! Pools of huge pages: 2 MiB or 1 GiB each, set aside until a mapping of them faults. The mechanism of
//! `pool_counts.rs`.
//!
//! ```text
//! free memory ── bring ──▶ free in the pool ── take ──▶ a folio of an object
//!      ▲                      │       ▲                       │
//!      └────── take out ──────┘       └──────── put ──────────┘
//! ```
//! There is no list and no lock. A page that is free in its pool is a bit of the summaries, which find
//! it as they find free frames: CPUs search their home blocks first. The CPU that clears the bit owns the page, so
//! neither search nor take touches a line of the page or of its block.
//!
//! The descriptors of a free page are all zero, as those of free frames. Those of its tails may be free memory
//! (`tail_descs.rs`). The bitmaps say that all of its frames are in use. The blocks say whether it is zero, as they
//! do for free frames.
//!
//! A page is taken only by a caller that has a claim to one (`pool_counts.rs`): as many are free as there are
//! claims, or more. So a search that finds none has missed one that was put back, or another CPU's, and goes on.
//!
//! Locks on entry: none, no section.

use super::held::Held;
use super::summary::Kind;
use super::{Frames, Memory, OutOfFrames};
use crate::addr::{BLOCK_FRAMES, BlockId, Order, Pfn};
use crate::machine::{CpuId, LockKind, Machine};
use crate::pace::Pace;

/// A pool, by the size of its pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PoolId {
    Of2M,
    Of1G,
}

impl PoolId {
    pub(crate) const ALL: [PoolId; 2] = [PoolId::Of2M, PoolId::Of1G];

    /// Returns the pool of pages of that order, if there is one.
    pub(crate) fn of(order: Order) -> Option<PoolId> {
        PoolId::ALL.into_iter().find(|pool| pool.order() == order)
    }

    pub(crate) const fn order(self) -> Order {
        match self {
            PoolId::Of2M => Order::PMD,
            PoolId::Of1G => Order::PUD,
        }
    }

    /// The lock of its size.
    pub(crate) const fn size_lock(self) -> LockKind {
        match self {
            PoolId::Of2M => LockKind::PoolSize2M,
            PoolId::Of1G => LockKind::PoolSize1G,
        }
    }

    pub(crate) const fn kind(self) -> Kind {
        match self {
            PoolId::Of2M => Kind::Pool2M,
            PoolId::Of1G => Kind::Pool1G,
        }
    }
}

impl Frames {
    /// Whether the frame is part of a page of a pool. Stays so while the caller owns the page, or an entry or slot names it
    /// in the section. A huge entry that names such a page is never split, and has no deposit.
    #[inline]
    pub(crate) fn is_of_pool(&self, pfn: Pfn) -> bool {
        self.blocks.at(BlockId::of(pfn)).is_in_pool()
    }
}

impl<M: Machine> Memory<M> {
    /// Claims memory for a page of the pool, which the caller owns then. Waits as for one frame.
    pub(crate) fn pool_bring(&self, pool: PoolId) -> Result<Pfn, OutOfFrames> {
        self.pool_bring_held(pool).map(|(first, _held)| first)
    }

    /// The same for a caller that counts as a holder until it gives as much memory back.
    pub(super) fn pool_bring_held(&self, pool: PoolId) -> Result<(Pfn, Held<'_>), OutOfFrames> {
        let (first, held) = self.obtain_folio_to_fill(pool.order())?;
        self.join_pool(pool, first);
        Ok((first, held))
    }

    /// Does the same without a wait, for callers that hold frames: in the home blocks of a CPU, if it is to lie there, else
    /// anywhere.
    pub(crate) fn pool_bring_if_found(&self, pool: PoolId, cpu: Option<usize>) -> Result<Pfn, OutOfFrames> {
        let home = cpu.filter(|_| pool == PoolId::Of2M).map(|id| self.cpus.at(id).home_range());
        let at_home = home.and_then(|home| self.obtain_block_to_fill_in(home).ok());
        let (first, _held) = at_home.map_or_else(|| self.obtain_folio_to_fill_if_found(pool.order()), Ok)?;
        self.join_pool(pool, first);
        Ok(first)
    }

    fn join_pool(&self, pool: PoolId, first: Pfn) {
        self.for_each_block(first, pool.order(), &mut |b| self.frames.blocks.at(b).join_pool(pool.order()));
    }

    /// Gives a page of the pool that the caller owns back to free memory.
    ///
    /// # Errors
    ///
    /// There are no frames for the descriptors of its tails, and the caller still owns it.
    pub(crate) fn pool_release(&self, pool: PoolId, first: Pfn) -> Result<(), OutOfFrames> {
        self.pool_make_whole(pool, first)?;
        self.for_each_block(first, pool.order(), &mut |b| {
            self.frames.blocks.at(b).leave_pool();
            self.release_run(b.first_frame(), BLOCK_FRAMES, self.frames.content(b.first_frame(), BLOCK_FRAMES));
        });
        Ok(())
    }

    /// Gives the tails of a page that the caller owns descriptors.
    pub(super) fn pool_make_whole(&self, pool: PoolId, first: Pfn) -> Result<(), OutOfFrames> {
        if self.frames.lacks_tail_descs(BlockId::of(first)) {
            return self.make_whole_if_free(first, pool.order());
        }
        Ok(())
    }

    /// Puts a page that the caller owns into its pool, free.
    pub(crate) fn pool_put(&self, pool: PoolId, first: Pfn) {
        self.this_cpu_data().batches.nr_in_pools[pool as usize].add_owned(1);
        self.frames.blocks.at(BlockId::of(first)).put_page(pool.kind());
    }

    /// Takes a free page of the pool. The caller has a claim to one.
    pub(crate) fn pool_take(&self, pool: PoolId) -> Pfn {
        loop {
            if let Some(first) = self.pool_find(pool) {
                return first;
            }
            // The CPU that has put one back is about to report it.
            self.machine.relax();
        }
    }

    fn pool_find(&self, pool: PoolId) -> Option<Pfn> {
        let (blocks, home) = (&self.frames.blocks, self.home_range());
        let mut pace = Pace::new(&self.machine);
        let near = [home, blocks.names()].into_iter().flat_map(|some| blocks.named(pool.kind(), some, home.start));
        { near }.inspect(|_| pace.step()).map(BlockId::first_frame).find(|first| self.pool_take_at(pool, *first))
    }

    /// Takes the page at `first` if it is free in the pool. The caller has a claim to one.
    pub(super) fn pool_take_at(&self, pool: PoolId, first: Pfn) -> bool {
        let is_taken = self.frames.blocks.at(BlockId::of(first)).take_page(pool.kind());
        if is_taken {
            self.this_cpu_data().batches.nr_in_pools[pool as usize].add_owned(1u64.wrapping_neg());
        }
        is_taken
    }

    /// Notes that a page was used: its content is unknown. The caller owns it.
    pub(crate) fn pool_soil(&self, pool: PoolId, first: Pfn) {
        self.for_each_block(first, pool.order(), &mut |b| self.frames.blocks.at(b).soil());
    }

    /// Sums the pages that are free in the pool, as the CPUs have counted. Exact at rest. Pages that one CPU puts back and another
    /// takes meanwhile make it any number, also below 0: the checker has to see that.
    pub(crate) fn nr_free_in_pool(&self, pool: PoolId) -> i64 {
        let mut pace = Pace::new(&self.machine);
        let of = |id: usize| self.cpu(CpuId(id as u16)).batches.nr_in_pools[pool as usize].get();
        let nr = (0..self.machine.nr_cpus()).inspect(|_| pace.step()).fold(0, |nr: u64, id| nr.wrapping_add(of(id)));
        nr as i64
    }
}

#[cfg(all(test, feature = "hugetlb"))]
#[path = "pool_tests.rs"]
mod tests;
