//! Takes references to an object that is found from one of its frames, and marks its pages as moving.
//!
//! ```text
//! frame of a page ─▶ header: keeps ─▶ slots of its folio ─▶ marked as moving ─▶ other frames
//! ```
//! A frame's descriptor has the number of its object, but holds no reference. A walk takes a reference of
//! its own, and only if the count is not zero, as for families (I30):
//!
//! 1. it enters a section and sets its CPU's bit of CPUs that look something up;
//! 2. it reads the descriptor of the frame, and checks that the frame given there is the header of an
//!    object;
//! 3. it raises `keeps` by compare-and-swap, never from zero.
//!
//! VMAs and the handle hold one reference together. Dropping the last one frees the pages, unmarks
//! the header's frame, waits for lookups that may have seen the old mark, and frees the header. So
//! neither the end of an object nor a walk waits for the other, and no page is moving when the tree
//! is freed. The wait for lookups costs nothing if no CPU looks anything up.
//!
//! The descriptor of a page may be out of date when it is read. The slot decides: unless it has the
//! frame, there is no move.
//!
//! Locks on entry: none, no section.

use super::object_slot::ObjectSlot;
use super::slot::{PageFrame, PageSlot};
use crate::addr::Pfn;
use crate::frame::{FrameKind, MetaUse};
use crate::links::{Links, LookupSection};
use crate::machine::{FileFill, FileId, FileWrite, Machine};
use crate::section::InSection;
use crate::space::vma::ObjectId;
use crate::sync::Ordering;

/// A walk's reference to an object. Dropping the last reference ends the object.
pub(crate) struct KeptObject<'vm, M: Machine> {
    links: &'vm Links<M>,
    pub(crate) id: ObjectId,
}

impl<'vm, M: Machine> KeptObject<'vm, M> {
    pub(super) fn links(&self) -> &'vm Links<M> {
        self.links
    }
}

impl<M: Machine> Drop for KeptObject<'_, M> {
    fn drop(&mut self) {
        self.links.object_unkeep(self.id);
    }
}

impl<M: Machine> Links<M> {
    /// Takes a reference to the object of a page's frame, or of a folio's head. Returns the number of the page,
    /// too.
    pub(crate) fn object_of(&self, pfn: Pfn) -> Option<(KeptObject<'_, M>, u64)> {
        self.object_of_such(pfn, |_| true)
    }

    /// The same for an object with a file. Others are not written to.
    pub(crate) fn file_object_of(&self, pfn: Pfn) -> Option<(KeptObject<'_, M>, u64, FileId)> {
        let (kept, page) = self.object_of_such(pfn, |id| self.object_file(id).is_some())?;
        let file = self.object_file(kept.id)?;
        Some((kept, page, file))
    }

    fn object_of_such(&self, pfn: Pfn, is_wanted: impl Fn(ObjectId) -> bool) -> Option<(KeptObject<'_, M>, u64)> {
        let lookup = &self.lookup_section();
        let desc = self.frames.find_desc(lookup.inside(), pfn)?;
        if desc.state().kind() != FrameKind::Shared {
            return None;
        }
        let (owner, index) = (desc.owner.load(Ordering::Acquire), desc.index.load(Ordering::Acquire));
        let is_object = owner < self.nr_frames() && self.is_object(lookup, Pfn(owner as u32));
        if !is_object || !is_wanted(ObjectId(owner)) {
            return None;
        }
        self.object_keep(lookup, ObjectId(owner)).map(|kept| (kept, index))
    }

    fn is_object(&self, lookup: &LookupSection<'_>, frame: Pfn) -> bool {
        self.is_header(lookup, frame, MetaUse::Object)
    }

    /// Takes a reference, unless the count is zero. Called in the section in which the frame was seen to
    /// be the header of an object.
    fn object_keep(&self, lookup: &LookupSection<'_>, id: ObjectId) -> Option<KeptObject<'_, M>> {
        let (header, keeps) = (Pfn(id.0 as u32), &self.object(id).keeps);
        self.raise_from_one(lookup, header, MetaUse::Object, keeps).then(|| KeptObject { links: self, id })
    }

    /// Takes a reference, in a section in which a VMA or a handle keeps the object.
    pub(crate) fn object_keep_found(&self, inside: InSection<'_>, id: ObjectId) -> KeptObject<'_, M> {
        self.assert_inside(inside);
        let before = self.object(id).keeps.fetch_add(1, Ordering::AcqRel);
        debug_assert!(before > 0, "I30: never from zero");
        KeptObject { links: self, id }
    }

    /// A reference of a call, which has a handle or one of its own.
    pub(crate) fn keep_object(&self, id: ObjectId) -> KeptObject<'_, M> {
        self.object_keep_found(self.section().inside(), id)
    }

    /// Takes another reference. The caller has one.
    pub(super) fn keep_again(&self, kept: &KeptObject<'_, M>) -> KeptObject<'_, M> {
        self.object(kept.id).keeps.fetch_add(1, Ordering::AcqRel);
        KeptObject { links: self, id: kept.id }
    }

    /// A fill, or a write, has the reference from now on.
    pub(super) fn keep_for_io(&self, kept: KeptObject<'_, M>) {
        core::mem::forget(kept);
    }

    /// The reference that a fill of this `Vm` has, which comes back once.
    pub(super) fn kept_by_fill(&self, fill: &FileFill) -> KeptObject<'_, M> {
        KeptObject { links: self, id: fill.object }
    }

    /// The same for a write.
    pub(super) fn kept_by_write(&self, write: &FileWrite) -> KeptObject<'_, M> {
        KeptObject { links: self, id: write.object }
    }

    /// Marks all pages of a folio as moving, `page` the first, if their slots have these frames. After
    /// the next grace period of all CPUs nobody starts to map, read or write one of them. Returns whether
    /// they are marked; then the caller has to end the move.
    pub(crate) fn object_begin_move(&self, kept: &KeptObject<'_, M>, page: u64, from: PageFrame) -> bool {
        // The page number in the descriptor may be out of date.
        page.is_multiple_of(from.order.nr_pages())
            && self.with_slot(kept, page, |slot| slot.begin_to_move(from)).unwrap_or(false)
    }

    /// Ends a move: stores the frames of the pages of a folio. The caller has marked the pages, and no
    /// entry maps one.
    pub(crate) fn object_end_move(&self, kept: &KeptObject<'_, M>, page: u64, to: PageFrame) {
        let ended = self.with_slot(kept, page, |slot| slot.end_move(to));
        debug_assert!(ended.is_some(), "I22: nodes stay as long as their object");
    }

    /// Makes the pages of a folio missing, which the caller has marked and no entry maps; the frames are the caller's.
    /// `false` if another CPU is about to take them out: then they are still marked.
    pub(crate) fn object_end_dropped(&self, kept: &KeptObject<'_, M>, page: u64, head: PageFrame) -> bool {
        self.with_slot(kept, page, |slot| slot.end_dropped(head)) == Some(true)
    }

    pub(super) fn with_slot<T>(
        &self,
        kept: &KeptObject<'_, M>,
        page: u64,
        f: impl FnOnce(PageSlot<'_>) -> T,
    ) -> Option<T> {
        self.with_slot_of(kept.id, page, f)
    }

    /// The same for somebody whom the end of the object waits for.
    pub(super) fn with_slot_of<T>(&self, id: ObjectId, page: u64, f: impl FnOnce(PageSlot<'_>) -> T) -> Option<T> {
        let section = self.section();
        match self.object_slot(section.inside(), id, page) {
            ObjectSlot::Page(slot) => Some(f(slot)),
            ObjectSlot::Hole(_) | ObjectSlot::Low(_) => None,
        }
    }
}

#[cfg(test)]
#[path = "keep_tests.rs"]
mod tests;
