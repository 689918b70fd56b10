//! `pmd_split`: a huge mapping becomes 512 small ones of the same frames.
//!
//! ```text
//! mapping ─▶ Busy ─▶ shootdown ─▶ fill the deposited leaf table ─▶ table
//! ```
//! A split allocates nothing and cannot fail: the leaf table was deposited when the mapping was
//! made, and the counts have room (`MAPS_LIMIT`). Between the shootdown and the table no CPU has a
//! translation, so none ever holds both sizes. No grace period is needed: a section that saw the
//! old entry uses frames that stay in place, with the rights that they had.
//!
//! Subscribers are not told: the mapped bytes do not change.
//!
//! Locks on entry: none, no section. The CPU that made the entry `Busy` splits it.

use super::AddressSpace;
use super::lock::Writer;
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{OptPfn, PageRange, Pfn, Rights, Vpn};
use crate::frame::{FrameKind, FreeBatch};
use crate::machine::{Flush, Machine};
use crate::pace::Pace;
use crate::space::Vm;
use crate::table::entry::Slot;
use crate::table::format::{Entry, Leaf};
use crate::table::place::PmdSlot;
use crate::table::pmd;
use crate::table::take::{self, Next, Part};
use crate::table::walk::{self, Walk};

/// Sub-pages of a huge page, a bit each.
pub(crate) type ZeroPages = [u64; 8];

impl<M: Machine> AddressSpace<'_, M> {
    /// Splits the huge mapping in the entry, if there is one. Waits for an entry that others own.
    pub(crate) fn pmd_split(&self, pmd: PmdSlot<'_, M::Format>) {
        loop {
            let seen = pmd.slot.observe();
            match seen.entry {
                Entry::Leaf(_) => {
                    if let Ok(old) = pmd.slot.take(seen) {
                        return self.finish_split(pmd, old);
                    }
                }
                Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => self.vm.machine.relax(),
                Entry::None | Entry::Table(_) | Entry::Guard | Entry::Poison | Entry::Swap(_) => return,
            }
        }
    }

    /// Returns nothing, because it cannot fail.
    pub(crate) fn finish_split(&self, pmd: PmdSlot<'_, M::Format>, old: Leaf) {
        debug_assert!(!self.vm.frames.is_of_pool(old.pfn), "I58: a page of a pool is never split");
        self.shootdown(Flush::Pages(pmd.span()));
        let table = self.fill_deposit(&pmd, old);
        pmd.slot.resolve(Entry::Table(table));
        self.vm.count(Event::ThpSplitPmd, 1);
    }

    /// Splits a folio that nothing else maps, and maps the zero frame for the pages `zero` (bit i
    /// of word i / 64), which contain only zeroes. The caller has shot down and waited, and none of
    /// the pages is pinned, so nobody can write to them. Returns the number of frames that were
    /// freed.
    pub(crate) fn finish_split_without(&self, pmd: PmdSlot<'_, M::Format>, old: Leaf, zero: &ZeroPages) -> u64 {
        let table = self.fill_deposit(&pmd, old);
        let frames = &self.vm.frames;
        let mut batch = FreeBatch::new(self.vm);
        let mut nr_freed = 0;
        let words = walk::entries(&self.vm.machine, table).iter().enumerate();
        let mut pace = Pace::new(&self.vm.machine);
        for (i, word) in words.take(Vm::<M>::NR_SUB_FRAMES as usize) {
            pace.step();
            let pfn = Pfn(old.pfn.0 + i as u32);
            if zero[i / 64] & 1 << (i % 64) == 0 {
                continue;
            }
            let leaf = Leaf { pfn: frames.zero, rights: old.rights - Rights::WRITE, accessed: false, dirty: false };
            Slot::<M::Format>::new(word, 0).set_private(Entry::Leaf(leaf));
            if frames.desc(pfn).map_drop() {
                batch.add(pfn);
                nr_freed += 1;
            }
        }
        self.charge(Rss::Anon, -(nr_freed as i64));
        drop(batch);
        pmd.slot.resolve(Entry::Table(table));
        self.vm.count(Event::ThpSplitPmd, 1);
        nr_freed
    }

    /// Fills the deposited table with the entries of the huge mapping.
    fn fill_deposit(&self, pmd: &PmdSlot<'_, M::Format>, old: Leaf) -> Pfn {
        let machine = &self.vm.machine;
        crate::pace::answer(machine);
        let table = pmd::withdraw(machine, &self.vm.frames, pmd.table, pmd.base);
        let table = table.expect("I25: each huge mapping has a deposit");
        let of_zero = self.vm.is_huge_zero(old.pfn);
        if !of_zero {
            let dissolved = self.vm.folio_deal_out(old.pfn);
            self.vm.count(Event::ThpSplitPage, u64::from(dissolved));
            self.charge(Rss::Huge, -(Vm::<M>::NR_SUB_FRAMES as i64));
        }
        let words = walk::entries(machine, table);
        let mut pace = Pace::new(machine);
        for (i, word) in words.iter().enumerate().take(Vm::<M>::NR_SUB_FRAMES as usize) {
            pace.step();
            let leaf = if of_zero {
                Leaf { pfn: self.vm.frames.zero, rights: old.rights - Rights::WRITE, ..old }
            } else {
                Leaf { pfn: Pfn(old.pfn.0 + i as u32), ..old }
            };
            Slot::<M::Format>::new(word, 0).set_private(Entry::Leaf(leaf));
        }
        self.vm.frames.desc(table).assign(FrameKind::Table, 0, u64::from(self.frame.0), 0);
        table
    }

    /// Splits a huge mapping that extends across the page's start: for edges of VMAs, after their
    /// tree was published. A fault that installs a huge mapping checks the generation again when
    /// the entry is locked. So either this sees the mapping, or it is not made.
    pub(crate) fn split_at(&self, writer: &Writer<'_, M>, vpn: Vpn) {
        self.assert_writer(writer);
        if vpn.0.is_multiple_of(Vm::<M>::NR_SUB_FRAMES) || vpn >= Self::user_range().end {
            return;
        }
        crate::sync::fence();
        loop {
            match self.walk(writer, vpn) {
                // A page of a pool is in one VMA: the edge is of a range in which that does not change (mlock). The VMA says
                // so, since a fault may own the entry at this moment.
                Walk::Huge(_) if self.is_in_pool(writer, vpn) => return,
                Walk::Huge(pmd) => self.pmd_split(pmd),
                Walk::Owned => self.vm.machine.relax(),
                Walk::Leaf(_) | Walk::Hole(_) => return,
            }
        }
    }

    /// Whether the mapping at a page is of a pool's pages.
    fn is_in_pool(&self, writer: &Writer<'_, M>, vpn: Vpn) -> bool {
        self.tree(writer).lookup(vpn).is_some_and(|found| self.vm.pool_of_vma(&found.vma).is_some())
    }

    /// Splits at both ends of a range.
    pub(crate) fn split_edges(&self, writer: &Writer<'_, M>, range: PageRange) {
        self.split_at(writer, range.start);
        self.split_at(writer, range.end);
    }

    /// Calls `f(page, entry)` for each entry of the range that is not none, huge
    /// ones (of level 1) with their first page. Those that reach out of the range
    /// are split before.
    pub(crate) fn for_each_entry(
        &self,
        writer: &Writer<'_, M>,
        range: PageRange,
        f: &mut dyn FnMut(Vpn, Slot<'_, M::Format>) -> Next,
    ) -> Next {
        self.assert_writer(writer);
        let machine = &self.vm.machine;
        take::for_each_part(machine, self.root, range, &mut |part| match part {
            Part::Table(table, pages) => take::for_each_in_table(machine, table, pages, f),
            Part::Huge(pmd) => {
                let span = pmd.span();
                if range.start <= span.start && span.end <= range.end {
                    f(span.start, pmd.slot)
                } else {
                    self.pmd_split(pmd);
                    Next::Again
                }
            }
        })
    }
}

impl<M: Machine> Vm<M> {
    /// Whether a huge entry that names the frame maps the huge zero frame.
    #[inline]
    pub(crate) fn is_huge_zero(&self, first: Pfn) -> bool {
        self.frames.huge_zero.get() == OptPfn::some(first).to_word()
    }
}
