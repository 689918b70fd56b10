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
use crate::addr::{Pfn, Rights};
use crate::frame::{Claim, NoShare, OutOfFrames, PoolId};
use crate::machine::{Flush, Machine};
use crate::pace::Pace;
use crate::program;
use crate::space::lock::Writer;
use crate::space::vma::Vma;
use crate::space::{AddressSpace, Vm};
use crate::table::format::{Entry, Leaf};
use crate::table::place::PmdSlot;
use crate::table::take::{self, Next, Part};

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Shares the pages of the mapping with the child.
    pub(super) fn share_pool(
        &self,
        writer: &Writer<'_, M>,
        child: &mut Child<'_, 'vm, M>,
        vma: &Vma,
        write_protected: &mut bool,
    ) -> Result<(), OutOfFrames> {
        self.assert_writer(writer);
        let mut result = Ok(());
        take::for_each_part(&self.vm.machine, self.root, vma.range, &mut |part| {
            // I58: there is no table.
            let Part::Huge(pmd) = part else { return Next::GoOn };
            result = self.share_page_of_pool(child, pmd, write_protected);
            if result.is_ok() { Next::GoOn } else { Next::Stop }
        });
        result
    }

    fn share_page_of_pool(
        &self,
        child: &mut Child<'_, 'vm, M>,
        pmd: PmdSlot<'_, M::Format>,
        write_protected: &mut bool,
    ) -> Result<(), OutOfFrames> {
        let to = child.pmd_of_pool(pmd.base)?;
        let entry = loop {
            let seen = pmd.slot.observe();
            match seen.entry {
                Entry::Leaf(_) => break self.share_leaf_of_pool(pmd, write_protected),
                // The parent has no page there, either.
                Entry::Poison => break Entry::Poison,
                Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => self.vm.machine.relax(),
                Entry::None | Entry::Guard | Entry::Swap(_) | Entry::Table(_) => return Ok(()),
            }
        };
        to.slot.set_private(entry);
        if let Entry::Leaf(_) = entry {
            child.space.charge(Rss::Anon, Vm::<M>::NR_SUB_FRAMES as i64);
        } else {
            self.vm.count(Event::ForkNoHugePage, 1);
        }
        Ok(())
    }

    /// The child's entry for a page that the parent has.
    fn share_leaf_of_pool(&self, pmd: PmdSlot<'_, M::Format>, write_protected: &mut bool) -> Entry {
        // Before the lock bit: a surplus page may have to be found.
        if self.vm.hugetlb_reserve(PoolId::Of2M, 1).is_err() {
            return Entry::Poison;
        }
        let leaf = loop {
            // Under the writer lock the place keeps a page, though a fault may own the entry.
            if let Ok(leaf) = pmd.slot.lock(pmd.slot.observe()) {
                break leaf;
            }
            self.vm.machine.relax();
        };
        let why = match self.vm.share_pool_page(leaf.pfn) {
            Ok(()) => {
                let now = Leaf { rights: leaf.rights - Rights::WRITE, ..leaf };
                *write_protected |= now.rights != leaf.rights;
                pmd.slot.unlock(now);
                return Entry::Leaf(now);
            }
            Err(NoShare::Pinned) => Event::ForkPinned,
            Err(NoShare::MapsFull) => Event::ForkMapsFull,
        };
        pmd.slot.unlock_unchanged();
        self.copy_page_of_pool(pmd, why)
    }

    /// A copy of a page that cannot be shared, for the child, with the claim that the caller has; the parent and the holder of
    /// a pin keep the page. Whether the pin has ended since does not matter. Under the writer lock the entry stays what it is.
    fn copy_page_of_pool(&self, pmd: PmdSlot<'_, M::Format>, why: Event) -> Entry {
        let vm = self.vm;
        let Ok(to) = vm.hugetlb_take(PoolId::Of2M, Claim::Reserved) else { return Entry::Poison };
        let old = loop {
            let seen = pmd.slot.observe();
            if let Ok(old) = pmd.slot.take(seen) {
                break old;
            }
            vm.machine.relax();
        };
        self.shootdown_and_wait(Flush::Pages(pmd.span()));
        let mut pace = Pace::new(&vm.machine);
        for i in 0..Vm::<M>::NR_SUB_FRAMES as u32 {
            pace.page();
            // The holder of the pin may be writing.
            program::copy_frame(&vm.machine, Pfn(to.0 + i), Pfn(old.pfn.0 + i));
        }
        vm.make_pool_page(to, self.family, vm.frames.desc(old.pfn).index.get());
        pmd.slot.resolve(Entry::Leaf(old));
        vm.count(why, 1);
        Entry::Leaf(Leaf { pfn: to, dirty: true, ..old })
    }
}
