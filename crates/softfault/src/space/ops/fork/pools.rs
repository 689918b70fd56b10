//! Fork of a private mapping of a pool's pages.
//!
//! ```text
//! page, shared by n   lock the entry ─▶ a claim for one more ─▶ n + 1 ─▶ the child's entry, both without the write right
//! no claim left       the child gets none: a touch there is refused, and the parent keeps its page as it is
//! pinned              the claim is that of a copy, which the child gets
//! ```
//! So a store after the fork is refused its page neither in the parent nor in the child (`frame/pool_page.rs`). If the pool has no page
//! for that, the child learns it at its first touch, not the parent. The child's mapping has no reservations:
//! its empty entries are no claims.
//!
//! Locks on entry: the parent's writer lock, no section.

use super::child::Child;
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{PageRange, Rights};
use crate::frame::{Claim, NoShare, OutOfFrames, PoolId, SubpoolId};
use crate::machine::{Flush, Machine};
use crate::space::AddressSpace;
use crate::space::lock::Writer;
use crate::space::vma::ObjectId;
use crate::table::entry::Seen;
use crate::table::format::{Entry, Leaf};
use crate::table::place::PmdSlot;
use crate::table::take::{self, Next, Part};

/// Where the pages of a mapping come from.
#[derive(Clone, Copy)]
struct PagesOf {
    pool: PoolId,
    subpool: Option<SubpoolId>,
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Shares pages of the mapping with the child.
    pub(super) fn share_pool(
        &self,
        writer: &Writer<'_, M>,
        child: &mut Child<'_, 'vm, M>,
        (object, pool, pages): (ObjectId, PoolId, PageRange),
        write_protected: &mut bool,
    ) -> Result<(), OutOfFrames> {
        self.assert_writer(writer);
        let (source, mut result) = (PagesOf { pool, subpool: self.vm.object_subpool(object) }, Ok(()));
        take::for_each_part(&self.vm.machine, self.root, pages, &mut |part| {
            // I58: there is no leaf table.
            let Part::Huge(pmd) = part else { return Next::GoOn };
            result = self.share_page_of_pool(child, pmd, source, write_protected);
            if result.is_ok() { Next::GoOn } else { Next::Stop }
        });
        result
    }

    fn share_page_of_pool(
        &self,
        child: &mut Child<'_, 'vm, M>,
        pmd: PmdSlot<'_, M::Format>,
        source: PagesOf,
        write_protected: &mut bool,
    ) -> Result<(), OutOfFrames> {
        let to = child.entry_of_pool(pmd.base, pmd.slot.level)?;
        let entry = loop {
            let seen = pmd.slot.observe();
            match seen.entry {
                Entry::Leaf(_) => match self.share_leaf_of_pool(pmd, source, write_protected) {
                    Some(Entry::None) => return Ok(()),
                    Some(entry) => break entry,
                    None => {}
                },
                // The parent has no page there, either.
                Entry::Poison => break Entry::Poison,
                Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => self.vm.machine.relax(),
                Entry::None | Entry::Guard | Entry::Swap(_) | Entry::Table(_) => return Ok(()),
            }
        };
        to.slot.set_private(entry);
        if let Entry::Leaf(_) = entry {
            child.space.charge(Rss::Anon, pmd.nr_pages() as i64);
        } else {
            self.vm.count(Event::ForkNoHugePage, 1);
        }
        Ok(())
    }

    /// The child's entry for a page that the parent has; `None` if the place has lost it meanwhile, to a smaller size or a hole.
    fn share_leaf_of_pool(
        &self,
        pmd: PmdSlot<'_, M::Format>,
        source: PagesOf,
        write_protected: &mut bool,
    ) -> Option<Entry> {
        if self.shows_object(pmd) {
            // The child faults it in, as the parent did.
            return Some(Entry::None);
        }
        // Before the lock bit: a surplus page may have to be found.
        if self.vm.reserve_in(source.subpool, source.pool, 1).is_err() {
            // While a fault owns the entry nothing says whose page it is.
            self.lock_private(pmd)?;
            pmd.slot.unlock_unchanged();
            return Some(Entry::Poison);
        }
        let shared = self.share_with_claim(pmd, source, write_protected);
        if shared.is_none() {
            self.vm.unreserve_in(source.subpool, source.pool, 1);
        }
        shared
    }

    fn shows_object(&self, pmd: PmdSlot<'_, M::Format>) -> bool {
        let _section = self.section();
        matches!(pmd.slot.observe().entry, Entry::Leaf(leaf) if self.is_of_object(leaf))
    }

    /// The same with a claim, which is used unless this returns `None`.
    fn share_with_claim(
        &self,
        pmd: PmdSlot<'_, M::Format>,
        source: PagesOf,
        write_protected: &mut bool,
    ) -> Option<Entry> {
        let leaf = self.lock_private(pmd)?;
        let why = match self.vm.share_pool_page(leaf.pfn) {
            Ok(()) => {
                let now = Leaf { rights: leaf.rights - Rights::WRITE, ..leaf };
                *write_protected |= now.rights != leaf.rights;
                pmd.slot.unlock(now);
                return Some(Entry::Leaf(now));
            }
            Err(NoShare::Pinned) => Event::ForkPinned,
            Err(NoShare::MapsFull) => Event::ForkMapsFull,
        };
        pmd.slot.unlock_unchanged();
        self.copy_page_of_pool(pmd, source, why)
    }

    /// Takes the lock bit of the entry if it names a private page.
    fn lock_private(&self, pmd: PmdSlot<'_, M::Format>) -> Option<Leaf> {
        self.own_private(pmd, &|seen| pmd.slot.lock(seen).ok(), &|_| _ = pmd.slot.unlock_unchanged())
    }

    /// Owns the entry if it names a private page. A fault may own it for a moment.
    fn own_private(
        &self,
        pmd: PmdSlot<'_, M::Format>,
        own: &dyn Fn(Seen) -> Option<Leaf>,
        give_up: &dyn Fn(Leaf),
    ) -> Option<Leaf> {
        loop {
            let seen = pmd.slot.observe();
            match seen.entry {
                Entry::Leaf(_) => {
                    let Some(leaf) = own(seen) else { continue };
                    if self.is_of_object(leaf) {
                        give_up(leaf);
                        return None;
                    }
                    return Some(leaf);
                }
                Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => self.vm.machine.relax(),
                _ => return None,
            }
        }
    }

    /// A copy of a page that cannot be shared, for the child, with the claim that the caller has; the parent and the holder of
    /// a pin keep the page. Whether the pin has ended since does not matter.
    fn copy_page_of_pool(&self, pmd: PmdSlot<'_, M::Format>, source: PagesOf, why: Event) -> Option<Entry> {
        let vm = self.vm;
        let give_up = |leaf| pmd.slot.resolve(Entry::Leaf(leaf));
        let old = self.own_private(pmd, &|seen| pmd.slot.take(seen).ok(), &give_up)?;
        let Ok(to) = vm.take_in(source.subpool, source.pool, Claim::Reserved) else {
            give_up(old);
            return None;
        };
        self.shootdown_and_wait(Flush::Pages(pmd.span()));
        // The holder of the pin may be writing.
        if vm.copy_stored_to(to, old.pfn, pmd.nr_pages()).is_err() {
            vm.count(Event::CopyFailed, 1);
            // First: the release takes locks.
            give_up(old);
            vm.free_pool_page(to, Claim::Nothing);
            return Some(Entry::Poison);
        }
        vm.make_pool_page(source.pool, to, self.family, vm.frames.desc(old.pfn).index.get());
        pmd.slot.resolve(Entry::Leaf(old));
        vm.count(why, 1);
        Some(Entry::Leaf(Leaf { pfn: to, dirty: true, ..old }))
    }
}
