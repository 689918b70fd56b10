//! A shared object: page index to frame, for as long as a VMA maps a page of it
//! or the embedder has a handle.
//!
//! A radix tree of frames, 512 words each, as high as its highest page requires: a new top is put
//! above the old one when a page needs it. A folio of 2 MiB is a word of the level above pages, in
//! the place of a node (`slot.rs`). Nodes stay until the object dies. The word of a page owns the
//! page's frame. It is filled by compare-and-swap from zero. `discard` alone empties it: it marks
//! the word, waits for all sections, removes every entry of the page, and only then frees the
//! frame. A move (`keep.rs`) puts another frame into it in the same way. So reading a page's word
//! to use its frame needs a section, and a reader that finds it marked waits. Asking whether there
//! is a page (`pages.rs`) needs no section.
//!
//! `refs` counts *pages of VMAs*, not VMAs: so `vma_split` and merging do not change it; only
//! mapping, unmapping and fork do. A handle counts as one. `nr_writable` counts the same way,
//! without handles, `NEVERWRITE` and private VMAs; `nr_private` counts the latter.
//!
//! Locks on entry: none.

use super::late_words::LateCalls;
use super::node::{Below, Node};
use super::object_slot::{ObjectSlot, Top};
use super::slot::{INDEX_BITS, LostFill, PageFrame, PageSlot, level_of};
use super::spread::{GAP_BITS, Spread, TOO_MANY_PAGES};
use crate::addr::{OptPfn, Order, PAGE_SIZE, Pfn};
use crate::built::{FILES, HUGETLB};
use crate::frame::{Fill, FrameKind, MetaUse, OutOfFrames, Source, SubpoolId};
use crate::links::Links;
use crate::machine::{FileId, FrameRange, Machine};
use crate::mem::{self};
use crate::policy::folio::FolioOrders;
use crate::section::InSection;
use crate::source::members::{NR_SHARDS, Shard};
use crate::space::vma::ObjectId;
use crate::sync::{self, Ordering, Word};

/// Enough for every page below [`MAX_OBJECT_BYTES`].
const HEIGHT_MAX: u32 = 6;
/// Largest size of an object: what a file's offset can express.
pub(crate) const MAX_OBJECT_BYTES: u64 = i64::MAX as u64;
const _: () = assert!(MAX_OBJECT_BYTES / PAGE_SIZE < TOO_MANY_PAGES);
const _: () = assert!((TOO_MANY_PAGES - 1) >> (INDEX_BITS * HEIGHT_MAX - GAP_BITS) == 0);

/// Header of an object, in a frame of its own; the rest of the frame is unused. The first
/// line is what faults read.
#[repr(C, align(64))]
pub(crate) struct ObjectData {
    /// Changes under `resize`.
    pub(crate) size_bytes: Word,
    /// The top node: see [`Top`].
    pub(crate) top: Word,
    /// Sizes of its pages, [`FolioOrders`]. Set at the very beginning.
    orders: Word,
    /// Where missing pages come from: 0, [`IS_FILE`] or [`IS_EXPLICIT`]; and from which file. Set at the very beginning.
    is_file: Word,
    pub(super) file: Word,
    /// Which read of the file failed last, and a count of those that did (`file.rs`).
    pub(super) failed_reads: Word,
    /// 1 if the last read of the file that ended was answered later. Written where that changes.
    pub(super) answers_later: Word,
    /// Pages of VMAs that map it, and the handle.
    pub(crate) refs: Word,
    /// Of these, pages of shared mappings that may be written, perhaps after mprotect(2).
    pub(crate) nr_writable: Word,
    /// 1 while the embedder has a handle.
    pub(crate) handles: Word,
    /// Held while the size changes or pages are taken out. Sleeps.
    pub(crate) resize: Word,
    /// Members that have joined and not left: for reports, and for what a move would cost.
    pub(crate) nr_members: Word,
    /// 1 while `refs` is not 0, and 1 of each walk (`keep.rs`). The CPU that drops the last one ends
    /// the object.
    pub(crate) keeps: Word,
    /// Pages of VMAs that map it privately, which a smaller size looks for.
    pub(crate) nr_private: Word,
    /// Times that the size has become smaller, raised after the size, and holes in an object of a pool: see `fork`.
    pub(crate) nr_cuts: Word,
    /// Forks that copy a private mapping once more: no smaller size begins meanwhile, and no hole in an object of a pool. A CPU that
    /// waits for that sleeps at it.
    pub(crate) nr_copying: Word,
    /// 1 while a hole in an object of a pool drops private copies: fork sleeps at it.
    pub(crate) is_dropping: Word,
    /// Held while pages of a pool are reserved (`reserved.rs`). Sleeps.
    pub(super) reserving: Word,
    /// Writes to the file that have failed, and of how many of them a caller was told (`file_write.rs`): both in halves.
    pub(super) write_errors: Word,
    /// Calls of the machine that write folios which have left the object.
    pub(crate) late_calls: LateCalls,
    pad: [Word; 2],
    /// The members, which map it: see `members`.
    pub(crate) shards: [Shard; NR_SHARDS],
}

/// In [`ObjectData::is_file`].
const IS_FILE: u64 = 1;
/// The embedder installs pages.
const IS_EXPLICIT: u64 = 2;
/// Its pages are foreign frames. `file` says which: the first one, and their number above [`NR_FOREIGN_SHIFT`].
const IS_FOREIGN: u64 = 3;
const NR_FOREIGN_SHIFT: u32 = 32;

/// Pages come from the pool of the object's least size.
const IS_HUGETLB: u64 = 4;

impl ObjectData {
    pub(super) fn is_hugetlb(&self) -> bool {
        HUGETLB && self.is_file.get() == IS_HUGETLB
    }
}

/// Where the missing pages of an object come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PagesFrom {
    Zero,
    File(FileId),
    /// The embedder: see `explicit`.
    Embedder,
    /// Nowhere: these foreign frames are the pages.
    Foreign(FrameRange),
    /// The pool of the object's least size: see `reserved`.
    Pool(Option<SubpoolId>),
}

/// The properties of a new object.
#[derive(Clone, Copy)]
pub(crate) struct NewObject {
    pub(crate) size_bytes: u64,
    pub(crate) orders: FolioOrders,
    pub(crate) from: PagesFrom,
}

impl<M: Machine> Links<M> {
    /// A new object, with `refs` as they are to be. Nothing else is allocated.
    pub(crate) fn new_object(
        &self,
        new: NewObject,
        refs: u64,
        source: &Source<'_, M>,
    ) -> Result<ObjectId, OutOfFrames> {
        let frame = source.frame(Fill::Fixed)?;
        let desc = self.frames.desc(frame);
        desc.assign(FrameKind::Meta, 0, 0, MetaUse::ObjectNode as u64);
        let id = ObjectId(u64::from(frame.0));
        let data = self.object(id);
        data.refs.set(refs);
        data.keeps.set(1);
        data.size_bytes.set(new.size_bytes);
        data.orders.set(new.orders.to_word());
        match new.from {
            PagesFrom::Zero => {}
            PagesFrom::File(FileId(file)) => {
                self.has_files.store(1, Ordering::Relaxed);
                data.is_file.set(IS_FILE);
                data.file.set(file);
            }
            PagesFrom::Embedder => data.is_file.set(IS_EXPLICIT),
            PagesFrom::Foreign(FrameRange { first, nr_frames }) => {
                data.is_file.set(IS_FOREIGN);
                data.file.set(u64::from(first.0) | nr_frames << NR_FOREIGN_SHIFT);
            }
            PagesFrom::Pool(subpool) => {
                data.is_file.set(IS_HUGETLB);
                data.top.set(Top::empty(Spread(new.orders.least())).0);
                if let Some(subpool) = subpool {
                    self.subpool_join(subpool);
                    data.file.set(OptPfn::some(subpool.0).to_word());
                }
            }
        }
        // Release: a CPU that sees the mark sees a header (I30).
        desc.index.store(MetaUse::Object as u64, Ordering::Release);
        Ok(id)
    }

    #[inline]
    pub(crate) fn object(&self, id: ObjectId) -> &ObjectData {
        mem::view(&self.machine, Pfn(id.0 as u32), 0)
    }

    /// Sizes that its pages may have.
    #[inline]
    pub(crate) fn object_orders(&self, id: ObjectId) -> FolioOrders {
        FolioOrders::from_word(self.object(id).orders.get())
    }

    /// The file that its pages come from.
    #[inline]
    pub(crate) fn object_file(&self, id: ObjectId) -> Option<FileId> {
        let data = self.object(id);
        (FILES && data.is_file.get() == IS_FILE).then(|| FileId(data.file.get()))
    }

    /// Whether there has been an object with a file.
    #[inline]
    pub(crate) fn has_file_objects(&self) -> bool {
        FILES && self.has_files.load(Ordering::Relaxed) != 0
    }

    /// Whether missing pages are the embedder's to install.
    pub(crate) fn is_explicit(&self, id: ObjectId) -> bool {
        FILES && self.object(id).is_file.get() == IS_EXPLICIT
    }

    /// Whether missing pages are not zero.
    #[inline]
    pub(crate) fn has_source(&self, id: ObjectId) -> bool {
        self.object(id).is_file.get() != 0
    }

    /// Whether missing pages come in fills.
    #[inline]
    pub(crate) fn has_fills(&self, id: ObjectId) -> bool {
        FILES && matches!(self.object(id).is_file.get(), IS_FILE | IS_EXPLICIT)
    }

    /// The foreign frames that are its pages, if they are.
    #[inline]
    pub(crate) fn foreign_frames_of(&self, id: ObjectId) -> Option<FrameRange> {
        let data = self.object(id);
        let word = data.file.get();
        let frames = FrameRange { first: Pfn(word as u32), nr_frames: word >> NR_FOREIGN_SHIFT };
        (FILES && data.is_file.get() == IS_FOREIGN).then_some(frames)
    }

    /// The frame of a page of such an object.
    #[inline]
    pub(crate) fn foreign_page(&self, id: ObjectId, index: u64) -> Option<PageFrame> {
        let frames = self.foreign_frames_of(id)?;
        (index < frames.nr_frames).then(|| PageFrame { pfn: Pfn(frames.first.0 + index as u32), order: Order::BASE })
    }

    /// Pages that its size covers, the last one perhaps in part. In a section the
    /// answer stays good for what is put in: see `discard`.
    #[inline]
    pub(crate) fn object_nr_pages(&self, id: ObjectId) -> u64 {
        self.object(id).size_bytes.load(Ordering::Acquire).div_ceil(PAGE_SIZE)
    }

    /// Whether a missing page has a source. Not behind a size that has become smaller.
    pub(super) fn is_in_file(&self, id: ObjectId, index: u64) -> bool {
        self.has_fills(id) && index < self.object_nr_pages(id)
    }

    /// Fences after a change of the file, and before a look for pages that are read: see `ask` in `file.rs`.
    pub(crate) fn fence_reads(&self, id: ObjectId) {
        if self.has_fills(id) {
            sync::fence();
        }
    }

    /// Looks a page up. The caller has something that keeps the object: a VMA that cannot
    /// go, a handle. The frame stays the page's until the section ends.
    #[inline(always)]
    pub(crate) fn object_slot<'s>(&'s self, inside: InSection<'s>, id: ObjectId, index: u64) -> ObjectSlot<'s> {
        self.assert_inside(inside);
        let top = Top::of(&self.object(id).top);
        let index = top.in_tree(index);
        let top_node = top.node().filter(|_| top.reaches(index)).map(Node::plain);
        let Some(mut node) = top_node else { return ObjectSlot::Low(top) };
        let mut level = top.height();
        loop {
            level -= 1;
            let slot = PageSlot::new(mem::view(&self.machine, node.pfn, 0), level, index);
            // Words of pages of a pool are above this level.
            if level == 0 {
                return ObjectSlot::Page(slot);
            }
            match Below::of(slot.word().load(Ordering::Acquire)) {
                Below::Node(below) => node = below,
                Below::Folio => return ObjectSlot::Page(slot.with(node.zero)),
                Below::Nothing => return ObjectSlot::Hole(slot.with(node.zero)),
            }
        }
    }

    /// Puts a frame of zeroes, owned by the caller alone, where the lookup of `index` found
    /// nothing: one step on the way to the page, or the page. After a look at the size in the
    /// section of the lookup, which the slot does not outlive.
    pub(crate) fn object_fill(
        &self,
        id: ObjectId,
        index: u64,
        slot: &ObjectSlot<'_>,
        pfn: Pfn,
    ) -> Result<(), LostFill> {
        match slot {
            ObjectSlot::Page(slot) => {
                self.frames.desc(pfn).assign_folio(Order::BASE, id.0, index);
                slot.fill(pfn)
            }
            _ => self.object_fill_node(id, index, slot, Order::BASE, pfn),
        }
    }

    /// Makes a frame of zeroes, owned by the caller alone, a node of the object.
    pub(super) fn make_node(&self, id: ObjectId, pfn: Pfn) {
        self.frames.desc(pfn).assign(FrameKind::Meta, 0, id.0, MetaUse::ObjectNode as u64);
    }

    /// The same for a node on the way to a page of that order.
    pub(crate) fn object_fill_node(
        &self,
        id: ObjectId,
        index: u64,
        slot: &ObjectSlot<'_>,
        order: Order,
        pfn: Pfn,
    ) -> Result<(), LostFill> {
        self.make_node(id, pfn);
        match slot {
            ObjectSlot::Page(slot) | ObjectSlot::Hole(slot) => slot.fill_node(pfn),
            ObjectSlot::Low(top) => self.raise_top(id, index, *top, order, pfn),
        }
    }

    /// Puts a new top above the one that was seen, which becomes its first child; in an
    /// empty object at once one of the right height for a page of that order.
    fn raise_top(&self, id: ObjectId, index: u64, seen: Top, order: Order, pfn: Pfn) -> Result<(), LostFill> {
        let first: &Word = mem::view(&self.machine, pfn, 0);
        let height = match seen.node() {
            None => {
                let index = seen.in_tree(index);
                let reaches = (1..HEIGHT_MAX).find(|h| index >> (INDEX_BITS * h) == 0).unwrap_or(HEIGHT_MAX);
                // Above the words of pages of a pool one more, which says what they mean (`node.rs`).
                reaches.max(level_of(order) + 1 + u32::from(seen.spread().is_some()))
            }
            Some(below) => {
                first.set(Node::plain(below).to_word());
                seen.height() + 1
            }
        };
        let new = seen.with(pfn, height);
        let top = &self.object(id).top;
        top.compare_exchange(seen.0, new.0, Ordering::AcqRel, Ordering::Acquire).map(|_| ()).map_err(|_| {
            first.set(0);
            LostFill
        })
    }
}
