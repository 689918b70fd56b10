//! References to an object that is found from one of its frames, and moves of its pages.
//!
//! ```text
//! frame of a page ─▶ header: keeps ─▶ slots of its folio ─▶ marked as moving ─▶ other frames
//! ```
//! A frame names its object and holds no reference to it. A walk takes a reference of its own, and
//! only if the count is not zero, as for families (I30):
//!
//! 1. it enters a section and sets its CPU's bit as one that looks something up;
//! 2. it reads the descriptor of the frame, and sees that the frame that is named is the header
//!    of an object;
//! 3. it raises `keeps` by compare-and-swap, never from zero.
//!
//! VMAs and the handle hold one reference together. Dropping the last one frees the pages, unmarks
//! the header's frame, waits for lookups that may have seen the old mark, and frees the header. So
//! neither the end of an object nor a walk waits for the other, and no page is moving when the tree
//! is freed. The wait for lookups costs nothing if no CPU looks anything up.
//!
//! The descriptor of a page may be out of date when it is read. The slot decides: unless it names
//! the frame, there is no move.
//!
//! Locks on entry: none, no section.

use super::object::ObjectSlot;
use super::slot::{PageFrame, PageSlot};
use crate::addr::Pfn;
use crate::frame::{FrameKind, MetaUse};
use crate::links::{Links, LookupSection};
use crate::machine::Machine;
use crate::section::InSection;
use crate::space::vma::ObjectId;
use crate::sync::Ordering;

/// A walk's reference: the object stays until this is dropped. With the last one it ends.
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
    /// A reference to the object that a page's frame names, or the head of a folio, and the number of the page.
    pub(crate) fn object_of(&self, pfn: Pfn) -> Option<(KeptObject<'_, M>, u64)> {
        let lookup = &self.lookup_section();
        let desc = self.frames.find_desc(lookup.inside(), pfn)?;
        if desc.state().kind() != FrameKind::Shared {
            return None;
        }
        let (owner, index) = (desc.owner.load(Ordering::Acquire), desc.index.load(Ordering::Acquire));
        if owner >= self.nr_frames() || !self.is_object(lookup, Pfn(owner as u32)) {
            return None;
        }
        self.object_keep(lookup, ObjectId(owner)).map(|kept| (kept, index))
    }

    fn is_object(&self, lookup: &LookupSection<'_>, frame: Pfn) -> bool {
        self.is_header(lookup, frame, MetaUse::Object)
    }

    /// One more reference, if there is one. In the section in which the frame was seen to be
    /// the header of an object.
    fn object_keep(&self, lookup: &LookupSection<'_>, id: ObjectId) -> Option<KeptObject<'_, M>> {
        let (header, keeps) = (Pfn(id.0 as u32), &self.object(id).keeps);
        self.raise_from_one(lookup, header, MetaUse::Object, keeps).then(|| KeptObject { links: self, id })
    }

    /// One more reference, in a section in which something keeps the object: a VMA, a handle.
    pub(super) fn object_keep_found(&self, inside: InSection<'_>, id: ObjectId) -> KeptObject<'_, M> {
        self.assert_inside(inside);
        let before = self.object(id).keeps.fetch_add(1, Ordering::AcqRel);
        debug_assert!(before > 0, "I30: never from zero");
        KeptObject { links: self, id }
    }

    /// Marks all pages of a folio as moving, `page` the first, if their slots have these frames. After
    /// the next grace period of all CPUs nobody maps, reads or writes one of them anew. Whether they
    /// are marked now; the caller ends it.
    pub(crate) fn object_begin_move(&self, kept: &KeptObject<'_, M>, page: u64, from: PageFrame) -> bool {
        // What the descriptor says of the page may be out of date.
        page.is_multiple_of(from.order.nr_pages())
            && self.with_slot(kept, page, |slot| slot.begin_to_move(from)).unwrap_or(false)
    }

    /// Gives the pages of a folio their frames. The caller has marked them, and no entry maps one.
    pub(crate) fn object_end_move(&self, kept: &KeptObject<'_, M>, page: u64, to: PageFrame) {
        let ended = self.with_slot(kept, page, |slot| slot.end_move(to));
        debug_assert!(ended.is_some(), "I22: nodes stay as long as their object");
    }

    pub(super) fn with_slot<T>(
        &self,
        kept: &KeptObject<'_, M>,
        page: u64,
        f: impl FnOnce(PageSlot<'_>) -> T,
    ) -> Option<T> {
        let section = self.section();
        match self.object_slot(section.inside(), kept.id, page) {
            ObjectSlot::Page(slot) => Some(f(slot)),
            ObjectSlot::Hole(_) | ObjectSlot::Low(_) => None,
        }
    }
}

#[cfg(test)]
#[path = "keep_tests.rs"]
mod tests;
