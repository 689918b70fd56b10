//! Steps about a pool that a Linux does in another way, each named in `docs/hugetlb.md`. A sequence beside it leaves them out.

use super::pool::{HUGE_PAGES, Has, PoolPage, Shows};
use super::*;
use crate::numbers::{
    MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_POPULATE_READ, MADV_POPULATE_WRITE, MAP_FIXED, MAP_FIXED_NOREPLACE,
    MAP_GROWSDOWN, MAP_HUGETLB, MAP_PRIVATE, MAP_SHARED, MAP_TYPE, MREMAP_FIXED, PROT_SEM,
};
use crate::op::HUGE;

impl Model {
    /// Whether this is such a step.
    pub(super) fn is_other_on_linux(&self, op: &Op) -> bool {
        self.huge.beside_linux_pool && self.pool.is_some() && self.differs_there(op)
    }

    fn differs_there(&self, op: &Op) -> bool {
        let ([addr, len, c, d, e, f], space) = (op.args, self.space(op.who));
        let is_fixed = d & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
        let (first, end) = (addr / PAGE, addr.saturating_add(len).div_ceil(PAGE));
        match op.call {
            // A grandchild's place is empty where its parent has lost a page.
            Call::Fork => space.pool.values().any(|page| page.has == Has::Lost),
            // What was mapped there is gone, or not, when the call is refused; and gives its pages back later.
            Call::Mmap | Call::PoolMap if is_fixed && !space.is_hole(first, end) => true,
            Call::Mmap if d & MAP_HUGETLB != 0 => is_odd_type(d),
            // The length is rounded, and the file grows; or pages behind its end are reserved until any new size.
            Call::PoolMap => {
                let is_whole = [len, f * PAGE].iter().all(|bytes| bytes.is_multiple_of(HUGE));
                let nr_pages = self.pool.as_ref().and_then(|pool| pool.objects.first()).map_or(0, |file| file.nr_pages);
                is_odd_type(d) || !is_whole || f * PAGE + len > nr_pages * HUGE
            }
            // The mappings before the one that is cut are changed; one that has these rights already is none that is cut.
            Call::Munmap => space.cuts_pool(first, end),
            // A private page that is dropped does not get its reservation back.
            Call::Madvise => {
                let is_dropped = matches!(c, MADV_DONTNEED | MADV_DONTNEED_LOCKED) && space.has_pool_in(first, end);
                // Of several pages a first one would be there when a later one is refused an outcome.
                let may_stop = |page: &PoolPage| page.is_beside_lost || matches!(page.has, Has::Own(_));
                let is_brought = matches!(c, MADV_POPULATE_READ | MADV_POPULATE_WRITE)
                    && space.pool.range(first / HUGE_PAGES..end.div_ceil(HUGE_PAGES)).any(|(_, page)| may_stop(page));
                space.cuts_pool(first, end) || is_dropped || is_brought
            }
            Call::Mprotect => space.cuts_pool(first, end) || c & PROT_SEM != 0,
            Call::PoolFileSize => self.spaces.values().flat_map(|space| space.pool.values()).any(is_own_of_file),
            Call::Mremap => {
                let (new, new_end) = (e / PAGE, e.saturating_add(c).div_ceil(PAGE));
                space.has_pool_in(first, end) && (space.cuts_pool(first, end) || !c.is_multiple_of(HUGE) || c > len)
                    || d & MREMAP_FIXED != 0 && space.has_pool_in(new, new_end)
            }
            _ => false,
        }
    }
}

impl Model {
    /// Whether Linux refuses a first touch there: another page of the mapping was lost.
    pub(super) fn refuses_on_linux(&self, page: &PoolPage) -> bool {
        self.huge.beside_linux_pool && page.is_beside_lost
    }

    /// Whether Linux would look for the page of `other` at the address of its owner, and never find it: it stays in the kernel.
    pub(super) fn never_ends_on_linux(&self, owner: u64, other: u64) -> bool {
        self.huge.beside_linux_pool && owner != other
    }
}

/// A private page in a mapping of the file.
fn is_own_of_file(page: &PoolPage) -> bool {
    matches!((page.attrs.shows, page.has), (Shows::Behind(0), Has::Own(_)))
}

/// The order of the errors is another one.
fn is_odd_type(flags: u64) -> bool {
    flags & MAP_GROWSDOWN != 0 || !matches!(flags & MAP_TYPE, MAP_SHARED | MAP_PRIVATE)
}
