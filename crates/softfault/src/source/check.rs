//! Checks of objects at rest: I14 for their references, I12 for their frames. Part of `Vm::check`.

use super::node::Below;
use super::object_slot::Top;
use super::slot::{ObjectPage, PageFrame, PageSlot, level_of};
use super::swapped::Swapped;
use crate::addr::{ObjectPages, PAGE_SIZE, Pfn};
use crate::check::broken::Broken;
use crate::frame::{FrameKind, MetaUse};
use crate::machine::Machine;
use crate::mem;
use crate::space::AddressSpace;
use crate::space::Vm;
use crate::space::vma::{ObjectId, VmaFlags};
use crate::sync::Word;
use core::ops::ControlFlow;

/// Pages of VMAs that map the object: of shared ones that may be written, and of private ones.
fn nr_pages_in<M: Machine>(spaces: &[&AddressSpace<'_, M>], object: ObjectId) -> (u64, u64) {
    let (mut nr_writable, mut nr_private) = (0, 0);
    for space in spaces {
        let _ = space.tree(&space.sole_writer()).for_each(AddressSpace::<M>::user_range(), &mut |vma| {
            if vma.object == object && vma.is_private() {
                nr_private += vma.range.nr_pages();
            } else if vma.object == object && !vma.flags.contains(VmaFlags::NEVERWRITE) {
                nr_writable += vma.range.nr_pages();
            }
            ControlFlow::Continue(())
        });
    }
    (nr_writable, nr_private)
}

/// The role of a frame in an object.
enum Role {
    Header,
    Node,
    Page { orphan: bool },
}

impl<M: Machine> Vm<M> {
    /// Checks that each object counts exactly its VMAs and its handle, and the pages of VMAs that may be
    /// written, and that each frame of an object is where its descriptor says. For frames that no entry
    /// may map, `counts` has other numbers: for a header the pages of its VMAs, for a node 1 if it was
    /// reached.
    pub(crate) fn check_objects(&self, spaces: &[&AddressSpace<'_, M>], counts: &mut [u32]) -> Result<(), Broken> {
        for space in spaces {
            let _ = space.tree(&space.sole_writer()).for_each(AddressSpace::<M>::user_range(), &mut |vma| {
                if vma.object != ObjectId::NONE {
                    let count = &mut counts[vma.object.0 as usize];
                    *count = count.wrapping_add(vma.range.nr_pages() as u32);
                }
                ControlFlow::Continue(())
            });
        }
        let frames = self.frames.numbers();
        let mut nr_being_read = 0;
        for pfn in frames.clone().filter(|pfn| matches!(self.object_part(*pfn), Some(Role::Header))) {
            let data = self.object(ObjectId(u64::from(pfn.0)));
            let there = u64::from(counts[pfn.0 as usize]).wrapping_add(data.handles.get());
            if data.refs.get() == 0 || data.refs.get() as u32 != there as u32 {
                return Err(Broken::WrongCount(pfn));
            }
            // I56: no removal waits.
            if data.late_calls.nr() != 0 {
                return Err(Broken::WrongCount(pfn));
            }
            // No walk is in progress (I30); reads and writes of files may be.
            let (nr_fills, nr_pages_read) = self.fills_under_way(ObjectId(u64::from(pfn.0)));
            nr_being_read += nr_pages_read;
            if data.keeps.get() != 1 + nr_fills {
                return Err(Broken::WrongCount(pfn));
            }
            let nr_pages = (data.nr_writable.get(), data.nr_private.get());
            if nr_pages != nr_pages_in(spaces, ObjectId(u64::from(pfn.0))) {
                return Err(Broken::WrongCount(pfn));
            }
            self.check_members_of(spaces, ObjectId(u64::from(pfn.0)))?;
            let top = Top::of(&data.top);
            if let Some(node) = top.node() {
                self.count_nodes(node, top.height(), counts);
            }
        }
        if self.under_way.0.get() != nr_being_read {
            return Err(Broken::WrongUnderWay);
        }
        for pfn in frames {
            let state = self.frames.desc(pfn).state();
            let is_lost = match self.object_part(pfn) {
                Some(Role::Node) => counts[pfn.0 as usize] != 1,
                Some(Role::Page { orphan: true }) => !state.is_held() || self.is_in_its_object(pfn),
                Some(Role::Page { orphan: false }) => !self.is_in_its_object(pfn),
                Some(Role::Header) | None => false,
            };
            if is_lost {
                return Err(Broken::Lost(pfn));
            }
        }
        Ok(())
    }

    /// I48: records the slots of the swap area that belong to pages of objects. No such page is beyond
    /// the end.
    pub(crate) fn count_swapped_pages(&self, counts: &mut [u32]) -> Result<(), Broken> {
        for pfn in self.frames.numbers().filter(|pfn| matches!(self.object_part(*pfn), Some(Role::Header))) {
            let id = ObjectId(u64::from(pfn.0));
            let mut counted = Ok(());
            let _ = self.for_each_page(id, ObjectPages::ALL, &mut |index, slot| {
                if let ObjectPage::Swapped(Swapped { slot, nr_kept }) = slot.page() {
                    let is_right = index < self.object_nr_pages(id) && nr_kept <= PAGE_SIZE;
                    let is_counted =
                        if is_right { self.count_slot(slot, counts) } else { Err(Broken::WrongSlot(slot)) };
                    counted = counted.and(is_counted);
                }
                ControlFlow::Continue(())
            });
            counted?;
        }
        Ok(())
    }

    /// Folios that are read from the object's file, or written to it; and the number of pages that the machine reads. Those that
    /// were taken out meanwhile are not found any more: their reads and writes have to end before a check.
    fn fills_under_way(&self, id: ObjectId) -> (u64, u64) {
        let (mut nr, mut nr_pages_read) = (0, 0);
        if self.has_fills(id) {
            let _ = self.for_each_page(id, ObjectPages::ALL, &mut |index, slot| {
                let head = self.head_at_work(slot).map(|head| self.frames.desc(head));
                if let Some(desc) = head.filter(|desc| desc.index.get() == index) {
                    let is_read = desc.state().is_being_read() && self.object_file(id).is_some();
                    nr += 1;
                    nr_pages_read += if is_read { desc.state().order().nr_pages() } else { 0 };
                }
                ControlFlow::Continue(())
            });
        }
        (nr, nr_pages_read)
    }

    /// Whether a read of a file is under way into the folio with this head.
    pub(crate) fn is_being_filled(&self, head: Pfn) -> bool {
        let desc = self.frames.desc(head);
        let header = Pfn(desc.owner.get() as u32);
        matches!(self.object_part(header), Some(Role::Header))
            && self.has_fills(ObjectId(desc.owner.get()))
            && desc.state().is_being_read()
            && self.is_in_its_object(head)
    }

    /// I56: only folios of files are written so, and only entries of dirty ones allow stores.
    pub(crate) fn may_be_under_write(&self, head: Pfn) -> bool {
        let desc = self.frames.desc(head);
        let state = desc.state();
        state.is_being_written()
            && (state.is_orphan()
                || matches!(self.object_part(Pfn(desc.owner.get() as u32)), Some(Role::Header))
                    && self.object_file(ObjectId(desc.owner.get())).is_some())
    }

    fn head_at_work(&self, slot: PageSlot<'_>) -> Option<Pfn> {
        match slot.page() {
            ObjectPage::InTransit(head) => Some(head),
            ObjectPage::Frame(frame) if self.frames.desc(frame.head()).state().is_being_written() => Some(frame.head()),
            _ => None,
        }
    }

    pub(crate) fn is_object_header(&self, pfn: Pfn) -> bool {
        matches!(self.object_part(pfn), Some(Role::Header))
    }

    fn object_part(&self, pfn: Pfn) -> Option<Role> {
        let desc = self.frames.desc(pfn);
        let state = desc.state();
        match state.kind() {
            FrameKind::Meta if desc.index.get() == MetaUse::Object as u64 => Some(Role::Header),
            FrameKind::Meta if desc.index.get() == MetaUse::ObjectNode as u64 => Some(Role::Node),
            FrameKind::Shared if desc.is_foreign() => None,
            FrameKind::Shared => Some(Role::Page { orphan: state.is_orphan() }),
            _ => None,
        }
    }

    fn count_nodes(&self, node: Pfn, height: u32, counts: &mut [u32]) {
        counts[node.0 as usize] += 1;
        if height == 1 {
            return;
        }
        for i in 0..512 {
            let word: &Word = mem::view(&self.machine, node, i * 8);
            if let Below::Node(below) = Below::of(word.get()) {
                self.count_nodes(below.pfn, height - 1, counts);
            }
        }
    }

    /// Whether the slots in the head's descriptor have its frames and are not marked. The first one is
    /// below the object's end.
    pub(crate) fn is_in_its_object(&self, head: Pfn) -> bool {
        let desc = self.frames.desc(head);
        let (header, order) = (Pfn(desc.owner.get() as u32), desc.state().order());
        let (id, first) = (ObjectId(desc.owner.get()), desc.index.get());
        matches!(self.object_part(header), Some(Role::Header))
            && first < self.object_nr_pages(id)
            && (0..order.nr_pages()).step_by(if level_of(order) > 0 { order.nr_pages() as usize } else { 1 }).all(|i| {
                let frame = PageFrame { pfn: Pfn(head.0 + i as u32), order };
                let section = self.section();
                let slot = self.object_slot(section.inside(), id, first + i);
                let in_transit = desc.state().is_being_read() && self.has_fills(id);
                let page = if in_transit { ObjectPage::InTransit(head) } else { ObjectPage::Frame(frame) };
                slot.page() == page && slot.place_of(order).is_some()
            })
    }
}
