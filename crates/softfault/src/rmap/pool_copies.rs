//! Drops private copies of pages of a pool that lie beyond the end of their object, or in a hole: the part of `copies.rs` for entries
//! above the leaf tables.
//!
//! ```text
//! take     in the section that has found the VMA: a private page ─▶ Busy
//! settle   shootdown, grace ─▶ the page has one entry less ─▶ none; with a claim, if the mapping reserves
//! ```
//! The place keeps its claim, as after `MADV_DONTNEED`: the object may grow again. A page that others have, too, is dropped by them
//! first (`copies.rs`). A place that has lost its page, and has no claim, stays what it is. A page that lies below the end in part stays whole.
//!
//! Locks on entry: `resize` of the object.

use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{Pfn, Vpn};
use crate::frame::{Claim, FrameKind};
use crate::machine::{Flush, Machine};
use crate::section::InSection;
use crate::space::AddressSpace;
use crate::space::pools::has_claims;
use crate::space::vma::Vma;
use crate::table::format::{Entry, Format};
use crate::table::place::PmdSlot;

/// A private page whose entry was taken.
pub(super) struct PoolCopy<'a, F: Format> {
    pmd: PmdSlot<'a, F>,
    page: Pfn,
    /// The claim of the place afterwards.
    then: Claim,
}

/// How a look at an entry ended.
pub(super) enum LookedAt<'a, F: Format> {
    Taken(PoolCopy<'a, F>),
    /// It names no private page beyond the end.
    Other,
    /// It belongs to another operation for a moment.
    Owned,
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Takes the entry of the VMA if it names a private page from `end` on.
    pub(super) fn take_copy_of_pool(
        &self,
        _inside: InSection<'_>,
        pmd: PmdSlot<'vm, M::Format>,
        vma: &Vma,
        end: Vpn,
    ) -> LookedAt<'vm, M::Format> {
        let is_beyond = pmd.base >= end;
        loop {
            let seen = pmd.slot.observe();
            match seen.entry {
                Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => return LookedAt::Owned,
                Entry::Leaf(leaf) if is_beyond && self.vm.frames.desc(leaf.pfn).state().kind() == FrameKind::Anon => {
                    let Ok(leaf) = pmd.slot.take(seen) else { continue };
                    let then = if has_claims(vma) { Claim::Reserved } else { Claim::Nothing };
                    return LookedAt::Taken(PoolCopy { pmd, page: leaf.pfn, then });
                }
                _ => return LookedAt::Other,
            }
        }
    }

    pub(super) fn drop_copy_of_pool(&self, copy: PoolCopy<'vm, M::Format>) {
        let PoolCopy { pmd, page, then } = copy;
        self.shootdown_and_wait(Flush::Pages(pmd.span()));
        // The page first: a CPU that finds the entry empty may want it.
        let is_dropped = self.vm.drop_page_of_place(page, then);
        pmd.slot.resolve(if is_dropped { Entry::None } else { Entry::Poison });
        self.charge(Rss::Anon, -(pmd.nr_pages() as i64));
        self.vm.count(Event::Unmapped, pmd.nr_pages());
    }
}
