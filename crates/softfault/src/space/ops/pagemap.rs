//! The state of single pages: the data of `/proc/PID/pagemap`.
//!
//! Locks on entry: none. Takes the writer lock for the range.

use super::{is_aligned, page_align, pages};
use crate::addr::{PageRange, Pfn, Vpn};
use crate::frame::FrameKind;
use crate::machine::Machine;
use crate::pace::Pace;
use crate::space::AddressSpace;
use crate::space::lock::Writer;
use crate::space::vma::{ObjectId, Vma};
use crate::sync::Ordering;
use crate::table::entry::Slot;
use crate::table::format::{Entry, Leaf, span_of};
use crate::table::take::{self, Next, Part};
use core::ops::ControlFlow;

/// A page that has an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PagemapEntry {
    /// The address of the page.
    pub addr: u64,
    /// The kind of its entry.
    pub page: PagemapPage,
}

/// The kind of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PagemapPage {
    /// The frame of zeroes, which nobody has alone.
    Zero,
    /// A private page.
    Private {
        /// Its frame.
        pfn: Pfn,
        /// No other entry maps it.
        is_exclusive: bool,
    },
    /// A page of an object.
    Object {
        /// Its frame.
        pfn: Pfn,
        /// Only one mapping of the object includes it: an estimate, as such pages count no maps.
        is_exclusive: bool,
    },
    /// It is swapped out, or its memory failed.
    Absent,
    /// A guard (`MADV_GUARD_INSTALL`).
    Guard,
}

impl<M: Machine> AddressSpace<'_, M> {
    /// Calls `f` with each page of `addr..addr + len` that has an entry, whatever rights it has, in ascending order. `f` runs under the
    /// writer lock, which is held for the whole range: it must not call back. Other CPUs are answered only between two VMAs. So ask for
    /// short ranges. An address that is not the beginning of a page, and a range beyond the last address, have no pages.
    ///
    /// Source: Documentation/admin-guide/mm/pagemap.rst of Linux.
    pub fn pagemap(&self, addr: u64, len: u64, f: &mut dyn FnMut(PagemapEntry)) {
        self.vm.call();
        let end = addr.checked_add(page_align(len)).filter(|end| *end <= super::task_size::<M::Format>());
        if !is_aligned(addr) || end.is_none() {
            return;
        }
        let writer = &self.write_lock();
        let range = pages(addr, page_align(len));
        let mut pace = Pace::new(&self.vm.machine);
        let _ = self.tree(writer).for_each(range, &mut |vma| {
            pace.step();
            self.pagemap_of(writer, &vma, vma.range.intersect(&range), f);
            ControlFlow::Continue(())
        });
    }

    fn pagemap_of(&self, writer: &Writer<'_, M>, vma: &Vma, part: PageRange, f: &mut dyn FnMut(PagemapEntry)) {
        self.assert_writer(writer);
        let machine = &self.vm.machine;
        take::for_each_part(machine, self.root, part, &mut |found| match found {
            Part::Table(table, pages) => take::for_each_in_table(machine, table, pages, &mut |vpn, slot| {
                self.tell_entry(vma, PageRange::new(vpn, Vpn(vpn.0 + 1)), slot, f)
            }),
            Part::Huge(pmd) => self.tell_entry(vma, pmd.span().intersect(&part), pmd.slot, f),
        });
    }

    fn tell_entry(
        &self,
        vma: &Vma,
        pages: PageRange,
        slot: Slot<'_, M::Format>,
        f: &mut dyn FnMut(PagemapEntry),
    ) -> Next {
        let entry = slot.observe().entry;
        let first = pages.start.0 / span_of::<M::Format>(slot.level) * span_of::<M::Format>(slot.level);
        for vpn in pages.start.0..pages.end.0 {
            let page = match entry {
                Entry::Leaf(leaf) | Entry::LockedLeaf(leaf) => self.page_of(vma, leaf, vpn - first, slot.level),
                Entry::Swap(_) | Entry::Poison => PagemapPage::Absent,
                Entry::Guard => PagemapPage::Guard,
                Entry::Table(_) => return Next::Again,
                _ => return Next::GoOn,
            };
            f(PagemapEntry { addr: Vpn(vpn).addr(), page });
        }
        Next::GoOn
    }

    /// The page at `index` of what the leaf maps.
    fn page_of(&self, vma: &Vma, leaf: Leaf, index: u64, level: u8) -> PagemapPage {
        let frames = &self.vm.frames;
        if leaf.pfn == frames.zero || self.vm.is_huge_zero(leaf.pfn) {
            return PagemapPage::Zero;
        }
        let (state, pfn) = (frames.desc(leaf.pfn).state(), Pfn(leaf.pfn.0 + index as u32));
        // Of the other huge mappings all are private; the folio has the count.
        if level > 0 && !frames.is_of_pool(leaf.pfn) {
            return PagemapPage::Private { pfn, is_exclusive: self.vm.folio_is_exclusive(leaf.pfn) };
        }
        if state.kind() != FrameKind::Anon {
            let is_exclusive =
                vma.object != ObjectId::NONE && self.vm.object(vma.object).nr_members.load(Ordering::Relaxed) == 1;
            return PagemapPage::Object { pfn, is_exclusive };
        }
        PagemapPage::Private { pfn, is_exclusive: state.nr_maps() == 1 }
    }
}
