//! Fault-around: a read fault on a page of an object maps neighbours that are there.
//!
//! ```text
//! window    of the VMA's part in the leaf table of the fault         policy/around.rs
//! folio     all of the fault's folio in that part, if it is larger
//! entries   those that are none, in one section, the fault's own
//! pages     those in memory that nobody is putting in, taking out or moving: others are skipped
//! ```
//! Nothing here waits, and no frame is taken: what is not there, or is not at rest, is left to its own
//! fault. Each entry is written by compare-and-swap from none, in the section in which the page was
//! found, as for the page of the fault (I22).
//!
//! Locks on entry: the section of the fault.

use super::batch::aligned;
use super::context::Fault;
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{OptPfn, PageRange, Pfn, Vpn};
use crate::cpu::CpuData;
use crate::frame::FrameDesc;
use crate::machine::Machine;
use crate::policy::around::{AroundOrder, FaultAround, Last, adapt, neighbourhood, window};
use crate::source::object::ObjectSlot;
use crate::source::slot::{ObjectPage, PageFrame};
use crate::space::AddressSpace;
use crate::space::vma::VmaFlags;
use crate::sync::Ordering;
use crate::table::entry::Slot;
use crate::table::format::{Entry, Leaf, huge_order, index_of};
use crate::table::walk;

/// The pages of the window, and those of the fault's folio within the same bounds.
fn with_folio(pages: PageRange, vpn: Vpn, frame: PageFrame, bounds: PageRange) -> PageRange {
    let start = vpn.0.saturating_sub(u64::from(frame.pfn.0 - frame.head().0));
    let end = vpn.0 + frame.order.nr_pages() - u64::from(frame.pfn.0 - frame.head().0);
    let (start, end) = (start.max(bounds.start.0), end.min(bounds.end.0));
    PageRange::new(Vpn(pages.start.0.min(start)), Vpn(pages.end.0.max(end)))
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Maps neighbours, after the page of a read fault was mapped.
    #[inline]
    pub(super) fn map_around(&self, fault: &Fault<'_>, frame: PageFrame) {
        let word = self.vm.fault_around.load(Ordering::Relaxed);
        if word != FaultAround::OFF.to_word() {
            self.map_window(fault, frame, FaultAround::from_word(word));
        }
    }

    #[inline(never)]
    fn map_window(&self, fault: &Fault<'_>, frame: PageFrame, around: FaultAround) {
        let Fault { here, request, found, .. } = *fault;
        if found.flags().contains(VmaFlags::RANDOM) {
            return;
        }
        if around == FaultAround::Adaptive && self.stays_alone(fault) {
            return;
        }
        let bounds = found.part_of(aligned(request.vpn, huge_order::<M::Format>()));
        let order = match around {
            FaultAround::Fixed(order) => order,
            FaultAround::Adaptive => {
                let last = self.last_window(here.cpu);
                let is_fresh = is_fresh(here.cpu, fault.leaf_table());
                adapt(request.vpn, found.start(), last, || !is_fresh && self.has_neighbour(fault, bounds))
            }
        };
        let pages = window(request.vpn, order, bounds);
        // In adaptive mode a program that touches single pages far apart has windows of one page.
        let is_alone = order == AroundOrder::OFF;
        let pages = if is_alone { pages } else { with_folio(pages, request.vpn, frame, bounds) };
        if !is_alone {
            let nr_mapped = self.map_ready(fault, pages);
            here.rss.add(Rss::Shmem, nr_mapped);
            here.cpu.count_by(Event::MapAround, nr_mapped);
        }
        if around == FaultAround::Adaptive {
            self.note_window(here.cpu, Last { vma_start: found.start().0, pages, order });
        }
    }

    /// Whether the page is far from the last ones, and the first of its table: then its neighbours are neither looked
    /// at nor mapped. Notes the window of one page.
    #[inline]
    fn stays_alone(&self, fault: &Fault<'_>) -> bool {
        let Fault { here, request, found, .. } = *fault;
        let hint = &here.cpu.hint;
        let last = self.last_window(here.cpu);
        if !last.is_some_and(|last| last.leaves_alone(request.vpn, found.start()))
            || !is_fresh(here.cpu, fault.leaf_table())
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
        let is_in_use = |word| {
            let slot = Slot::<M::Format>::new(word, 0);
            !slot.is_none(slot.load())
        };
        // The page of the fault is one of them.
        entries.iter().filter(|word| is_in_use(word)).count() > 1
    }

    /// Maps the pages of the window that are there, in entries that are none; how many.
    fn map_ready(&self, fault: &Fault<'_>, pages: PageRange) -> u64 {
        let Fault { found, inside, .. } = *fault;
        let id = found.object();
        // In the section of the fault, so that what is put in now leaves with the rest beyond a new end.
        let nr_pages = self.vm.object_nr_pages(id);
        let accessed = !self.vm.machine.marks_entries();
        let is_foreign = self.vm.foreign_frames_of(id).is_some();
        // Values that all pages, or those of a folio, have in common are looked up once.
        let entries = walk::entries(&self.vm.machine, fault.leaf_table());
        let rights = found.object_rights();
        let mut place: Option<(u64, ObjectSlot<'_>)> = None;
        let mut folio: Option<(Pfn, &FrameDesc)> = None;
        let mut nr_mapped = 0;
        for vpn in (pages.start.0..pages.end.0).map(Vpn) {
            let slot = Slot::<M::Format>::new(&entries[index_of::<M::Format>(vpn.0, 0)], 0);
            let index = found.pgoff_of(vpn);
            if !slot.is_none(slot.load()) || index >= nr_pages {
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
                continue;
            };
            let head = frame.head();
            let desc = match folio {
                Some((of, desc)) if of == head => desc,
                _ => self.vm.frames.desc(head),
            };
            folio = Some((head, desc));
            // Before the entry, as for the page of the fault.
            desc.note_mapped_around();
            let leaf = Leaf { pfn: frame.pfn, rights, accessed, dirty: false };
            nr_mapped += u64::from(slot.fill(Entry::Leaf(leaf)).is_ok());
        }
        nr_mapped
    }
}

/// The frame of a page that is there, and that nobody is putting in, taking out or moving.
fn ready(page: ObjectPage) -> Option<PageFrame> {
    if let ObjectPage::Frame(frame) = page { Some(frame) } else { None }
}

/// Whether this is the first fault in a leaf table that the CPU has installed, so that there is nothing near
/// it. That is every fault of a program that touches single pages far apart.
fn is_fresh(cpu: &CpuData, table: Pfn) -> bool {
    let fresh = &cpu.hint.fresh_table;
    let is_fresh = fresh.get() == OptPfn::some(table).to_word();
    if is_fresh {
        fresh.set(0);
    }
    is_fresh
}
