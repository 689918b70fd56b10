//! Frees the descriptors of a folio's tails, and restores them.
//!
//! ```text
//! free     bar, grace, unmap: as for a discard               source/discard.rs, rmap/object.rs
//!          the block names no descriptors of tails          frame/tail_descs.rs
//!          the slots are unmarked; grace; 3 frames are freed, or 2,047
//! restore  as many frames (may fail) ─▶ the blocks name them
//! ```
//! While the slots are marked, faults on the folio wait, as during a move. Programs fault again
//! afterwards, because no entry is kept. Pins stay: they are counted at the head.
//!
//! A folio without them neither moves nor is split (`compact/split.rs` restores them first). So if a section finds
//! it without a mark, it fills its block until the section ends.
//!
//! Locks on entry: none, no section. Takes the object's `resize`, under which no frame is obtained.

use super::super::Vm;
use crate::account::Event;
use crate::addr::{BlockId, ObjectPages, Order};
use crate::frame::{Fill, FrameList, OutOfFrames, nr_frames_of_tails};
use crate::lock::lock_word;
use crate::machine::{LockKind, Machine};
use crate::notify::notice::Why;
use crate::policy::folio::around;
use crate::source::handle::SharedObject;
use crate::source::slot::{ObjectPage, PageFrame};
use crate::space::vma::ObjectId;

/// Why the descriptors of a folio's tails stay as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TailDescsRefusal {
    /// The object has no folio of 2 MiB or 1 GiB at this page.
    NoFolio,
    /// They are in the requested state already.
    Unchanged,
    /// Their frames would be of no use: they are in a memory section that the metadata fills.
    InMetadata,
    /// The folio is a page of a pool of huge pages.
    InPool,
    /// There are no frames for them.
    NoFrames,
}

impl TailDescsRefusal {
    /// The counter of this refusal.
    pub fn event(self) -> Event {
        match self {
            TailDescsRefusal::NoFolio => Event::TailDescsNoFolio,
            TailDescsRefusal::Unchanged => Event::TailDescsUnchanged,
            TailDescsRefusal::InMetadata => Event::TailDescsInMetadata,
            TailDescsRefusal::InPool => Event::TailDescsInPool,
            TailDescsRefusal::NoFrames => Event::TailDescsNoFrames,
        }
    }
}

impl core::fmt::Display for TailDescsRefusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            TailDescsRefusal::NoFolio => "page: should be one of a folio of 2 MiB or 1 GiB",
            TailDescsRefusal::Unchanged => "page: its folio is in that state already",
            TailDescsRefusal::InMetadata => "page: the descriptors lie in frames that have none",
            TailDescsRefusal::InPool => "page: its folio is a page of a pool of huge pages",
            TailDescsRefusal::NoFrames => "page: there are no frames for the descriptors",
        })
    }
}
impl core::error::Error for TailDescsRefusal {}

impl<M: Machine> SharedObject<'_, M> {
    /// Frees the frames that hold the descriptors of a folio's tails. `page`, a number, is any page of the
    /// folio, which has 2 MiB or 1 GiB. Returns the number of frames: 3, or 2,047. Entries of the folio are
    /// removed and faulted in again. Pins stay.
    ///
    /// The descriptors are needed again to cut or free the folio. A folio that is freed obtains frames for
    /// them, or keeps as many of its own. A folio that a hole would cut stays whole if there are none.
    ///
    /// Subscribers of spaces that map the pages are told. The caller must hold no lock that is taken in
    /// [`Machine::notify`].
    ///
    /// # Errors
    ///
    /// [`TailDescsRefusal`]; nothing has changed then, except that entries may have been removed.
    ///
    /// # Panics
    ///
    /// In a callback ([`Machine`]).
    pub fn free_tail_descs(&self, page: u64) -> Result<u64, TailDescsRefusal> {
        self.vm.call();
        self.vm.counted(Event::TailDescsFreed, self.vm.try_free_tail_descs(self.id, page))
    }

    /// Restores the descriptors of a folio's tails, and returns the number of frames that they take.
    ///
    /// # Errors
    ///
    /// [`TailDescsRefusal`]; nothing has changed then.
    ///
    /// # Panics
    ///
    /// In a callback ([`Machine`]).
    pub fn restore_tail_descs(&self, page: u64) -> Result<u64, TailDescsRefusal> {
        self.vm.call();
        self.vm.counted(Event::TailDescsRestored, self.vm.try_restore_tail_descs(self.id, page))
    }
}

impl<M: Machine> Vm<M> {
    fn counted(&self, done: Event, result: Result<u64, TailDescsRefusal>) -> Result<u64, TailDescsRefusal> {
        match result {
            Ok(nr_frames) => self.count(done, nr_frames),
            Err(refusal) => self.count(refusal.event(), 1),
        }
        result
    }

    fn try_free_tail_descs(&self, id: ObjectId, page: u64) -> Result<u64, TailDescsRefusal> {
        self.assert_outside();
        if self.object_pool(id).is_some() {
            return Err(TailDescsRefusal::InPool);
        }
        let _resize = lock_word(LockKind::ObjectResize, &self.object(id).resize, &self.machine);
        let found = self.with_large_folio(id, page, |head| (head, self.frames.lacks_tail_descs(BlockId::of(head.pfn))));
        let (head, lacks_tail_descs) = found.ok_or(TailDescsRefusal::NoFolio)?;
        if lacks_tail_descs {
            return Err(TailDescsRefusal::Unchanged);
        }
        let pages = ObjectPages::from(around(page, head.order));
        self.object_bar(id, pages);
        self.grace_everywhere();
        self.wait_for_moves(id, pages);
        if self.object_was_mapped(id, pages) {
            self.unmap_object_pages(id, pages, Why::Migrate);
        }
        let former = self.object_unbar(id, pages, &|head| self.drop_tail_descs(head.pfn, head.order));
        let former = former.ok_or(TailDescsRefusal::NoFolio)?.ok_or(TailDescsRefusal::InMetadata)?;
        Ok(self.free_when_unseen(former))
    }

    /// Frees the frames after a grace period. No entry of the tails exists, so only open sections can still
    /// use the descriptors.
    pub(crate) fn free_when_unseen(&self, former: FrameList) -> u64 {
        self.grace_everywhere();
        self.free_former_descs(former)
    }

    fn try_restore_tail_descs(&self, id: ObjectId, page: u64) -> Result<u64, TailDescsRefusal> {
        self.assert_outside();
        loop {
            let order = self.order_of_large(id, page).ok_or(TailDescsRefusal::NoFolio)?;
            let spares = self.with_reclaim(&mut || self.reserved_spares(order));
            let spares = spares.map_err(|_| TailDescsRefusal::NoFrames)?;
            match self.restore_with(id, page, order, spares)? {
                0 => {}
                nr_frames => return Ok(nr_frames),
            }
        }
    }

    /// Returns the order of the page's large folio. Advisory: it may change at any moment.
    fn order_of_large(&self, id: ObjectId, page: u64) -> Option<Order> {
        let section = self.section();
        match self.object_slot(section.inside(), id, page).page() {
            ObjectPage::Frame(frame) | ObjectPage::Leaving(frame) => Some(frame.order).filter(|of| *of >= Order::PMD),
            _ => None,
        }
    }

    /// As [`restore_tail_descs`](SharedObject::restore_tail_descs) of a folio of that order, for a caller that
    /// reclaims memory itself.
    pub(crate) fn restore_tail_descs_if_free(
        &self,
        id: ObjectId,
        page: u64,
        order: Order,
    ) -> Result<u64, TailDescsRefusal> {
        let spares = self.reserved_spares(order).map_err(|_| TailDescsRefusal::NoFrames)?;
        self.counted(Event::TailDescsRestored, self.restore_with(id, page, order, spares))
    }

    /// Restores the descriptors in these frames, or gives the frames back. Returns their number, or 0 if the
    /// folio has another order by now.
    fn restore_with(
        &self,
        id: ObjectId,
        page: u64,
        order: Order,
        mut spares: FrameList,
    ) -> Result<u64, TailDescsRefusal> {
        let _resize = lock_word(LockKind::ObjectResize, &self.object(id).resize, &self.machine);
        let found = self.with_large_folio(id, page, |head| {
            let lacks_tail_descs = self.frames.lacks_tail_descs(BlockId::of(head.pfn));
            if lacks_tail_descs && head.order == order && order == Order::PMD {
                self.make_whole(head.pfn, order, &mut spares);
            }
            (head, lacks_tail_descs)
        });
        let result = match found {
            None => Err(TailDescsRefusal::NoFolio),
            Some((_, false)) => Err(TailDescsRefusal::Unchanged),
            Some((head, true)) if head.order != order => Ok(0),
            Some((head, true)) => {
                // A folio of 1 GiB is split under `resize` only, so the section is not needed.
                if order > Order::PMD {
                    self.make_whole(head.pfn, order, &mut spares);
                }
                Ok(nr_frames_of_tails(order))
            }
        };
        self.give_back_spares(spares);
        result
    }

    /// Allocates the frames. They count as used, not as held: no frames may be held under `resize`.
    fn reserved_spares(&self, order: Order) -> Result<FrameList, OutOfFrames> {
        let nr = nr_frames_of_tails(order);
        let get = &mut |source: &crate::frame::Source<'_, M>| self.desc_spares(nr, &mut || source.frame(Fill::Fixed));
        self.obtain_all(get).map(|(spares, _held)| spares)
    }

    /// Calls `f` with the head of the page's folio of whole blocks, in a section in which the folio stays. A
    /// mover that starts now waits for the section; a move in progress is waited for. The caller holds
    /// `resize`.
    fn with_large_folio<T>(&self, id: ObjectId, page: u64, f: impl FnOnce(PageFrame) -> T) -> Option<T> {
        loop {
            let section = self.section();
            match self.object_slot(section.inside(), id, page).page() {
                ObjectPage::Frame(frame) if frame.order >= Order::PMD => {
                    return Some(f(PageFrame { pfn: frame.head(), ..frame }));
                }
                ObjectPage::Leaving(_) => {}
                _ => return None,
            }
            drop(section);
            self.machine.relax();
        }
    }
}

#[cfg(test)]
#[path = "tail_descs_tests.rs"]
mod tests;
