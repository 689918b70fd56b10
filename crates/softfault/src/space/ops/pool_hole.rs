//! Private copies under a hole in an object of a pool: they go, as on Linux.
//!
//! ```text
//! begin    `is_dropping`; counted in `nr_cuts`; fence                                 fork/copies.rs
//! missing  copies of what is missing before the next part                             rmap/copies.rs
//! part     its pages are barred: every fault on them waits; no entry names one        discard.rs
//! copies   of the part                                                                rmap/copies.rs
//! free     the part has left the object: faults find nothing
//! end      no fork waits any more
//! ```
//! A fault may make a copy meanwhile, which a smaller size excludes. So the walk passes each place once: what a program stores after it
//! has seen the hole there stays. Where the object has the page, no fault gets beyond its word until the copies are gone and the page
//! is free. Where it has none, nothing is barred: such a place shows the hole when its entry goes, and is not visited again. A page that
//! is missing and shown at two places, or mapped again meanwhile, is two places: a store to the second one may go, as on Linux.
//! Mappings without reservations come first, as for a smaller size, in a walk of their own.
//!
//! Places keep their claims, as after `MADV_DONTNEED`. Pages that the hole meets in part stay, as do those of the object, of which it
//! zeroes that part. So does a place that has lost its page, and it stays lost. An owner's place is lost, too, if its page is pinned or
//! still a child's that ends, and the pool is empty.
//!
//! | failure | what prevents it | seen by |
//! | --- | --- | --- |
//! | a store that follows the hole is dropped with the copies | the copies go before the object's pages do; each place is visited once | `a_store_that_follows_a_hole_stays`, `a_store_that_follows_a_hole_in_nothing_stays` |
//! | a store that has found the object's page copies it, and the bytes of before the hole stay | the walk comes after the bar and its grace period, and waits for entries that are `Busy` | `a_copy_against_a_hole` |
//! | a child keeps a copy: the walk was at the child before fork(2) shared it, and at the parent afterwards | the hole is counted, and fork waits for its end | `a_fork_against_a_hole` |
//!
//! Locks on entry: `resize` of the object, no section.

use crate::addr::ObjectPages;
use crate::machine::Machine;
use crate::space::Vm;
use crate::space::vma::ObjectId;
use crate::sync::{self, Ordering};

/// A hole that drops private copies. Forks wait until this is dropped.
pub(super) struct PoolHole<'vm, M: Machine> {
    vm: &'vm Vm<M>,
    object: ObjectId,
    /// Whole pages of the pool whose copies are still there.
    rest: ObjectPages,
    /// The size of a page, in base pages.
    nr_per_page: u64,
}

impl<M: Machine> Vm<M> {
    /// Begins a hole of these pages, if the object is of a pool. No fork copies again: see `lock_to_drop_copies`.
    pub(super) fn begin_pool_hole(&self, object: ObjectId, pages: ObjectPages) -> Option<PoolHole<'_, M>> {
        let nr_per_page = self.object_pool(object)?.order().nr_pages();
        let first = pages.start.checked_next_multiple_of(nr_per_page)?;
        let data = self.object(object);
        // Before the count: a fork that reads the count sees it.
        data.is_dropping.store(1, Ordering::Relaxed);
        data.nr_cuts.fetch_add(1, Ordering::AcqRel);
        sync::fence();
        Some(PoolHole { vm: self, object, rest: ObjectPages { start: first, ..pages }, nr_per_page })
    }
}

impl<M: Machine> PoolHole<'_, M> {
    /// Drops the private copies of the pages before `end` that are left.
    pub(super) fn drop_copies_to(&mut self, end: u64) {
        let end = end.min(self.rest.end) / self.nr_per_page * self.nr_per_page;
        if end <= self.rest.start {
            return;
        }
        // A VMA is counted before a fault can make a copy in it.
        if self.vm.object(self.object).nr_private.load(Ordering::Acquire) != 0 {
            self.vm.drop_copies(self.object, ObjectPages { end, ..self.rest });
        }
        self.rest.start = end;
    }
}

impl<M: Machine> Drop for PoolHole<'_, M> {
    fn drop(&mut self) {
        // Release: a fork that goes on sees no entry that was dropped.
        let is_dropping = &self.vm.object(self.object).is_dropping;
        is_dropping.store(0, Ordering::Release);
        self.vm.machine.unpark(is_dropping);
    }
}

#[cfg(test)]
#[path = "pool_hole_tests.rs"]
mod tests;
