//! Counts references to an object, by VMAs, the handle and walks, and frees it with the last one.
//!
//! Locks on entry: none. Called outside sections if the object may end.

use super::node::Below;
use super::object_slot::Top;
use super::slot::{INDEX_BITS, ObjectPage, PageSlot};
use crate::addr::{ObjectPages, Pfn};
use crate::frame::Fill;
use crate::links::Links;
use crate::machine::Machine;
use crate::mem;
use crate::pace::Pace;
use crate::space::vma::{ObjectId, Vma, VmaFlags};
use crate::sync::{Ordering, Word};
use core::ops::ControlFlow;

impl<M: Machine> Links<M> {
    /// Adds references of `nr_pages` pages of such a VMA to its object.
    pub(crate) fn object_get(&self, vma: &Vma, nr_pages: u64) {
        if vma.object == ObjectId::NONE {
            return;
        }
        let data = self.object(vma.object);
        if vma.is_private() {
            // Before the VMA is published: see `drop_copies`.
            data.nr_private.fetch_add(nr_pages, Ordering::Relaxed);
        } else if !vma.flags.contains(VmaFlags::NEVERWRITE) {
            data.nr_writable.fetch_add(nr_pages, Ordering::Relaxed);
        }
        data.refs.fetch_add(nr_pages, Ordering::Relaxed);
    }

    /// Drops references of `nr_pages` pages of such a VMA, after a wait as for
    /// [`object_drop`](Self::object_drop). No translation of the pages is left, so a reader of a count
    /// of 0 sees every store.
    pub(crate) fn object_put(&self, vma: &Vma, nr_pages: u64) {
        if vma.object == ObjectId::NONE || nr_pages == 0 {
            return;
        }
        // Before the references: the last of them frees the header.
        if vma.is_private() {
            self.object(vma.object).nr_private.fetch_sub(nr_pages, Ordering::Relaxed);
        } else if !vma.flags.contains(VmaFlags::NEVERWRITE) {
            self.object(vma.object).nr_writable.fetch_sub(nr_pages, Ordering::Release);
        }
        self.object_drop(vma.object, nr_pages);
    }

    /// Drops references of VMAs, or that of the handle. The last one frees the object, unless a walk
    /// holds a reference and frees it later. The caller has waited since the VMAs were removed, so no
    /// section uses the object. Called outside sections: the end of a large object answers other CPUs.
    pub(crate) fn object_drop(&self, id: ObjectId, nr_pages: u64) {
        if self.object(id).refs.fetch_sub(nr_pages, Ordering::AcqRel) == nr_pages {
            self.object_unkeep(id);
        }
    }

    /// Frees the pages and the nodes of the tree. Only lookups can still find the object, and they see
    /// that it has ended.
    pub(super) fn free_pages(&self, id: ObjectId) {
        let top = Top::of(&self.object(id).top);
        if let Some(node) = top.node() {
            self.free_node(node, top.height(), &mut Pace::new(&self.machine));
        }
    }

    fn free_node(&self, node: Pfn, height: u32, pace: &mut Pace<'_, M>) {
        let words: &[Word; 512] = mem::view(&self.machine, node, 0);
        for (i, word) in words.iter().enumerate() {
            pace.step();
            match Below::of(word.load(Ordering::Acquire)) {
                Below::Node(below) if height > 1 => self.free_node(below.pfn, height - 1, pace),
                _ => self.free_page(PageSlot::new(words, height - 1, (i as u64) << (INDEX_BITS * (height - 1)))),
            }
        }
        self.give_back(node, Fill::Raw);
    }

    /// Frees a folio when its first page is visited.
    fn free_page(&self, slot: PageSlot<'_>) {
        let frame = match slot.page() {
            ObjectPage::Absent | ObjectPage::Poisoned => return,
            ObjectPage::Frame(frame) => frame,
            ObjectPage::Swapped(swapped) => return self.swap_drop(swapped.slot),
            other => return debug_assert!(false, "I22: nobody fills, moves or removes it, {other:?}"),
        };
        // Otherwise the last pin frees it (I23).
        if frame.head() == frame.pfn && self.frames.desc(frame.pfn).orphan() {
            self.give_back_page(frame.pfn);
        }
    }

    /// Waits for those who fill pages of a pool in, which takes as long as zeroing them. Nobody else can begin to. They touch
    /// nothing of the object after the word.
    fn wait_for_fills(&self, id: ObjectId) {
        if self.object_pool(id).is_none() {
            return;
        }
        let _ = self.for_each_page(id, ObjectPages::ALL, &mut |_, slot| {
            debug_assert!(slot.node_under_way().is_none(), "a reservation keeps the object");
            while slot.page() == ObjectPage::Filling {
                self.machine.relax();
            }
            ControlFlow::Continue(())
        });
    }

    /// Drops one reference. The last one ends the object.
    pub(super) fn object_unkeep(&self, id: ObjectId) {
        // Release: what was done to the object comes before its end.
        let before = self.object(id).keeps.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "I30: references of VMAs, the handle and walks are counted");
        if before != 1 {
            return;
        }
        self.wait_for_fills(id);
        self.unreserve_pages(id, ObjectPages::ALL);
        self.free_pages(id);
        if let Some(subpool) = self.object_subpool(id) {
            self.subpool_leave(subpool, 1);
        }
        if let Some(frames) = self.foreign_frames_of(id) {
            self.forget_foreign(&frames);
        }
        self.retire_header(Pfn(id.0 as u32));
    }
}
