//! Mappings of pages of a pool (`frame/pool.rs`): they consist of whole huge pages, and have entries of level 1 only.
//!
//! No leaf table is ever below such a mapping. A fault makes none, the calls below refuse to cut a page, guards are
//! refused, and a mapping that replaces others removes their tables first. So an entry of a page of a pool is never split,
//! and has no deposit.
//!
//! Locks on entry: the writer lock.

use super::AddressSpace;
use super::lock::Writer;
use super::vma::{ObjectId, Vma};
use crate::addr::{PageRange, Vpn};
use crate::frame::PoolId;
use crate::machine::Machine;
use crate::space::Vm;

impl<M: Machine> Vm<M> {
    /// The pool that the pages of a mapping come from.
    pub(crate) fn pool_of_vma(&self, vma: &Vma) -> Option<PoolId> {
        if vma.object == ObjectId::NONE { None } else { self.object_pool(vma.object) }
    }

    /// Number of base pages in a page of the mapping.
    pub(crate) fn nr_pages_per_page(&self, vma: &Vma) -> u64 {
        self.pool_of_vma(vma).map_or(1, |pool| pool.order().nr_pages())
    }
}

impl<M: Machine> AddressSpace<'_, M> {
    /// Notes that a mapping of a pool's pages is about to be published.
    pub(crate) fn note_pool(&self, writer: &Writer<'_, M>, vma: &Vma) {
        self.assert_writer(writer);
        if self.vm.pool_of_vma(vma).is_some() {
            self.data.limits.has_pools.set(1);
        }
    }

    /// Whether an end of the range lies within a page of a pool. Spaces that have never mapped one are asked nothing.
    pub(crate) fn cuts_page_of_pool(&self, writer: &Writer<'_, M>, range: PageRange) -> bool {
        self.assert_writer(writer);
        let is_within = |at: Vpn| {
            let found = self.tree(writer).lookup(at);
            found.is_some_and(|found| !at.0.is_multiple_of(self.vm.nr_pages_per_page(&found.vma)))
        };
        self.data.limits.has_pools.get() != 0 && (is_within(range.start) || is_within(range.end))
    }
}
