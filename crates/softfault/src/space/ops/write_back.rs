//! Writes dirty pages of an object to its file, and waits for that: for fsync(2) and msync(2).
//!
//! ```text
//! begin    up to 16 folios: DIRTY clear, WRITEBACK set            source/file_write.rs
//! grace    of all CPUs: every fault that has seen DIRTY has written its entry
//! protect  every entry of them loses the write right and dirty    rmap/object.rs
//! write    the machine gets them, one after the other; not those that were taken out since they began
//! wait     for each folio that is being written, with nothing held
//! ```
//! A store after its entry was protected faults, and makes its folio dirty again: see `fault/store.rs`. A store before
//! that is in the bytes that the machine reads.
//!
//! **Two rounds are enough.** A folio that is dirty and being written is waited for in the first and written in the second.
//! If it is being written by then, that write began after the first wait, and has all stores that came before the call.
//!
//! Locks on entry: none, no section. Takes the locks of the object's shards.

use crate::addr::{ObjectPages, Pfn};
use crate::machine::{FileId, FileWrite, ForeignWrite, Machine, WriteError};
use crate::source::file_write::{BegunWrite, PageWrite};
use crate::source::handle::SharedObject;
use crate::source::keep::KeptObject;
use crate::source::write_error::WriteBackError;
use crate::space::Vm;
use crate::space::vma::ObjectId;
use core::ops::ControlFlow;

/// The number of folios that are begun for one grace period.
const MOST_AT_ONCE: usize = 16;

/// Folios that the caller has begun to write.
type Batch = [Option<BegunWrite>; MOST_AT_ONCE];

/// Writes that a round has begun.
pub(crate) struct Begun {
    /// Of the folios.
    pub(crate) nr_pages: u64,
    /// No folio was being written and dirty again.
    is_all: bool,
    /// The head of the last folio whose write the machine has not ended yet.
    pub(crate) under_way: Option<Pfn>,
    /// The file has taken the last folio of a batch, and no program has stored to it since.
    pub(crate) has_written: bool,
}

impl<M: Machine> Vm<M> {
    /// Ends a write that was [under way](crate::Writing::UnderWay). From any CPU, but not in a callback of the machine.
    ///
    /// # Errors
    ///
    /// [`ForeignWrite`], with the write; nothing has changed.
    #[cfg(feature = "files")]
    pub fn written(&self, write: FileWrite, result: Result<(), WriteError>) -> Result<(), ForeignWrite> {
        if write.vm != self.number {
            return Err(ForeignWrite(write));
        }
        self.call();
        self.end_write(write, result)
    }

    /// Writes the dirty ones of the pages, and waits until they are written. The caller keeps the object.
    pub(crate) fn object_write_back(&self, id: ObjectId, pages: ObjectPages) -> Result<(), WriteBackError> {
        let Some(file) = self.object_file(id) else { return Ok(()) };
        let kept = self.keep_object(id);
        let nr_errors = self.nr_write_errors(id);
        for _ in 0..2 {
            let begun = self.begin_writes(&kept, file, pages);
            self.wait_for_writes(id, pages);
            if begun.is_all {
                break;
            }
        }
        if self.take_write_error(id, nr_errors) { Err(WriteBackError::NotWritten) } else { Ok(()) }
    }

    /// Begins to write the dirty ones, and waits for nothing but moves.
    pub(crate) fn begin_writes(&self, kept: &KeptObject<'_, M>, file: FileId, mut pages: ObjectPages) -> Begun {
        let mut all = Begun { nr_pages: 0, is_all: true, under_way: None, has_written: false };
        while pages.start < pages.end {
            let mut batch: Batch = [const { None }; MOST_AT_ONCE];
            let (mut nr, mut next, mut must_wait) = (0, pages.end, false);
            let mut skip_to = pages.start;
            let _ = self.for_each_page(kept.id, pages, &mut |index, slot| {
                if index < skip_to {
                    return ControlFlow::Continue(());
                }
                match self.begin_file_write(index, slot) {
                    PageWrite::Begun(begun) => {
                        skip_to = begun.pages().end;
                        all.nr_pages += begun.nr_pages();
                        batch[nr] = Some(begun);
                        nr += 1;
                    }
                    PageWrite::Next(at) => skip_to = at,
                    PageWrite::UnderWay { next, is_dirty } => {
                        all.is_all &= !is_dirty;
                        skip_to = next;
                    }
                    PageWrite::Wait => {
                        (must_wait, next) = (true, index);
                        return ControlFlow::Break(());
                    }
                }
                if nr < MOST_AT_ONCE {
                    return ControlFlow::Continue(());
                }
                next = skip_to;
                ControlFlow::Break(())
            });
            pages.start = next;
            let last = self.write_batch(kept, file, &mut batch[..nr]);
            if let Some(head) = last {
                let state = self.frames.desc(head).state();
                all.has_written |= !state.is_being_written() && !state.is_dirty();
                all.under_way = Some(head).filter(|_| state.is_being_written()).or(all.under_way);
            }
            if must_wait {
                self.machine.relax();
            }
        }
        all
    }

    /// Writes folios that the caller has begun, in the order of their pages. Returns the head of the last one.
    fn write_batch(&self, kept: &KeptObject<'_, M>, file: FileId, batch: &mut [Option<BegunWrite>]) -> Option<Pfn> {
        let last = batch.last()?.as_ref()?.head();
        self.grace_everywhere();
        let mut mapped =
            batch.iter().flatten().filter(|begun| self.may_be_mapped(begun)).map(BegunWrite::pages).peekable();
        while let Some(mut pages) = mapped.next() {
            while let Some(next) = mapped.next_if(|next| next.start == pages.end) {
                pages.end = next.end;
            }
            self.protect_object_pages(kept.id, pages);
        }
        drop(mapped);
        for begun in batch.iter_mut().filter_map(Option::take) {
            self.write_to_file(kept, file, begun);
        }
        Some(last)
    }

    /// Waits until none of the pages is in a write that had begun before.
    fn wait_for_writes(&self, id: ObjectId, mut pages: ObjectPages) {
        while let Some(page) = self.next_being_written(id, pages) {
            pages.start = page;
            if let Some(wait) = self.join_file_write(id, page) {
                self.wait_for_folio(wait);
            } else {
                self.machine.relax();
            }
        }
    }
}

#[cfg(feature = "files")]
impl<M: Machine> SharedObject<'_, M> {
    /// Writes those of the pages, by number, that are dirty to the object's file, and waits until they are written. Pages
    /// that are stored to meanwhile may be written or not. An object without a file has nothing to write.
    ///
    /// The embedder keeps a handle of each object whose file has to get all stores: an object that ends writes nothing.
    /// A write that stays [under way](crate::Writing::UnderWay) may end after a [`discard`](Self::discard) or a smaller size that came later: the storage does not
    /// take bytes behind its end, nor those of a hole that was made since, or of a part that was cut off and came back. No call of
    /// [`Machine::write_back`] lasts as long.
    ///
    /// # Errors
    ///
    /// [`WriteBackError`]: a write of the object has failed during the call, no matter which call began it, or before it and nobody was told.
    pub fn write_back(&self, pages: impl Into<ObjectPages>) -> Result<(), WriteBackError> {
        self.vm.call();
        self.vm.assert_outside();
        self.vm.object_write_back(self.id, pages.into())
    }
}
