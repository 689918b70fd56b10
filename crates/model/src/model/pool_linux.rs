//! Steps about a pool that a Linux does in another way, each named in `docs/hugetlb.md`. A sequence beside it leaves them out.

use super::pool::{HUGE_PAGES, Has, PoolPage, Shows};
use super::*;
use crate::numbers::{
    MADV_DODUMP, MADV_DOFORK, MADV_DONTFORK, MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_HUGEPAGE, MADV_KEEPONFORK,
    MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_REMOVE, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_HUGETLB,
    MAP_PRIVATE, MAP_SHARED, MAP_TYPE, MREMAP_FIXED, PROT_SEM,
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
            Call::Munmap => space.cuts_pool(first, end) || self.leaves_to_others(op.who, first, end),
            Call::Exit => self.leaves_to_others(op.who, 0, u64::MAX),
            // A private page that is dropped does not get its reservation back.
            Call::Madvise => {
                let is_dropped = matches!(c, MADV_DONTNEED | MADV_DONTNEED_LOCKED) && space.has_pool_in(first, end);
                // Of several pages a first one would be there when a later one is refused an outcome.
                let may_stop = |page: &PoolPage| page.is_beside_lost || matches!(page.has, Has::Own(_));
                let is_brought = matches!(c, MADV_POPULATE_READ | MADV_POPULATE_WRITE)
                    && space.pool.range(first / HUGE_PAGES..end.div_ceil(HUGE_PAGES)).any(|(_, page)| may_stop(page));
                let is_cut = space.cuts_changed_pool(first, end, &|attrs| !is_flag(c) || attrs.advised(c) != *attrs);
                is_cut || is_dropped || is_brought || c == MADV_REMOVE && self.has_reserved_own_of_file()
            }
            Call::Mprotect => space.cuts_changed_pool(first, end, &|attrs| attrs.prot != c & 7) || c & PROT_SEM != 0,
            // So with one that a hole or a smaller size drops.
            Call::PoolFileSize | Call::PoolFilePunch => self.has_reserved_own_of_file(),
            // The rest of the mapping forgets what it has reserved, which stays promised to nobody for good; or that a page was lost.
            Call::Mremap => {
                let (new, new_end) = (e / PAGE, e.saturating_add(c).div_ceil(PAGE));
                space.has_pool_in(first, end)
                    && (space.cuts_pool(first, end)
                        || space.moves_part_of_owner(first, end)
                        || space.has_lost_beside(first, end)
                        || self.leaves_to_others(op.who, first, end)
                        || !c.is_multiple_of(HUGE)
                        || c > len)
                    || d & MREMAP_FIXED != 0 && space.has_pool_in(new, new_end)
            }
            _ => false,
        }
    }
}

impl Space {
    /// Whether a page was lost of a mapping that is in the range.
    fn has_lost_beside(&self, first: u64, end: u64) -> bool {
        self.pool.range(first / HUGE_PAGES..end.div_ceil(HUGE_PAGES)).any(|(_, page)| page.is_beside_lost)
    }

    /// Whether a private mapping that reserves goes on before the range, or behind it.
    fn moves_part_of_owner(&self, first: u64, end: u64) -> bool {
        let is_owner = |number| self.pool.get(&number).is_some_and(|page| page.is_private() && page.attrs.reserves);
        let goes_on =
            |at: u64| at > 0 && is_owner(at - 1) && is_owner(at) && !matches!(self.pool_joined(at), Ok(false));
        goes_on(first / HUGE_PAGES) || goes_on(end.div_ceil(HUGE_PAGES))
    }
}

impl Model {
    /// Whether Linux refuses a first touch there: another page of the mapping was lost.
    pub(super) fn refuses_on_linux(&self, page: &PoolPage) -> bool {
        self.huge.beside_linux_pool && page.is_beside_lost
    }

    /// Whether the owner of a page in that range shares it with others: they keep it when it goes, and the kernel ends a reservation that
    /// is spent, until the last of them frees the page.
    fn leaves_to_others(&self, who: u64, first: u64, end: u64) -> bool {
        let in_range = first / HUGE_PAGES..end.div_ceil(HUGE_PAGES);
        let owned = self.space(who).pool.range(in_range).filter(|(_, page)| page.attrs.reserves);
        let nr_entries = |has: Has| {
            self.spaces.values().flat_map(|space| space.pool.values()).filter(|page| page.has == has).count()
        };
        owned.map(|(_, page)| page.has).any(|has| matches!(has, Has::Own(_)) && nr_entries(has) > 1)
    }

    /// Whether a private mapping of the file that reserves has a page of its own.
    fn has_reserved_own_of_file(&self) -> bool {
        self.spaces.values().flat_map(|space| space.pool.values()).any(is_reserved_own_of_file)
    }

    /// Whether Linux would look for the page of `other` at the address of its owner, and never find it: it stays in the kernel.
    pub(super) fn never_ends_on_linux(&self, owner: u64, other: u64) -> bool {
        self.huge.beside_linux_pool && owner != other
    }

    /// Whether a process that has the page `own` of the owner also has a private mapping of that page of the file which reserves
    /// nothing: Linux takes for that mapping what the process has at the owner's address. So the owner loses the page, or another
    /// process forgets that it was lost.
    pub(super) fn is_lost_on_linux(&self, (who, number): (u64, u64), own: u64) -> bool {
        let of_file = |page: &PoolPage| (matches!(page.attrs.shows, Shows::Behind(_)), page.object(), page.index);
        let Some(owned) = self.space(who).pool.get(&number).map(of_file) else { return false };
        let has_another = |space: &Space| {
            let of_page = || space.pool.iter().filter(|(_, page)| of_file(page) == owned);
            of_page().any(|(_, page)| page.has == Has::Own(own))
                && of_page().any(|(at, page)| *at != number && !page.attrs.reserves)
        };
        self.huge.beside_linux_pool && owned.0 && self.spaces.values().any(has_another)
    }
}

/// A private page in a mapping of the file that reserves.
fn is_reserved_own_of_file(page: &PoolPage) -> bool {
    page.attrs.reserves && matches!((page.attrs.shows, page.has), (Shows::Behind(0), Has::Own(_)))
}

/// Whether the advice sets or clears flags of the mapping.
fn is_flag(advice: u64) -> bool {
    matches!(advice, 0..=2 | MADV_DONTFORK..=MADV_DOFORK | MADV_HUGEPAGE..=MADV_DODUMP | MADV_KEEPONFORK)
}

/// The order of the errors is another one.
fn is_odd_type(flags: u64) -> bool {
    flags & MAP_GROWSDOWN != 0 || !matches!(flags & MAP_TYPE, MAP_SHARED | MAP_PRIVATE)
}
