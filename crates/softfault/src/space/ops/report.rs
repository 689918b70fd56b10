//! Reports of mappings: the data of `/proc/PID/maps` and `smaps`, and single translations.
//!
//! Locks on entry: none. Takes the writer lock for one batch of VMAs at a time.

use crate::account::rss::RssPages;
use crate::addr::{Order, PageRange, Pfn, Rights, Vpn};
use crate::frame::{FrameKind, PoolId};
use crate::machine::Machine;
use crate::pace::Pace;
use crate::space::AddressSpace;
use crate::space::lock::Writer;
use crate::space::vma::{ObjectId, Vma};
use crate::sync::Ordering;
use crate::table::entry::Slot;
use crate::table::format::{Entry, Leaf};
use crate::table::take::{self, Next, Part};
use core::ops::ControlFlow;

/// VMAs that are copied under the writer lock in one batch: 1 KiB of stack.
const BATCH: usize = 16;

/// The translation of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Translation {
    /// The frame of the page.
    pub pfn: Pfn,
    /// Rights that the hardware grants now. Copy-on-write may withhold one that the VMA grants.
    pub rights: Rights,
    /// Size of the mapping.
    pub order: Order,
}

/// The state of a mapped page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PageState {
    /// Rights that the hardware grants now. Copy-on-write may withhold one that the VMA grants.
    pub rights: Rights,
    /// Size of the mapping.
    pub order: Order,
}

/// One VMA and its resident pages, as in `/proc/PID/smaps`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SmapsEntry {
    /// The VMA.
    pub vma: Vma,
    /// The size of its pages: that of the pool which they come from, or that of a base page.
    pub page_order: Order,
    /// Present pages, without the zero frame.
    pub rss_pages: u64,
    /// Of these, pages with more than one mapping. An estimate for pages of an object, which have no
    /// map count: all of them if the object is mapped in two places, otherwise none.
    pub shared_pages: u64,
    /// Of these, pages used since it was last cleared.
    pub referenced_pages: u64,
    /// Of these, pages written since it was last cleared.
    pub dirty_pages: u64,
    /// Of these, private pages: not those of an object.
    pub anon_pages: u64,
    /// Of these, private pages in huge mappings (`AnonHugePages`).
    pub anon_huge_pages: u64,
    /// Pages that are swapped out. They are not resident.
    pub swap_pages: u64,
}

/// The number of entries that map a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MappedBy {
    One,
    Several,
}

impl SmapsEntry {
    fn add(&mut self, nr_pages: u64, by: MappedBy, leaf: Leaf) {
        let nr_if = |yes: bool| if yes { nr_pages } else { 0 };
        self.rss_pages += nr_pages;
        self.shared_pages += nr_if(by == MappedBy::Several);
        self.referenced_pages += nr_if(leaf.accessed);
        self.dirty_pages += nr_if(leaf.dirty);
    }
}

impl<M: Machine> AddressSpace<'_, M> {
    /// Calls `f` with each VMA, lowest first. No lock is held while `f` runs: it may call back. VMAs
    /// are copied in batches under the writer lock. No page is reported twice, even if the space
    /// changes between two batches.
    pub fn maps(&self, f: &mut dyn FnMut(&Vma)) {
        self.vm.call();
        let mut batch = [None; BATCH];
        let mut from = Vpn(0);
        while let Some(next) = self.vmas_from(from, &mut batch) {
            from = next;
            batch.iter().flatten().for_each(&mut *f);
        }
    }

    /// Calls `f` with each VMA and its resident pages, as [`maps`](Self::maps) does.
    pub fn smaps(&self, f: &mut dyn FnMut(&SmapsEntry)) {
        self.vm.call();
        let mut from = Vpn(0);
        let mut pace = Pace::new(&self.vm.machine);
        while let Some(entry) = self.smaps_from(from) {
            pace.page();
            from = entry.vma.range.end;
            f(&entry);
        }
    }

    /// Returns the first VMA at `addr`, in bytes, or above, cut off below `addr`. For reports that
    /// are made piece by piece. Takes the writer lock. Answers no other CPU if the lock is free, so
    /// a caller in a loop has to.
    pub fn next_vma(&self, addr: u64) -> Option<Vma> {
        self.next_mapping(addr).map(|(vma, _)| vma)
    }

    /// As [`next_vma`](Self::next_vma), with the order of its pages: that of a pool's, or [`Order::BASE`].
    pub fn next_mapping(&self, addr: u64) -> Option<(Vma, Order)> {
        self.vm.call();
        let writer = &self.write_lock();
        self.first_from(writer, Vpn::of(addr)).map(|vma| (vma, self.page_order(&vma)))
    }

    /// As [`next_vma`](Self::next_vma), with the resident pages. Answers other CPUs.
    pub fn next_smaps(&self, addr: u64) -> Option<SmapsEntry> {
        self.vm.call();
        self.smaps_from(Vpn::of(addr))
    }

    /// Copies the next VMAs from `from`, cut off below it. Returns the end of the last one.
    fn vmas_from(&self, from: Vpn, batch: &mut [Option<Vma>; BATCH]) -> Option<Vpn> {
        let writer = &self.write_lock();
        let range = PageRange::new(from, Self::user_range().end);
        let mut nr = 0;
        *batch = [None; BATCH];
        let _ = self.tree(writer).for_each(range, &mut |vma| {
            batch[nr] = Some(vma.part(vma.range.intersect(&range)));
            nr += 1;
            if nr == BATCH { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        batch.iter().flatten().last().map(|vma| vma.range.end)
    }

    /// Reports the first VMA from `from`, cut off below it, and its resident pages.
    fn smaps_from(&self, from: Vpn) -> Option<SmapsEntry> {
        let writer = &self.write_lock();
        self.first_from(writer, from).map(|vma| self.smaps_of(writer, vma))
    }

    /// Finds the first VMA from `from`, cut off below it.
    fn first_from(&self, writer: &Writer<'_, M>, from: Vpn) -> Option<Vma> {
        self.assert_writer(writer);
        let range = PageRange::new(from, Self::user_range().end);
        let vma = self.tree(writer).next(from).map(|found| found.vma).filter(|vma| vma.range.overlaps(&range))?;
        Some(vma.part(vma.range.intersect(&range)))
    }

    /// Returns the size of the pages of a VMA that is in the tree.
    fn page_order(&self, vma: &Vma) -> Order {
        self.vm.pool_of_vma(vma).map_or(Order::BASE, PoolId::order)
    }

    fn smaps_of(&self, writer: &Writer<'_, M>, vma: Vma) -> SmapsEntry {
        let mut entry = SmapsEntry {
            vma,
            page_order: self.page_order(&vma),
            rss_pages: 0,
            shared_pages: 0,
            referenced_pages: 0,
            dirty_pages: 0,
            anon_pages: 0,
            anon_huge_pages: 0,
            swap_pages: 0,
        };
        self.assert_writer(writer);
        let machine = &self.vm.machine;
        take::for_each_part(machine, self.root, vma.range, &mut |part| match part {
            Part::Table(table, pages) => {
                take::for_each_in_table(machine, table, pages, &mut |_, slot| self.add_entry(&mut entry, slot, 1))
            }
            // Where the VMA is cut off within a huge page, only the part in it counts, and nothing is split.
            Part::Huge(pmd) => self.add_entry(&mut entry, pmd.slot, pmd.span().intersect(&vma.range).nr_pages()),
        });
        entry
    }

    /// Adds the `nr` pages of an entry.
    fn add_entry(&self, entry: &mut SmapsEntry, slot: Slot<'_, M::Format>, nr: u64) -> Next {
        match slot.observe().entry {
            Entry::Leaf(leaf) | Entry::LockedLeaf(leaf) if slot.level > 0 => self.add_huge(entry, leaf, nr),
            Entry::Leaf(leaf) | Entry::LockedLeaf(leaf) => self.add_page(entry, leaf),
            Entry::Swap(_) => entry.swap_pages += 1,
            Entry::Table(_) => return Next::Again,
            _ => {}
        }
        Next::GoOn
    }

    fn add_page(&self, entry: &mut SmapsEntry, leaf: Leaf) {
        if leaf.pfn != self.vm.frames.zero {
            let state = self.vm.frames.desc(leaf.pfn).state();
            let several = match entry.vma.object {
                object if object != ObjectId::NONE && state.kind() != FrameKind::Anon => {
                    self.vm.object(object).nr_members.load(Ordering::Relaxed) > 1
                }
                _ => state.nr_maps() > 1,
            };
            entry.add(1, if several { MappedBy::Several } else { MappedBy::One }, leaf);
            entry.anon_pages += u64::from(state.kind() == FrameKind::Anon);
        }
    }

    fn add_huge(&self, entry: &mut SmapsEntry, leaf: Leaf, nr: u64) {
        if self.vm.frames.desc(leaf.pfn).state().kind() == FrameKind::Anon && self.vm.frames.is_of_pool(leaf.pfn) {
            let several = self.vm.frames.desc(leaf.pfn).state().nr_maps() > 1;
            entry.anon_pages += nr;
            return entry.add(nr, if several { MappedBy::Several } else { MappedBy::One }, leaf);
        }
        if self.vm.frames.is_of_pool(leaf.pfn) {
            let nr_members = self.vm.object(entry.vma.object).nr_members.load(Ordering::Relaxed);
            let by = if nr_members > 1 { MappedBy::Several } else { MappedBy::One };
            return entry.add(nr, by, leaf);
        }
        if !self.vm.is_huge_zero(leaf.pfn) {
            let by = if self.vm.folio_is_exclusive(leaf.pfn) { MappedBy::One } else { MappedBy::Several };
            entry.add(nr, by, leaf);
            entry.anon_pages += nr;
            entry.anon_huge_pages += nr;
        }
    }

    /// Counts the present base pages of mappings of pools, which are part of [`rss_pages`](Self::rss_pages): its `anon` and
    /// `shmem`, which together are Linux's `HugetlbPages`; the rest is 0. Reads their entries, and nothing in a space that
    /// has never had such a mapping.
    ///
    /// # Panics
    ///
    /// In a callback ([`Machine`]).
    pub fn hugetlb_rss_pages(&self) -> RssPages {
        self.vm.call();
        let mut sum = RssPages::default();
        if !self.maps_pools() {
            return sum;
        }
        let mut from = Vpn(0);
        let mut pace = Pace::new(&self.vm.machine);
        loop {
            pace.page();
            let writer = &self.write_lock();
            let Some(vma) = self.first_from(writer, from) else { return sum };
            from = vma.range.end;
            if self.vm.pool_of_vma(&vma).is_some() {
                let entry = self.smaps_of(writer, vma);
                sum.anon += entry.anon_pages;
                sum.shmem += entry.rss_pages - entry.anon_pages;
            }
        }
    }

    /// Number of pages in all VMAs (`VmSize`).
    pub fn nr_mapped_pages(&self) -> u64 {
        self.data.limits.nr_mapped_pages.get()
    }

    /// Number of VMAs. Waits for writers.
    pub fn nr_vmas(&self) -> u64 {
        self.tree(&self.write_lock()).nr_in_tree()
    }

    /// Returns the VMA that contains the address. Waits for the writer if there seems to be none: a
    /// call that replaces a mapping makes it a hole for a moment.
    pub fn vma(&self, addr: u64) -> Option<Vma> {
        self.vma_at(Vpn::of(addr))
    }

    /// Returns the state of the page at the address; `None` if any access would fault. The frame is
    /// left out: only holders of a [pin](Self::pin_page) and subscribers, who are told of changes
    /// ([`Subscription::lookup`](crate::Subscription::lookup)), may use its number.
    pub fn page_state(&self, addr: u64) -> Option<PageState> {
        self.translation(addr).map(|t| PageState { rights: t.rights, order: t.order })
    }
}
