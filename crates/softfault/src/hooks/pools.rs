//! Counts of the pools of huge pages at a moment at which no CPU goes on, and pages that are free.

use crate::addr::{BlockId, Order, Pfn};
use crate::frame::PoolId;
use crate::machine::Machine;
use crate::space::Vm;

impl<M: Machine> Vm<M> {
    /// The pages of a pool, those that are free, and those of them that nobody has a claim to (I57), as they are counted.
    /// [`hugetlb_counts`](Self::hugetlb_counts) keeps these numbers within bounds.
    pub fn hugetlb_counts_as_they_are(&self, order: Order) -> Option<[i64; 3]> {
        let pool = PoolId::of(order)?;
        let nr = self.hugetlb_counts_of(pool).nr;
        Some([nr as i64, self.nr_free_in_pool(pool), self.pool(pool).nr_unreserved() as i64])
    }

    /// Whether the frame is part of a page of 2 MiB that is free in its pool.
    pub fn lies_free_in_pool(&self, pfn: Pfn) -> bool {
        self.frames.blocks.at(BlockId::of(pfn)).is_free_in_pool()
    }
}
