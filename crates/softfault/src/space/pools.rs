//! Mappings of pages of a pool (`frame/pool.rs`): they consist of whole huge pages, and each page has one entry: of level 1 for
//! 2 MiB, of level 2 for 1 GiB.
//!
//! No table of a lower level is ever below such a mapping. A fault makes none, the calls below refuse to cut a page, guards are
//! refused, and a mapping that replaces others removes their tables first. So an entry of a page of a pool is never split,
//! and has no deposit.
//!
//! A private mapping that reserves (`MAP_NORESERVE` is not set; a child has it set) has a claim to a page for each entry
//! that is empty, or shows the object's own page. So entries say which claims there are, and nothing else does: a fault takes
//! the claim of the entry that it makes `Busy` for a private page; a removal that leaves the mapping leaves its claim; one that
//! ends the mapping counts such entries (I61).
//!
//! munmap(2) counts when no section finds the mapping any more. From then on a smaller size of the object, which takes entries
//! in sections that find it (`rmap/copies.rs`), makes no new claim. A space that ends counts under `resize`.
//!
//! Locks on entry: the writer lock.

use super::AddressSpace;
use super::lock::Writer;
use super::tree::Snapshot;
use super::vma::{ObjectId, Vma, VmaFlags};
use crate::addr::{PageRange, Pfn, Vpn};
use crate::built::HUGETLB;
use crate::frame::{FrameKind, PoolId};
use crate::machine::Machine;
use crate::space::Vm;
use crate::table::entry::Slot;
use crate::table::format::Entry;
use crate::table::take::Next;
use core::ops::ControlFlow;

impl<M: Machine> Vm<M> {
    /// The pool that the pages of a mapping come from. The caller has the writer lock, or is in the section in which it found
    /// the mapping: afterwards the object may be gone.
    pub(crate) fn pool_of_vma(&self, vma: &Vma) -> Option<PoolId> {
        if vma.object == ObjectId::NONE {
            return None;
        }
        debug_assert!(
            self.frames.desc(Pfn(vma.object.0 as u32)).state().kind() == FrameKind::Meta,
            "I30: a header stays for the section, or the lock"
        );
        self.object_pool(vma.object)
    }

    /// The pool of a private mapping's pages.
    pub(crate) fn private_pool_of_vma(&self, vma: &Vma) -> Option<PoolId> {
        if vma.is_private() { self.pool_of_vma(vma) } else { None }
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
    /// Calls `f` with the object and the pool of each private mapping in the range that has claims, and their number. Of a tree
    /// that faults do not find any more.
    pub(crate) fn for_each_claims(
        &self,
        writer: &Writer<'_, M>,
        tree: &Snapshot<'_, M>,
        range: PageRange,
        f: &mut dyn FnMut(ObjectId, PoolId, u64),
    ) {
        if !self.maps_pools() {
            return;
        }
        let _ = tree.for_each(range, &mut |vma| {
            if has_claims(&vma)
                && let Some(pool) = self.vm.pool_of_vma(&vma)
            {
                f(vma.object, pool, self.nr_claims_of(writer, pool, vma.range.intersect(&range)));
            }
            ControlFlow::Continue(())
        });
    }

    /// Ends the claims of private mappings in the range, whose entries are about to be removed.
    pub(crate) fn end_claims_in(&self, writer: &Writer<'_, M>, tree: &Snapshot<'_, M>, range: PageRange) {
        self.for_each_claims(writer, tree, range, &mut |object, pool, nr| {
            self.vm.unreserve_in(self.vm.object_subpool(object), pool, nr);
        });
    }

    /// Whether it is a private mapping of a pool's pages.
    pub(crate) fn is_private_of_pool(&self, vma: &Vma) -> bool {
        self.vm.private_pool_of_vma(vma).is_some()
    }

    /// Whether a private mapping of a pool lies in the range.
    pub(crate) fn has_private_of_pool(&self, writer: &Writer<'_, M>, range: PageRange) -> bool {
        let found =
            |vma: Vma| if self.is_private_of_pool(&vma) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        if !self.maps_pools() {
            return false;
        }
        self.tree(writer).for_each(range, &mut |vma| found(vma)).is_break()
    }

    /// Number of entries for pages of the pool that are claims. Waits for those who own one.
    fn nr_claims_of(&self, writer: &Writer<'_, M>, pool: PoolId, range: PageRange) -> u64 {
        let mut nr = range.nr_pages() / pool.order().nr_pages();
        self.for_each_entry(writer, range, &mut |_, slot| {
            nr -= u64::from(!self.is_claim(slot));
            Next::GoOn
        });
        nr
    }

    fn is_claim(&self, slot: Slot<'_, M::Format>) -> bool {
        loop {
            {
                // A page that an entry names stays what it is in the section.
                let _section = self.section();
                match slot.observe().entry {
                    Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => {}
                    Entry::Leaf(leaf) => return self.vm.frames.desc(leaf.pfn).state().kind() == FrameKind::Shared,
                    entry => return entry == Entry::None,
                }
            }
            self.vm.machine.relax();
        }
    }

    /// Whether it may have mappings of pools' pages. A build without pools knows that it has none.
    pub(crate) fn maps_pools(&self) -> bool {
        HUGETLB && self.data.limits.has_pools.get() != 0
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
        self.changes_part_of_pool_page(writer, range, &|_| true)
    }

    /// The same, where the mapping of that page `changes`: as on Linux a call that changes nothing of it may end within it.
    pub(crate) fn changes_part_of_pool_page(
        &self,
        writer: &Writer<'_, M>,
        range: PageRange,
        changes: &dyn Fn(&Vma) -> bool,
    ) -> bool {
        self.assert_writer(writer);
        let is_within = |at: Vpn| {
            let cuts = |vma: &Vma| !at.0.is_multiple_of(self.vm.nr_pages_per_page(vma)) && changes(vma);
            self.tree(writer).lookup(at).is_some_and(|found| cuts(&found.vma))
        };
        self.maps_pools() && (is_within(range.start) || is_within(range.end))
    }
}
