//! Faults on an empty entry of a mapping of an object: maps the object's frame, or first makes one.
//! Where the mapping is private and the page is to be its own, the page is copied instead.

use super::context::{Fault, new_leaf};
use super::prealloc::{Need, Prealloc};
use super::{FaultDone, FaultError, Turn, Want};
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{Access, Order, Pfn, Vpn};
use crate::frame::{Fill, FrameKind};
use crate::machine::Machine;
use crate::mem::SourceFailed;
use crate::policy::folio::{FolioOrders, around};
use crate::policy::readahead::Pattern;
use crate::program;
use crate::source::fill_large::is_large;
use crate::source::object_slot::ObjectSlot;
use crate::source::slot::{LostFill, ObjectPage, PageFrame};
use crate::source::swapped::Swapped;
use crate::space::AddressSpace;
use crate::space::vma::{ObjectId, VmaFlags};
use crate::table::entry::Slot;
use crate::table::format::{Entry, Leaf, span_of};

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    #[inline(never)]
    pub(crate) fn fill_shared(
        &self,
        fault: &Fault<'_>,
        slot: Slot<'_, M::Format>,
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Turn<'vm, M> {
        let Fault { here, request, found, .. } = *fault;
        let id = found.object();
        let index = found.pgoff_of(request.vpn);
        if index >= self.vm.object_nr_pages(id) {
            return Turn::Refused(FaultError::BeyondObject);
        }
        if let Some(turn) = self.hugetlb_mutex(id, index, prealloc) {
            return turn;
        }
        let place = self.vm.object_slot(fault.inside, id, index);
        match place.page() {
            ObjectPage::Frame(frame) if request.wants_own() => {
                return match () {
                    () if found.is_private() => self.copy_of_object(fault, slot, frame, prealloc),
                    () if self.is_store_to_clean(fault, frame.head()) => self.ask_to_store(fault),
                    () => self.map_shared(fault, slot, frame),
                };
            }
            ObjectPage::Frame(frame) => return self.map_shared(fault, slot, frame),
            _ if request.want == Want::Ready && self.vm.foreign_page(id, index).is_none() => {
                return Turn::Refused(FaultError::Missing);
            }
            ObjectPage::Filling | ObjectPage::Leaving(_) => return Turn::Wait,
            ObjectPage::Poisoned => return Turn::Refused(FaultError::Poisoned),
            ObjectPage::InTransit(pfn) => return Turn::Sleep(self.vm.join_folio(fault.inside, &place, pfn)),
            ObjectPage::Swapped(swapped) => return self.bring_shared(fault, index, &place, swapped, prealloc),
            ObjectPage::Absent => {}
        }
        if self.vm.object_orders(id) != FolioOrders::BASE || self.vm.has_source(id) {
            if let Some(frame) = self.vm.foreign_page(id, index) {
                let wants_copy = request.wants_own() && found.is_private();
                return if wants_copy {
                    self.copy_of_object(fault, slot, frame, prealloc)
                } else {
                    self.map_shared(fault, slot, frame)
                };
            }
            return self.fill_folio(fault, index, &place, prealloc);
        }
        // A page or a node is missing; the loser keeps its frame.
        let is_page = matches!(place, ObjectSlot::Page(_));
        let fill = if is_page { Fill::Shared } else { Fill::Fixed };
        let Some(pfn) = prealloc.take(fill, fault.inside, here.cpu) else { return Turn::Need(Need::Frame(fill)) };
        if self.vm.object_fill(id, index, &place, pfn).is_err() {
            prealloc.keep(fill, pfn);
            return Turn::Raced;
        }
        Turn::Again
    }

    /// Asks for the mutex of a page of a pool, in the historic disciplines, unless the fault has it. If its mapping was
    /// replaced since, the mutex is another page's. The word of the page excludes others in any case.
    #[inline(always)]
    pub(super) fn hugetlb_mutex(&self, id: ObjectId, index: u64, prealloc: &Prealloc<'vm, M>) -> Option<Turn<'vm, M>> {
        if !self.vm.has_hugetlb_mutexes() || prealloc.has_mutex() {
            return None;
        }
        let pool = self.vm.object_pool(id)?;
        Some(Turn::Lock(id, index / pool.order().nr_pages()))
    }

    /// Begins to read a page that was swapped out; the first fault reads it for all.
    #[cold]
    fn bring_shared(
        &self,
        fault: &Fault<'_>,
        index: u64,
        place: &ObjectSlot<'_>,
        swapped: Swapped,
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Turn<'vm, M> {
        let ObjectSlot::Page(at) = *place else { return Turn::Raced };
        // In a notice the CPU's frame cache is closed. So a fault in a notice, which panics after its first
        // turn, does not begin a read.
        let frame = prealloc.take(Fill::Shared, fault.inside, fault.here.cpu);
        let Some(pfn) = frame else { return Turn::Need(Need::Frame(Fill::Shared)) };
        match self.vm.begin_to_read(fault.inside, (fault.found.object(), index), at, swapped, pfn) {
            Ok(transit) => Turn::ReadShared(transit),
            Err(_) => {
                prealloc.keep(Fill::Shared, pfn);
                Turn::Raced
            }
        }
    }

    /// Fills in a folio around a missing page, or a node on the way to it.
    #[cold]
    fn fill_folio(
        &self,
        fault: &Fault<'_>,
        index: u64,
        place: &ObjectSlot<'_>,
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Turn<'vm, M> {
        let id = fault.found.object();
        if self.vm.is_explicit(id) {
            return Turn::Refused(FaultError::Missing);
        }
        let (orders, file) = (self.vm.object_orders(id), self.vm.object_file(id));
        let end = file.map_or(u64::MAX, |_| self.ahead_end(fault, index));
        let order = self.vm.folio_order(id, index, place, prealloc.most_there(), end);
        let Some(order) = order else { return Turn::Wait };
        let Some(at) = place.place_of(order) else {
            let Some(pfn) = prealloc.take(Fill::Fixed, fault.inside, fault.here.cpu) else {
                return Turn::Need(Need::Frame(Fill::Fixed));
            };
            if self.vm.object_fill_node(id, index, place, order, pfn).is_err() {
                prealloc.keep(Fill::Fixed, pfn);
                return Turn::Raced;
            }
            return Turn::Again;
        };
        if is_large(order) {
            if !prealloc.may_claim() {
                return Turn::Need(Need::Place);
            }
            return self.vm.begin_to_fill(fault.inside, (id, index), at, order).map_or(Turn::Raced, Turn::Fill);
        }
        let is_small = order == Order::BASE;
        let frame =
            if is_small { prealloc.take(Fill::Shared, fault.inside, fault.here.cpu) } else { prealloc.batch(order) };
        let Some(pfn) = frame else {
            let sub_page = (index - around(index, order).start) as u32;
            let need = Need::Folio { order, sub_page, least: orders.least() };
            return Turn::Need(if is_small { Need::Frame(Fill::Shared) } else { need });
        };
        let head = PageFrame { pfn, order };
        let filled = match self.vm.object_file(id) {
            Some(file) => {
                let begun = self.vm.begin_to_read_file(fault.inside, (id, index, file), at, head);
                begun.map(|read| Turn::ReadFile(read.and_ahead(end)))
            }
            None => self.vm.object_fill_folio(id, index, at, head).map(|()| Turn::Again),
        };
        filled.unwrap_or_else(|LostFill| {
            if is_small {
                prealloc.keep(Fill::Shared, pfn);
            } else {
                prealloc.keep_folio(pfn, order);
            }
            Turn::Raced
        })
    }

    /// Copies the object's page into a private frame, without mapping it first. The frame stays the
    /// page's until the section ends, so the copy is made inside it: a CPU that takes the page out or
    /// moves it comes before the look at its slot, or waits for the copy.
    #[cold]
    #[inline(never)]
    fn copy_of_object(
        &self,
        fault: &Fault<'_>,
        slot: Slot<'_, M::Format>,
        from: PageFrame,
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Turn<'vm, M> {
        let Fault { here, request, found, inside } = *fault;
        let frames = &self.vm.frames;
        let Some(to) = prealloc.take(Fill::Raw, inside, here.cpu) else { return Turn::Need(Need::Frame(Fill::Raw)) };
        frames.desc(to).assign(FrameKind::Anon, 1, self.family, found.index_of(request.vpn));
        frames.note_mapping_used(from.pfn, 1);
        // Others may be storing to the object's page.
        if let Err(SourceFailed(pfn)) = program::copy_frame(&self.vm.machine, to, from.pfn) {
            prealloc.keep(Fill::Raw, to);
            return Turn::SourceFailed(pfn);
        }
        // Dirty: nobody else has these bytes once the object changes.
        let leaf = Leaf { dirty: true, ..new_leaf(*fault, to) };
        if slot.fill(Entry::Leaf(leaf)).is_err() {
            prealloc.keep(Fill::Raw, to);
            return Turn::Raced;
        }
        here.rss.add(Rss::Anon, 1);
        here.count_done(Event::CowBreak);
        Turn::Done(FaultDone::Copied)
    }

    /// Where the pages end that are to be read with this one, which is missing.
    fn ahead_end(&self, fault: &Fault<'_>, index: u64) -> u64 {
        let pattern = pattern_of(fault);
        self.vm.readahead_window(fault.inside, fault.found.object(), index, pattern).end
    }

    /// After the pages before `end` were mapped for a read.
    #[cold]
    #[inline(never)]
    fn begin_next_window(&self, fault: &Fault<'_>, end: Vpn) -> Turn<'vm, M> {
        let Fault { here, request, found, inside } = *fault;
        // In a notice a fault ends in its first turn. One that wants what is ready begins no read.
        let ahead = if here.cpu.is_telling() || request.want == Want::Ready {
            None
        } else {
            let last = found.pgoff_of(end) - 1;
            self.vm.next_window_ahead(inside, found.object(), last, pattern_of(fault))
        };
        ahead.map_or(Turn::Done(FaultDone::Shared), Turn::MappedAndAhead)
    }

    pub(super) fn map_shared(&self, fault: &Fault<'_>, slot: Slot<'_, M::Format>, frame: PageFrame) -> Turn<'vm, M> {
        let Fault { here, request, found, .. } = *fault;
        // Before the entry: a CPU that removes the page from its object waits for this section, and
        // then checks whether there may be entries.
        self.vm.frames.desc(frame.head()).note_mapped(request.access());
        let dirty = request.access() == Access::Write;
        // A store to a file was noted just now.
        let rights = if dirty { found.entry_rights() } else { found.object_rights() };
        let is_huge = slot.level > 0;
        let nr_pages = if is_huge { span_of::<M::Format>(slot.level) } else { 1 };
        let pfn = Pfn(frame.pfn.0 & !(nr_pages as u32 - 1));
        let leaf = Leaf { pfn, rights, accessed: true, dirty };
        match slot.fill(Entry::Leaf(leaf)) {
            Ok(()) => {
                here.rss.add(Rss::Shmem, nr_pages);
                here.count_done(Event::SharedMap);
                if request.access() != Access::Write && !is_huge {
                    let end = self.map_around(fault, frame);
                    if self.vm.answers_later(found.object()) {
                        return self.begin_next_window(fault, end);
                    }
                }
                Turn::Done(FaultDone::Shared)
            }
            Err(_) => Turn::Raced,
        }
    }
}

fn pattern_of(fault: &Fault<'_>) -> Pattern {
    let flags = fault.found.flags();
    if flags.contains(VmaFlags::RANDOM) {
        Pattern::Random
    } else if flags.contains(VmaFlags::SEQUENTIAL) {
        Pattern::Sequential
    } else {
        Pattern::Normal
    }
}
