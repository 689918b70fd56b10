//! Fault-around: a read fault on a page of an object maps neighbours that are there.
//!
//! ```text
//! window    of the VMA's part in the leaf table of the fault         policy/around.rs
//! entries   those that are none, in one section, the fault's own
//! pages     those in memory that nobody is putting in, taking out or moving: others are skipped
//! ```
//! Nothing here waits, and no frame is taken: what is not there, or is not at rest, is left to its own
//! fault. Each entry is written by compare-and-swap from none, in the section in which the page was
//! found, as for the page of the fault (I22).
//!
//! Locks on entry: the section of the fault.

use super::context::Fault;
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{PageRange, Vpn};
use crate::machine::Machine;
use crate::policy::around::{AroundOrder, FaultAround, Last, adapt, neighbourhood, window};
use crate::source::object::ObjectSlot;
use crate::source::slot::ObjectPage;
use crate::space::AddressSpace;
use crate::space::vma::VmaFlags;
use crate::sync::Ordering;
use crate::table::entry::Slot;
use crate::table::format::{Entry, Format, Leaf};
use crate::table::walk;

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// After the page of a read fault was mapped.
    #[inline]
    pub(super) fn map_around(&self, fault: &Fault<'_>) {
        let word = self.vm.fault_around.load(Ordering::Relaxed);
        if word != FaultAround::OFF.to_word() {
            self.map_window(fault, FaultAround::from_word(word));
        }
    }

    #[inline(never)]
    fn map_window(&self, fault: &Fault<'_>, around: FaultAround) {
        let Fault { here, request, found, .. } = *fault;
        if found.flags().contains(VmaFlags::RANDOM) {
            return;
        }
        let bounds = found.part_of(table_range::<M::Format>(request.vpn));
        let (order, hint) = match around {
            FaultAround::Fixed(order) => (order, None),
            FaultAround::Adaptive => {
                let hint = &here.cpu.hint;
                let pages = PageRange::new(Vpn(hint.around_start.get()), Vpn(hint.around_end.get()));
                let order = AroundOrder::new(hint.around_order.get() as u8).unwrap_or(AroundOrder::OFF);
                let last = Last { vma_start: hint.around_vma.get(), pages, order };
                let last = (hint.around_end.get() != 0).then_some(last);
                let order = adapt(request.vpn, found.start(), last, || self.has_neighbour(fault, bounds));
                (order, Some(hint))
            }
        };
        let pages = window(request.vpn, order, bounds);
        let nr_mapped = self.map_ready(fault, pages);
        here.rss.add(Rss::Shmem, nr_mapped);
        here.cpu.count_by(Event::MapAround, nr_mapped);
        if let Some(hint) = hint {
            hint.around_vma.set(found.start().0);
            hint.around_start.set(pages.start.0);
            hint.around_end.set(pages.end.0);
            hint.around_order.set(u64::from(order.get()));
        }
    }

    /// Whether a page near that of the fault is mapped.
    fn has_neighbour(&self, fault: &Fault<'_>, bounds: PageRange) -> bool {
        let near = neighbourhood(fault.request.vpn, bounds);
        let others = (near.start.0..near.end.0).map(Vpn).filter(|vpn| *vpn != fault.request.vpn);
        others.into_iter().any(|vpn| matches!(self.entry_at(fault, vpn).observe().entry, Entry::Leaf(_)))
    }

    /// Maps the pages of the window that are there, in entries that are none; how many.
    fn map_ready(&self, fault: &Fault<'_>, pages: PageRange) -> u64 {
        let Fault { found, inside, .. } = *fault;
        let id = found.object();
        // In the section of the fault, so that what is put in now leaves with the rest beyond a new end.
        let nr_pages = self.vm.object_nr_pages(id);
        let accessed = !self.vm.machine.marks_entries();
        let mut place: Option<(u64, ObjectSlot<'_>)> = None;
        let mut nr_mapped = 0;
        for vpn in (pages.start.0..pages.end.0).map(Vpn) {
            let slot = self.entry_at(fault, vpn);
            let index = found.pgoff_of(vpn);
            if slot.observe().entry != Entry::None || index >= nr_pages {
                continue;
            }
            let at = match place.and_then(|(last, at)| at.beside(last, index)) {
                Some(at) => at,
                None => self.vm.object_slot(inside, id, index),
            };
            place = Some((index, at));
            let ObjectPage::Frame(frame) = at.page() else { continue };
            // Before the entry, as for the page of the fault.
            self.vm.frames.desc(frame.head()).note_mapped_around();
            let leaf = Leaf { pfn: frame.pfn, rights: found.entry_rights(), accessed, dirty: false };
            nr_mapped += u64::from(slot.fill(Entry::Leaf(leaf)).is_ok());
        }
        nr_mapped
    }

    fn entry_at(&self, fault: &Fault<'_>, vpn: Vpn) -> Slot<'vm, M::Format> {
        walk::leaf_slot(&self.vm.machine, fault.leaf_table(), vpn)
    }
}

/// The pages that one leaf table maps.
fn table_range<F: Format>(vpn: Vpn) -> PageRange {
    let nr = 1 << F::INDEX_BITS;
    let start = vpn.0 & !(nr - 1);
    PageRange::new(Vpn(start), Vpn(start + nr))
}
