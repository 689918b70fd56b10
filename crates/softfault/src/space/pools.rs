//! Mappings of pages of a pool (`frame/pool.rs`): they consist of whole huge pages, and have entries of level 1 only.
//!
//! No leaf table is ever below such a mapping. A fault makes none, the calls below refuse to cut a page, guards are
//! refused, and a mapping that replaces others removes their tables first. So an entry of a page of a pool is never split,
//! and has no deposit.
//!
//! A private mapping that reserves (`MAP_NORESERVE` is not set; a child has it set) has a claim to a page for each entry
//! that is empty. So entries say which claims there are, and nothing else does: a fault takes the claim of the entry that
//! it makes `Busy`; a removal that leaves the mapping leaves its claim; one that ends the mapping counts the empty entries.
//!
//! Locks on entry: the writer lock.

use super::AddressSpace;
use super::lock::Writer;
use super::tree::Snapshot;
use super::vma::{ObjectId, Vma, VmaFlags};
use crate::addr::{PageRange, Vpn};
use crate::frame::PoolId;
use crate::machine::Machine;
use crate::space::Vm;
use crate::table::format::Entry;
use crate::table::take::Next;
use core::ops::ControlFlow;

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

/// Whether empty entries of the mapping of a pool's pages are claims.
pub(crate) fn has_claims(vma: &Vma) -> bool {
    !vma.flags.intersects(VmaFlags::SHARED | VmaFlags::NORESERVE)
}

impl<M: Machine> AddressSpace<'_, M> {
    /// Claims of private mappings in the range, of a tree that faults do not find any more: as many as entries are empty.
    pub(crate) fn nr_claims_in(&self, writer: &Writer<'_, M>, tree: &Snapshot<'_, M>, range: PageRange) -> u64 {
        let mut nr_claims = 0;
        if self.data.limits.has_pools.get() == 0 {
            return 0;
        }
        let _ = tree.for_each(range, &mut |vma| {
            if has_claims(&vma) && self.vm.pool_of_vma(&vma).is_some() {
                nr_claims += self.nr_empty(writer, vma.range.intersect(&range));
            }
            ControlFlow::Continue(())
        });
        nr_claims
    }

    /// Whether it is a private mapping of a pool's pages.
    pub(crate) fn is_private_of_pool(&self, vma: &Vma) -> bool {
        vma.is_private() && self.vm.pool_of_vma(vma).is_some()
    }

    /// Number of empty entries for pages of 2 MiB. Waits for faults that own one.
    pub(crate) fn nr_empty(&self, writer: &Writer<'_, M>, range: PageRange) -> u64 {
        let mut nr = range.nr_pages() / Vm::<M>::NR_SUB_FRAMES;
        self.for_each_entry(writer, range, &mut |_, slot| {
            loop {
                match slot.observe().entry {
                    Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => self.vm.machine.relax(),
                    Entry::None => return Next::GoOn,
                    _ => break,
                }
            }
            nr -= 1;
            Next::GoOn
        });
        nr
    }

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
