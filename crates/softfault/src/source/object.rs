//! A shared anonymous object: page index to frame, for as long as any VMA maps
//! a page of it.
//!
//! A radix tree of frames, 512 words each, as deep as the size asks. Words are
//! filled by compare-and-swap from zero and never change until the object dies,
//! so readers need no lock; they run in a section, and the object is freed after
//! a grace period that begins when no VMA names it.
//!
//! `refs` counts *pages of VMAs*, not VMAs: so `vma_split` and merging leave it
//! alone, and only what maps, unmaps or forks touches it.

use crate::addr::Pfn;
use crate::frame::{Fill, FrameKind, OutOfFrames};
use crate::machine::Machine;
use crate::mem::{self};
use crate::space::MetaUse;
use crate::space::vma::ObjectId;
use crate::sync::{Ordering, Word};
use crate::vm::Vm;

const INDEX_BITS: u32 = 9;

/// Header of an object, in a frame of its own; the rest of the frame is unused.
#[repr(C)]
pub(crate) struct ObjectData {
    /// Pages of VMAs that map it.
    pub(crate) refs: Word,
    /// Size; fixed.
    pub(crate) nr_pages: Word,
    /// Levels of nodes, 1 to 4.
    pub(crate) height: Word,
    /// The top node, + 1.
    pub(crate) top: Word,
}

/// Where a look-up ended.
pub(crate) enum ObjectSlot<'a> {
    /// The word of the page: 0, or its frame + 1.
    Page(&'a Word),
    /// A word whose node is missing.
    Hole(&'a Word),
}

/// The frame that a filled word names.
#[inline(always)]
pub(crate) fn frame_of(word: u64) -> Option<Pfn> {
    word.checked_sub(1).map(|pfn| Pfn(pfn as u32))
}

/// Fills an empty word; gives the frame that is there afterwards if it was not.
pub(crate) fn fill(word: &Word, pfn: Pfn) -> Result<(), ()> {
    word.compare_exchange(0, u64::from(pfn.0) + 1, Ordering::AcqRel, Ordering::Acquire).map(|_| ()).map_err(|_| ())
}

impl<M: Machine> Vm<M> {
    /// A new object of `nr_pages`, mapped by that many pages of VMAs.
    pub(crate) fn new_object(&self, nr_pages: u64) -> Result<ObjectId, OutOfFrames> {
        let frame = self.obtain(Fill::Zeroed)?;
        self.frames.desc(frame).assign(FrameKind::Meta, 0, 0, MetaUse::Object as u64);
        let id = ObjectId(u64::from(frame.0));
        let data = self.object(id);
        data.refs.set(nr_pages);
        data.nr_pages.set(nr_pages);
        data.height.set((1..6).find(|h| nr_pages <= 1 << (INDEX_BITS * h)).map_or(6, u64::from));
        Ok(id)
    }

    #[inline]
    pub(crate) fn object(&self, id: ObjectId) -> &ObjectData {
        mem::view(&self.machine, Pfn(id.0 as u32), 0)
    }

    /// `nr_pages` more pages of VMAs map it.
    pub(crate) fn object_get(&self, id: ObjectId, nr_pages: u64) {
        if id != ObjectId::NONE {
            self.object(id).refs.fetch_add(nr_pages, Ordering::Relaxed);
        }
    }

    /// `nr_pages` fewer; the last one frees it. The caller has waited since the
    /// VMAs went, so no section can still be looking.
    pub(crate) fn object_put(&self, id: ObjectId, nr_pages: u64) {
        if id == ObjectId::NONE || nr_pages == 0 {
            return;
        }
        let data = self.object(id);
        if data.refs.fetch_sub(nr_pages, Ordering::AcqRel) != nr_pages {
            return;
        }
        if let Some(top) = frame_of(data.top.load(Ordering::Acquire)) {
            self.free_node(top, data.height.get() as u32);
        }
        self.give_back(Pfn(id.0 as u32), Fill::Raw);
    }

    fn free_node(&self, node: Pfn, height: u32) {
        for i in 0..512 {
            let word: &Word = mem::view(&self.machine, node, i * 8);
            let Some(below) = frame_of(word.load(Ordering::Acquire)) else { continue };
            if height > 1 {
                self.free_node(below, height - 1);
            } else {
                debug_assert_eq!(self.frames.desc(below).state().maps(), 0, "I14: an object outlives its mappings");
                self.give_back(below, Fill::Raw);
            }
        }
        self.give_back(node, Fill::Raw);
    }

    /// Looks a page up. In a section, or with a VMA that cannot go.
    pub(crate) fn object_slot(&self, id: ObjectId, index: u64) -> ObjectSlot<'_> {
        let data = self.object(id);
        let mut word = &data.top;
        for height in (0..data.height.get() as u32).rev() {
            let Some(node) = frame_of(word.load(Ordering::Acquire)) else { return ObjectSlot::Hole(word) };
            let i = (index >> (INDEX_BITS * height)) & 511;
            word = mem::view(&self.machine, node, i as usize * 8);
        }
        ObjectSlot::Page(word)
    }
}
