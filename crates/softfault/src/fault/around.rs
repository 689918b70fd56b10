//! Fault-around: a read fault on a page of an object maps neighbours that are there.
//!
//! ```text
//! window    of the VMA's part in the leaf table of the fault         policy/around.rs
//! folio     all of the fault's folio in that part, if it is larger
//! entries   those that are none, in one section, the fault's own
//! pages     those in memory that no CPU is putting in, taking out or moving: others are skipped
//! ```
//! Nothing here waits, and no frame is taken: what is not there, or is not at rest, is left to its own
//! fault. Each entry is written by compare-and-swap from none, in the section in which the page was
//! found, as for the page of the fault (I22).
//!
//! **One word for a folio.** Whoever takes a folio out of its object or moves it marks the words of all its pages first,
//! and then waits for sections. So if one of the words has no mark, all frames of its folio are the object's until the
//! section ends: the entries of the others are written without a look at their words. A word of a folio that is being put in
//! may still say that nothing is there; its frame has the bytes already.
//!
//! Locks on entry: the section of the fault.

use super::batch::aligned;
use super::context::Fault;
use super::fresh::{self, FreshTable};
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{Access, Order, PageRange, Pfn, Vpn};
use crate::cpu::CpuData;
use crate::machine::Machine;
use crate::policy::around::{AroundOrder, FaultAround, Last, Neighbours, adapt, neighbourhood, window};
use crate::policy::folio::around;
use crate::source::object_slot::ObjectSlot;
use crate::source::slot::{ObjectPage, PageFrame};
use crate::space::AddressSpace;
use crate::space::vma::{ObjectId, VmaFlags};
use crate::sync::{Ordering, Word};
use crate::table::entry::{Changed, Slot};
use crate::table::format::{Entry, Format, Leaf, huge_order, index_of};
use crate::table::{run, walk};
use core::slice;

/// A window is mapped together with a new table if it has one of so many parts of the table. A guess: for a few entries the
/// second look at the object costs more than they do.
const MANY: u64 = 8;

/// The pages of the window, and those of the fault's folio within the same bounds.
fn with_folio(pages: PageRange, vpn: Vpn, frame: PageFrame, bounds: PageRange) -> PageRange {
    let start = vpn.0.saturating_sub(u64::from(frame.pfn.0 - frame.head().0));
    let end = vpn.0 + frame.order.nr_pages() - u64::from(frame.pfn.0 - frame.head().0);
    let (start, end) = (start.max(bounds.start.0), end.min(bounds.end.0));
    PageRange::new(Vpn(pages.start.0.min(start)), Vpn(pages.end.0.max(end)))
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Maps neighbours, after the page of a read fault was mapped. Returns where the pages end that may be mapped.
    #[inline]
    pub(super) fn map_around(&self, fault: &Fault<'_>, frame: PageFrame) -> Vpn {
        let word = self.vm.fault_around.load(Ordering::Relaxed);
        if word == FaultAround::OFF.to_word() {
            return Vpn(fault.request.vpn.0 + 1);
        }
        self.map_window(fault, frame, FaultAround::from_word(word))
    }

    #[inline(never)]
    fn map_window(&self, fault: &Fault<'_>, frame: PageFrame, around: FaultAround) -> Vpn {
        let Fault { here, request, found, .. } = *fault;
        if found.flags().contains(VmaFlags::RANDOM) || around == FaultAround::Adaptive && self.stays_alone(fault) {
            return Vpn(request.vpn.0 + 1);
        }
        let is_dense = |bounds| !fresh::take_first(here.cpu, fault.leaf_table()) && self.has_neighbour(fault, bounds);
        let has_window = fresh::take_window(here.cpu, fault.leaf_table());
        let (order, pages) = self.pages_around(fault, frame, around, is_dense);
        if order != AroundOrder::OFF && !has_window {
            self.count_around(fault, self.map_ready(fault, fault.leaf_table(), pages, run::fill::<M::Format>));
        }
        if around == FaultAround::Adaptive {
            self.note_window(here.cpu, Last { vma_start: found.start().0, pages, order });
        }
        pages.end
    }

    /// The window of the fault, and its order. `is_dense` says whether pages near the fault are mapped.
    #[inline(always)]
    fn pages_around(
        &self,
        fault: &Fault<'_>,
        frame: PageFrame,
        around: FaultAround,
        is_dense: impl FnOnce(PageRange) -> bool,
    ) -> (AroundOrder, PageRange) {
        let Fault { here, request, found, .. } = *fault;
        let bounds = found.part_of(aligned(request.vpn, huge_order::<M::Format>()));
        let order = match around {
            FaultAround::Fixed(order) => order,
            FaultAround::Adaptive => adapt(request.vpn, found.start(), self.last_window(here.cpu), || is_dense(bounds)),
        };
        let pages = window(request.vpn, order, bounds);
        // In adaptive mode a program that touches single pages far apart has windows of one page.
        let is_alone = order == AroundOrder::OFF;
        (order, if is_alone { pages } else { with_folio(pages, request.vpn, frame, bounds) })
    }

    fn count_around(&self, fault: &Fault<'_>, nr_mapped: u64) {
        fault.here.rss.add(Rss::Shmem, nr_mapped);
        fault.here.cpu.count_by(Event::MapAround, nr_mapped);
    }

    /// Installs a leaf table for a fault, with entries for the neighbours of its page if many are there: by plain stores, before
    /// anybody else sees the table. Whoever takes a page out waits for this section, as for entries in a table that was there.
    ///
    /// Returns the table as the CPU's hint has it.
    ///
    /// # Errors
    ///
    /// Another table was first; this one is empty.
    pub(super) fn install_leaf_table(
        &self,
        fault: &Fault<'_>,
        hole: Slot<'_, M::Format>,
        table: Pfn,
    ) -> Result<FreshTable, Changed> {
        let Some(pages) = self.many_around(fault) else {
            return hole.fill(Entry::Table(table)).map(|()| FreshTable::new(table));
        };
        let fill = run::set_private::<M::Format>;
        // The page of the fault comes last, as ever.
        let (vpn, after) = (fault.request.vpn, Vpn(fault.request.vpn.0 + 1));
        let parts = [PageRange::new(pages.start, vpn), PageRange::new(after, pages.end)];
        let nr_mapped = parts.iter().map(|part| self.map_ready(fault, table, *part, fill)).sum();
        let installed = hole.fill(Entry::Table(table));
        if installed.is_ok() {
            self.count_around(fault, nr_mapped);
        } else {
            let first = index_of::<M::Format>(pages.start.0, 0);
            for word in &walk::entries(&self.vm.machine, table)[first..][..pages.nr_pages() as usize] {
                Slot::<M::Format>::new(word, 0).set_private(Entry::None);
            }
        }
        installed.map(|()| FreshTable::new(table).with_window())
    }

    /// The window of a read fault that finds no leaf table, if it has a large part of one.
    fn many_around(&self, fault: &Fault<'_>) -> Option<PageRange> {
        let Fault { here, request, found, inside } = *fault;
        let word = self.vm.fault_around.load(Ordering::Relaxed);
        let id = found.object();
        if word == FaultAround::OFF.to_word()
            || id == ObjectId::NONE
            || request.access() == Access::Write
            || found.flags().contains(VmaFlags::RANDOM)
        {
            return None;
        }
        let around = FaultAround::from_word(word);
        let is_far = |last: Last| last.leaves_alone(request.vpn, found.start());
        if around == FaultAround::Adaptive && self.last_window(here.cpu).is_some_and(is_far) {
            return None;
        }
        let index = found.pgoff_of(request.vpn);
        if index >= self.vm.object_nr_pages(id) {
            return None;
        }
        let frame = ready(self.vm.object_slot(inside, id, index).page())?;
        let (_, pages) = self.pages_around(fault, frame, around, |_| false);
        (pages.nr_pages() * MANY >= 1 << huge_order::<M::Format>().0).then_some(pages)
    }

    /// Whether the page is far from the last ones, and the first of its table: then its neighbours are neither looked
    /// at nor mapped. Notes the window of one page.
    #[inline]
    fn stays_alone(&self, fault: &Fault<'_>) -> bool {
        let Fault { here, request, found, .. } = *fault;
        let hint = &here.cpu.hint;
        let last = self.last_window(here.cpu);
        if !last.is_some_and(|last| last.leaves_alone(request.vpn, found.start()))
            || !fresh::take_first(here.cpu, fault.leaf_table())
        {
            return false;
        }
        // Space and VMA are those of the last window.
        hint.around_start.set(request.vpn.0);
        hint.around_end.set(request.vpn.0 + 1);
        hint.around_order.set(u64::from(AroundOrder::OFF.get()));
        true
    }

    /// The CPU's last window, if it was in this space.
    fn last_window(&self, cpu: &CpuData) -> Option<Last> {
        let hint = &cpu.hint;
        let order = AroundOrder::new(hint.around_order.get() as u8)?;
        let pages = PageRange::new(Vpn(hint.around_start.get()), Vpn(hint.around_end.get()));
        let last = Last { vma_start: hint.around_vma.get(), pages, order };
        (hint.around_space.get() == self.id).then_some(last)
    }

    fn note_window(&self, cpu: &CpuData, last: Last) {
        let hint = &cpu.hint;
        hint.around_space.set(self.id);
        hint.around_vma.set(last.vma_start);
        hint.around_start.set(last.pages.start.0);
        hint.around_end.set(last.pages.end.0);
        hint.around_order.set(u64::from(last.order.get()));
    }

    /// Whether an entry near that of the fault is in use. The entries, two cache lines, are not decoded.
    fn has_neighbour(&self, fault: &Fault<'_>, bounds: PageRange) -> bool {
        let near = neighbourhood(fault.request.vpn, bounds);
        let first = index_of::<M::Format>(near.start.0, 0);
        let entries = &walk::entries(&self.vm.machine, fault.leaf_table())[first..first + near.nr_pages() as usize];
        // The page of the fault is one of them.
        entries.iter().filter(|word| !is_none::<M::Format>(word)).count() > 1
    }

    /// Maps the pages of the window that are there, in entries of the table that are none; how many. `fill` maps adjacent
    /// frames, and says how many.
    #[inline(always)]
    fn map_ready(&self, fault: &Fault<'_>, table: Pfn, pages: PageRange, fill: impl Fn(&[Word], Leaf) -> u64) -> u64 {
        let Fault { found, inside, .. } = *fault;
        let id = found.object();
        let first = found.pgoff_of(pages.start);
        // In the section of the fault, so that what is put in now leaves with the rest beyond a new end.
        let end = (first + pages.nr_pages()).min(self.vm.object_nr_pages(id));
        let is_foreign = self.vm.foreign_frames_of(id).is_some();
        let entries = walk::entries(&self.vm.machine, table);
        let to_vpn = pages.start.0.wrapping_sub(first);
        let accessed = self.vm.tunables.neighbours == Neighbours::Young || !self.vm.machine.marks_entries();
        let leaf = Leaf { pfn: Pfn(0), rights: found.object_rights(), accessed, dirty: false };
        let mut place: Option<(u64, ObjectSlot<'_>)> = None;
        let (mut index, mut nr_mapped) = (first, 0);
        while index < end {
            let i = index_of::<M::Format>(index.wrapping_add(to_vpn), 0);
            if !is_none::<M::Format>(&entries[i]) {
                index += 1;
                continue;
            }
            let at = match place.and_then(|(last, at)| at.beside(last, index)) {
                Some(at) => at,
                None => self.vm.object_slot(inside, id, index),
            };
            place = Some((index, at));
            let Some(frame) =
                ready(at.page()).or_else(|| if is_foreign { self.vm.foreign_page(id, index) } else { None })
            else {
                index += 1;
                continue;
            };
            // Its word says that the other pages of its folio are there, too: see the module.
            let is_alone = frame.order == Order::BASE;
            let after = if is_alone { index + 1 } else { around(index, frame.order).end.min(end) };
            // Before the entries, as for the page of the fault.
            self.vm.frames.desc(frame.head()).note_mapped_around();
            let leaf = Leaf { pfn: frame.pfn, ..leaf };
            // One entry needs no loop: 15 instructions less for each page of a file in small folios.
            nr_mapped += if is_alone {
                fill(slice::from_ref(&entries[i]), leaf)
            } else {
                fill(&entries[i..][..(after - index) as usize], leaf)
            };
            index = after;
        }
        nr_mapped
    }
}

#[inline(always)]
fn is_none<F: Format>(word: &Word) -> bool {
    let slot = Slot::<F>::new(word, 0);
    slot.is_none(slot.load())
}

/// The frame of a page that is there, and that no CPU is putting in, taking out or moving.
fn ready(page: ObjectPage) -> Option<PageFrame> {
    if let ObjectPage::Frame(frame) = page { Some(frame) } else { None }
}
