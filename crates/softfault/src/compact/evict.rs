//! Takes folios out of explicit objects.
//!
//! ```text
//! does a mapping lock it?             refused
//! mark, grace, unmap                  as for a move: object.rs
//! is it pinned? is it locked now?     then: as it was
//! folio locked ─▶ words: in transit ─▶ the embedder has the fill, and reads its frames
//! filled                              the pages are missing, or there again
//! ```
//! The folio has no entry meanwhile, so its bytes do not change. DIRTY stays in the descriptor, for the case
//! that the pages come back.
//!
//! Locks on entry: none, no section. Takes the locks of the object's shards.

use crate::addr::{ObjectPages, PAGE_SIZE, Pfn};
use crate::machine::file::FillWay;
use crate::machine::{FileFill, FillError, Machine};
use crate::notify::notice::Why;
use crate::policy::folio::around;
use crate::source::file::Answer;
use crate::source::handle::SharedObject;
use crate::source::keep::KeptObject;
use crate::source::slot::{ObjectPage, PageFrame};
use crate::source::write_error::{EvictError, StoppedAt};
use crate::space::Vm;
use crate::space::vma::ObjectId;

/// The folios that may be taken out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    Clean,
}

impl<M: Machine> SharedObject<'_, M> {
    /// Begins to take out the folio with this page. It leaves all mappings, and accesses wait until the embedder, who reads the frames, gives
    /// the fill to [`Vm::filled`](crate::Vm::filled): with an error the pages are missing from then on, with `Ok` they are there again.
    /// If one of its pages is discarded, zeroed or cut off meanwhile, all of the folio is missing: the embedder, who makes these calls,
    /// gives it back first, or has saved its bytes.
    ///
    /// Subscribers of spaces that map the pages are told, so the caller must hold no lock that is
    /// taken in [`Machine::notify`]. Waits for a grace period.
    ///
    /// # Errors
    ///
    /// [`EvictError`], never `Dirty`: the page is as it was, save that programs may have to fault again.
    pub fn begin_evict(&self, page: u64) -> Result<FileFill, EvictError> {
        self.vm.call();
        self.vm.begin_to_evict(self, page, Which::All)
    }

    /// Takes pages out that nobody has stored to since they were installed; folios that begin outside the range as well. The next
    /// access is refused as missing. Pages that were missing stay so. Returns the number of pages taken out.
    ///
    /// For locks and waiting see [`begin_evict`](Self::begin_evict), which is for dirty pages, too. Each folio costs a grace period.
    ///
    /// # Errors
    ///
    /// [`EvictError`] and the page; those before it are missing.
    pub fn evict(&self, pages: impl Into<ObjectPages>) -> Result<u64, StoppedAt<EvictError>> {
        self.vm.call();
        let mut rest = pages.into();
        let mut nr_evicted = 0;
        while let Some(page) = self.vm.object_next_page(self.id, rest) {
            let fill = match self.vm.begin_to_evict(self, page, Which::Clean) {
                Ok(fill) => fill,
                // Another call has taken it out, or a new size.
                Err(EvictError::Missing) => {
                    rest.start = page + 1;
                    continue;
                }
                Err(error) => return Err(StoppedAt { page, error }),
            };
            rest.start = fill.offset_bytes() / PAGE_SIZE + fill.nr_frames();
            nr_evicted += fill.nr_frames();
            let ended = self.vm.end_fill(fill, Err(FillError), Answer::AtOnce);
            debug_assert!(ended.is_ok(), "it is of this Vm");
        }
        Ok(nr_evicted)
    }
}

/// A folio that is there, and its object.
struct Found<'vm, M: Machine> {
    kept: KeptObject<'vm, M>,
    first: u64,
    head: PageFrame,
}

impl<M: Machine> Vm<M> {
    /// Looks up the folio of a page. May be out of date at once: its words decide.
    fn find_to_evict(&self, id: ObjectId, page: u64) -> Result<Found<'_, M>, EvictError> {
        let section = self.section();
        match self.object_slot(section.inside(), id, page).page() {
            ObjectPage::Frame(frame) => Ok(Found {
                kept: self.object_keep_found(section.inside(), id),
                first: around(page, frame.order).start,
                head: PageFrame { pfn: frame.head(), ..frame },
            }),
            ObjectPage::Absent => Err(EvictError::Missing),
            ObjectPage::Poisoned => Err(EvictError::Poisoned),
            ObjectPage::Filling | ObjectPage::Leaving(_) | ObjectPage::Swapped(_) | ObjectPage::InTransit(_) => {
                Err(EvictError::Busy)
            }
        }
    }

    fn begin_to_evict(&self, object: &SharedObject<'_, M>, page: u64, which: Which) -> Result<FileFill, EvictError> {
        let id = object.id;
        if !self.is_explicit(id) {
            return Err(EvictError::NotExplicit);
        }
        let Found { kept, first, head } = self.find_to_evict(id, page)?;
        let pages = ObjectPages { start: first, end: first + head.order.nr_pages() };
        // Before programs fault for nothing; a pin may go meanwhile.
        self.may_be_evicted(&kept, pages, head.pfn, which)?;
        if !self.object_begin_move(&kept, first, head) {
            return Err(EvictError::Busy);
        }
        self.grace_everywhere();
        // Exact after the grace period.
        if self.frames.desc(head.pfn).state().was_mapped() {
            self.unmap_object_pages(id, pages, Why::Discard);
        }
        if let Err(error) = self.may_be_evicted(&kept, pages, head.pfn, which) {
            self.object_end_move(&kept, first, head);
            return Err(error);
        }
        let is_dirty = self.frames.desc(head.pfn).state().is_dirty();
        let begun = self.object_begin_evict(kept, first, head).ok_or(EvictError::Busy)?;
        Ok(FileFill { way: FillWay::Evict { is_dirty }, ..begun })
    }

    /// Exact if the folio is marked as moving, and no entry maps it.
    fn may_be_evicted(
        &self,
        kept: &KeptObject<'_, M>,
        pages: ObjectPages,
        head: Pfn,
        which: Which,
    ) -> Result<(), EvictError> {
        let state = self.frames.desc(head).state();
        if state.pins() > 0 {
            return Err(EvictError::Pinned);
        }
        if which == Which::Clean && state.is_dirty() {
            return Err(EvictError::Dirty);
        }
        let is_locked = |page| self.any_mapping_locks(kept.id, page);
        if (pages.start..pages.end).any(is_locked) { Err(EvictError::Locked) } else { Ok(()) }
    }
}
