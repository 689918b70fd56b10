//! Fork of a private mapping of a pool's pages.
//!
//! ```text
//! page, shared by n   lock the entry ─▶ n + 1 ─▶ the child's entry, both without the write right
//! pinned              the child gets a copy, of a page that is unreserved; none: its place has lost the page
//! lost                the child's place has lost it, too; where the parent only lacks a claim, the child's place is empty
//! ```
//! No page is needed until one of them stores. The child's mapping has no reservations: its empty entries are no claims, and it
//! owns no page (`frame/pool_page.rs`).
//!
//! Locks on entry: the parent's writer lock, no section.

use super::child::Child;
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{PageRange, Pfn, Rights};
use crate::frame::{Claim, NoShare, OutOfFrames, PoolId, SubpoolId};
use crate::machine::{Flush, Machine};
use crate::space::AddressSpace;
use crate::space::lock::Writer;
use crate::space::pools::has_claims;
use crate::space::vma::Vma;
use crate::table::entry::Seen;
use crate::table::format::{Entry, Leaf};
use crate::table::place::PmdSlot;
use crate::table::take::{self, Next, Part};

/// Where the pages of a mapping come from.
#[derive(Clone, Copy)]
struct PagesOf {
    pool: PoolId,
    subpool: Option<SubpoolId>,
    /// The child's entry for a place that has lost its page.
    lost: Entry,
}

/// A mapping that reserves has lost claims, and no bytes: so its child has lost nothing.
fn lost_in_child(vma: &Vma) -> Entry {
    if has_claims(vma) { Entry::None } else { Entry::Poison }
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Shares pages of the mapping with the child.
    pub(super) fn share_pool(
        &self,
        writer: &Writer<'_, M>,
        child: &mut Child<'_, 'vm, M>,
        (vma, pool, pages): (&Vma, PoolId, PageRange),
        write_protected: &mut bool,
    ) -> Result<(), OutOfFrames> {
        self.assert_writer(writer);
        let subpool = self.vm.object_subpool(vma.object);
        let (source, mut result) = (PagesOf { pool, subpool, lost: lost_in_child(vma) }, Ok(()));
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
                Entry::Poison if source.lost == Entry::None => return Ok(()),
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
        let why = match self.share_locked_of_pool(pmd, write_protected)? {
            Ok(leaf) => return Some(Entry::Leaf(leaf)),
            Err(why) => why,
        };
        // Before the entry is owned: a surplus page may have to be found.
        let Ok(to) = self.vm.take_in(source.subpool, source.pool, Claim::Nothing) else {
            // The pin may have ended since.
            let shared = self.share_locked_of_pool(pmd, write_protected)?;
            return Some(shared.map_or(Entry::Poison, Entry::Leaf));
        };
        self.copy_page_of_pool(pmd, source, to, why)
    }

    fn shows_object(&self, pmd: PmdSlot<'_, M::Format>) -> bool {
        let _section = self.section();
        matches!(pmd.slot.observe().entry, Entry::Leaf(leaf) if self.is_of_object(leaf))
    }

    /// Counts one entry more, under the lock bit. `None` as above; an error says why the page cannot be shared.
    fn share_locked_of_pool(
        &self,
        pmd: PmdSlot<'_, M::Format>,
        write_protected: &mut bool,
    ) -> Option<Result<Leaf, Event>> {
        let leaf = self.lock_private(pmd)?;
        let why = match self.vm.share_pool_page(leaf.pfn) {
            Ok(()) => {
                let now = Leaf { rights: leaf.rights - Rights::WRITE, ..leaf };
                *write_protected |= now.rights != leaf.rights;
                pmd.slot.unlock(now);
                return Some(Ok(now));
            }
            Err(NoShare::Pinned) => Event::ForkPinned,
            Err(NoShare::MapsFull) => Event::ForkMapsFull,
        };
        pmd.slot.unlock_unchanged();
        Some(Err(why))
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

    /// Makes `to` a copy of a page that cannot be shared, for the child; the parent and the holder of
    /// a pin keep the page. Whether the pin has ended since does not matter.
    fn copy_page_of_pool(&self, pmd: PmdSlot<'_, M::Format>, source: PagesOf, to: Pfn, why: Event) -> Option<Entry> {
        let vm = self.vm;
        let give_up = |leaf| pmd.slot.resolve(Entry::Leaf(leaf));
        let Some(old) = self.own_private(pmd, &|seen| pmd.slot.take(seen).ok(), &give_up) else {
            vm.free_pool_page(to, Claim::Nothing);
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
