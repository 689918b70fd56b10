//! Frees the descriptors of a folio's tails, and restores them.
//!
//! ```text
//! free     bar, grace, unmap: as for pages that leave       source/discard.rs, rmap/object.rs
//!          the block names no descriptors of tails          frame/tail_descs.rs
//!          the slots are as they were; grace; 3 frames are free
//! restore  3 frames (may fail) ─▶ the block names them
//! ```
//! While the slots are marked, faults on the folio wait, as during a move. Programs fault again
//! afterwards, because no entry is kept. Pins stay: they are counted at the head.
//!
//! A folio without them does not move (`compact/single.rs` restores them first). So during a section in which
//! it was not marked as moving it fills its block.
//!
//! Locks on entry: none, no section. Takes the object's `resize`, under which no frame is obtained.

use super::super::Vm;
use crate::account::Event;
use crate::addr::{BlockId, ObjectPages, Order};
use crate::frame::{DescSpares, Fill, FormerDescs, FrameKind, NR_OF_TAILS, OutOfFrames};
use crate::lock::lock_word;
use crate::machine::Machine;
use crate::notify::notice::Why;
use crate::policy::folio::around;
use crate::source::handle::SharedObject;
use crate::source::slot::ObjectPage;
use crate::space::vma::ObjectId;

/// Why the descriptors of a folio's tails stay as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TailDescsRefusal {
    /// The object has no folio of 2 MiB at this page.
    NoFolio,
    /// They are free already, or there.
    Unchanged,
    /// They lie in frames that nobody could use: in a section that the metadata fills.
    InMetadata,
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
            TailDescsRefusal::NoFrames => Event::TailDescsNoFrames,
        }
    }
}

impl core::fmt::Display for TailDescsRefusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            TailDescsRefusal::NoFolio => "page: should be one of a folio of 2 MiB",
            TailDescsRefusal::Unchanged => "page: its folio is like that already",
            TailDescsRefusal::InMetadata => "page: the descriptors lie in frames that have none",
            TailDescsRefusal::NoFrames => "page: there are no frames for the descriptors",
        })
    }
}
impl core::error::Error for TailDescsRefusal {}

impl<M: Machine> SharedObject<'_, M> {
    /// Makes the frames free memory that have the descriptors of the tails of the 2 MiB folio that `page`,
    /// a number, lies in. Gives their number. Mappings of the folio are emptied, and fault again. Pins stay.
    ///
    /// Whatever takes the folio apart needs the descriptors. A folio that ends obtains frames for them, or
    /// keeps as many of its own. A folio that a hole would cut stays whole where there are none.
    ///
    /// Subscribers of spaces that map the pages are told: call it with no lock held that is taken in
    /// [`Machine::notify`].
    ///
    /// # Errors
    ///
    /// [`TailDescsRefusal`]; nothing has changed then, save that entries may have to be faulted again.
    ///
    /// # Panics
    ///
    /// In a callback ([`Machine`]).
    pub fn free_tail_descs(&self, page: u64) -> Result<u64, TailDescsRefusal> {
        self.vm.call();
        self.vm.counted(Event::TailDescsFreed, self.vm.try_free_tail_descs(self.id, page))
    }

    /// Obtains frames for the descriptors of such tails again. Gives their number.
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
        let _resize = lock_word(&self.object(id).resize, &self.machine);
        let lacks_tail_descs = self.with_large_folio(id, page, |b| self.frames.lacks_tail_descs(b));
        if lacks_tail_descs.ok_or(TailDescsRefusal::NoFolio)? {
            return Err(TailDescsRefusal::Unchanged);
        }
        let pages = ObjectPages::from(around(page, Order::PMD));
        self.object_bar(id, pages);
        self.grace_everywhere();
        self.wait_for_moves(id, pages);
        if self.object_was_mapped(id, pages) {
            self.unmap_object_pages(id, pages, Why::Migrate);
        }
        let former = self.object_unbar(id, pages, &|b| self.frames.drop_tail_descs(b));
        let former = former.ok_or(TailDescsRefusal::NoFolio)?.ok_or(TailDescsRefusal::InMetadata)?;
        Ok(self.free_when_unseen(&former))
    }

    /// Whoever has found them is in a section: no entry of the tails was left.
    pub(crate) fn free_when_unseen(&self, former: &FormerDescs) -> u64 {
        self.grace_everywhere();
        self.free_former_descs(former)
    }

    fn try_restore_tail_descs(&self, id: ObjectId, page: u64) -> Result<u64, TailDescsRefusal> {
        self.assert_outside();
        let spares = self.with_reclaim(&mut || self.reserved_spares()).map_err(|_| TailDescsRefusal::NoFrames)?;
        self.restore_with(id, page, &spares)
    }

    /// As [`restore_tail_descs`](SharedObject::restore_tail_descs), for who reclaims memory himself.
    pub(crate) fn restore_tail_descs_if_free(&self, id: ObjectId, page: u64) -> Result<u64, TailDescsRefusal> {
        let spares = self.reserved_spares().map_err(|_| TailDescsRefusal::NoFrames)?;
        self.counted(Event::TailDescsRestored, self.restore_with(id, page, &spares))
    }

    /// The frames are used, or go back.
    fn restore_with(&self, id: ObjectId, page: u64, spares: &DescSpares) -> Result<u64, TailDescsRefusal> {
        let _resize = lock_word(&self.object(id).resize, &self.machine);
        let restored = self.with_large_folio(id, page, |b| {
            let lacks_tail_descs = self.frames.lacks_tail_descs(b);
            if lacks_tail_descs {
                self.make_whole(b, spares);
            }
            lacks_tail_descs
        });
        if restored != Some(true) {
            spares.iter().for_each(|pfn| self.give_back(*pfn, Fill::Fixed));
        }
        match restored {
            Some(true) => Ok(NR_OF_TAILS as u64),
            Some(false) => Err(TailDescsRefusal::Unchanged),
            None => Err(TailDescsRefusal::NoFolio),
        }
    }

    /// In use from now on, so that nothing is held under the lock.
    fn reserved_spares(&self) -> Result<DescSpares, OutOfFrames> {
        let get = &mut |source: &crate::frame::Source<'_, M>| self.desc_spares(&mut || source.frame(Fill::Fixed));
        let (spares, _held) = self.obtain_all(get)?;
        spares.iter().for_each(|pfn| self.frames.desc(*pfn).assign(FrameKind::Reserved, 0, 0, 0));
        Ok(spares)
    }

    /// Calls `f` with the block that the folio of that page fills, in a section in which it stays there:
    /// whoever begins to move it waits for the section, and one who moves it already is waited for. Under
    /// `resize`.
    fn with_large_folio<T>(&self, id: ObjectId, page: u64, f: impl FnOnce(BlockId) -> T) -> Option<T> {
        loop {
            let section = self.section();
            match self.object_slot(section.inside(), id, page).page() {
                ObjectPage::Frame(frame) if frame.order == Order::PMD => return Some(f(BlockId::of(frame.pfn))),
                ObjectPage::Leaving(_) => {}
                _ => return None,
            }
            drop(section);
            self.machine.relax();
        }
    }
}
