//! The embedder's handle of a shared object: of a memory file or a segment.
//!
//! Reads and writes access the frames that are mapped, each page in a section of its own. So they
//! and the programs see each other's changes at once.
//!
//! Locks on entry: none, no section.

use super::file_write::covers;
use super::object::MAX_OBJECT_BYTES;
use super::prealloc::{ObjectPrealloc, Put};
use super::slot::{ObjectPage, PageFrame};
use super::write_error::ObjectWriteError;
use crate::addr::{ObjectPages, PAGE_SIZE};
use crate::frame::FolioWait;
use crate::machine::Machine;
use crate::pace::Pace;
use crate::policy::folio::around;
use crate::program;
use crate::space::Vm;
use crate::space::vma::ObjectId;
use crate::sync::Ordering;
use core::ops::{ControlFlow, Range};

/// Memory that spaces can share. It has a size in bytes, and pages only where something was written
/// or touched. It lives as long as this handle or a mapping of it, whichever ends last.
pub struct SharedObject<'vm, M: Machine> {
    pub(crate) vm: &'vm Vm<M>,
    pub(crate) id: ObjectId,
}

impl<'vm, M: Machine> SharedObject<'vm, M> {
    /// The largest size: 2^63 - 1 bytes.
    pub const MAX_BYTES: u64 = MAX_OBJECT_BYTES;

    /// Its identity, as in [`Vma::object`](crate::Vma).
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// The size, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.vm.object(self.id).size_bytes.load(Ordering::Acquire)
    }

    /// Changes the size, to [`MAX_BYTES`](Self::MAX_BYTES) at most.
    ///
    /// When this returns, pages beyond a smaller size are removed, also from all mappings, and they
    /// are zero if the object grows again; accesses are refused with
    /// [`BeyondObject`](crate::FaultError::BeyondObject).
    ///
    /// Subscribers of spaces that map the pages are told, so the caller must hold no lock that is
    /// taken in [`Machine::notify`], and none that is taken in [`Machine::write_back`]: a size that is not larger waits for a call of the latter
    /// that writes one of the pages, one that an earlier removal has taken out and waits for, or the page of which it zeroes the end. A larger
    /// size waits for none, so it comes when a smaller one has returned: else that may have a call yet. Accesses to a page that is being removed wait. A smaller size waits for a fork(2) that has
    /// copied a private mapping of the object beside another one, until it has copied it again.
    pub fn set_size_bytes(&self, size_bytes: u64) {
        self.vm.call();
        self.vm.object_set_size(self.id, size_bytes);
    }

    /// Removes pages, by number, from the object and from all mappings: they are zero when they are
    /// accessed again, or come from the file or the embedder. Of a file it is a hole: pages of a folio that is pinned, being
    /// written, or of the least size may be zeroed in place and written, so the file's pages should be zero, too: see
    /// [`make_hole`](Self::make_hole). Private copies stay; of an object of a pool they go, but those of pages that are met in part. For
    /// locks and waiting see [`set_size_bytes`](Self::set_size_bytes).
    pub fn discard(&self, pages: impl Into<ObjectPages>) {
        self.vm.call();
        self.vm.object_discard(self.id, pages.into());
    }

    pub(super) fn may_be_written(&self) -> Result<(), ObjectWriteError> {
        self.vm.foreign_frames_of(self.id).map_or(Ok(()), |_| Err(ObjectWriteError::Foreign))
    }

    /// Number of its pages that are swapped out or in transit, from a file, too. Reads all pages.
    pub fn nr_swapped_pages(&self) -> u64 {
        self.vm.call();
        self.count_pages(&|page| page.is_away())
    }

    /// Number of its pages in memory, mapped or not. Reads all of them.
    pub fn nr_resident_pages(&self) -> u64 {
        self.vm.call();
        self.count_pages(&|page| matches!(page, ObjectPage::Frame(_) | ObjectPage::Leaving(_)))
    }

    fn count_pages(&self, is_one: &dyn Fn(ObjectPage) -> bool) -> u64 {
        let mut nr = 0;
        let _ = self.vm.for_each_page(self.id, ObjectPages::ALL, &mut |_, slot| {
            nr += if is_one(slot.page()) { slot.nr_pages() } else { 0 };
            ControlFlow::Continue(())
        });
        nr
    }

    /// The first page of the range that it has, in memory or swapped out, or whose memory failed, by
    /// number: the others are zero.
    pub fn next_resident(&self, pages: impl Into<ObjectPages>) -> Option<u64> {
        self.vm.call();
        self.vm.object_next_page(self.id, pages.into())
    }

    /// Whether a VMA of any space maps a page of it.
    pub fn is_mapped(&self) -> bool {
        self.nr_mapped_pages() != 0
    }

    /// Pages of VMAs that map it, those of all spaces together.
    pub fn nr_mapped_pages(&self) -> u64 {
        self.vm.object(self.id).refs.load(Ordering::Relaxed) - 1
    }

    /// Of those the pages of VMAs that may be written, now or after mprotect(2). Exact: a VMA
    /// counts from before it can be stored through until no translation of it is left, also
    /// while it is moved or forked.
    pub fn nr_writable_pages(&self) -> u64 {
        self.vm.object(self.id).nr_writable.load(Ordering::Acquire)
    }

    /// The first page of the range whose memory failed, by number. Looks at all pages before it.
    pub fn next_poisoned(&self, pages: impl Into<ObjectPages>) -> Option<u64> {
        self.vm.call();
        let mut found = None;
        let _ = self.vm.for_each_page(self.id, pages.into(), &mut |index, slot| {
            if slot.page() != ObjectPage::Poisoned {
                return ControlFlow::Continue(());
            }
            found = Some(index);
            ControlFlow::Break(())
        });
        found
    }

    /// Reads up to the size, or up to a page whose memory failed
    /// ([`next_poisoned`](Self::next_poisoned)), or that cannot be read from the file or the swap area, or that the
    /// embedder has to [install](Self::install). Returns the number of bytes. Missing pages of other objects read as
    /// zero and are not added.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        self.vm.call();
        let len = into.len().min(usize::try_from(self.size_bytes().saturating_sub(offset)).unwrap_or(usize::MAX));
        for part in self.parts(offset, len) {
            let into = &mut into[part.done..part.done + part.len];
            loop {
                match self.read_part(&part, into) {
                    ReadPart::Done => break,
                    ReadPart::Leaving => self.vm.machine.relax(),
                    ReadPart::InTransit(wait) => self.vm.wait_for_folio(wait),
                    ReadPart::Swapped if self.vm.object_bring(self.id, part.index).is_ok() => {}
                    ReadPart::Missing if self.with_frame(part.index, &mut |_| ()).is_ok() => {}
                    ReadPart::Poisoned | ReadPart::Swapped | ReadPart::Missing => return part.done,
                }
            }
        }
        len
    }

    /// Reads the part of one page.
    fn read_part(&self, part: &PagePart, into: &mut [u8]) -> ReadPart {
        let section = self.vm.section();
        let slot = self.vm.object_slot(section.inside(), self.id, part.index);
        match slot.page() {
            ObjectPage::Frame(frame) => {
                self.vm.frames.note_read(frame.head());
                program::read(&self.vm.machine, frame.pfn, part.start, into);
            }
            ObjectPage::Absent if self.vm.is_in_file(self.id, part.index) => return ReadPart::Missing,
            ObjectPage::Filling if self.vm.is_in_file(self.id, part.index) => return ReadPart::Leaving,
            // Nobody has written to what is being put in.
            ObjectPage::Absent | ObjectPage::Filling => match self.vm.foreign_page(self.id, part.index) {
                Some(PageFrame { pfn, .. }) => program::read(&self.vm.machine, pfn, part.start, into),
                None => into.fill(0),
            },
            ObjectPage::Leaving(_) => return ReadPart::Leaving,
            ObjectPage::Poisoned => return ReadPart::Poisoned,
            ObjectPage::Swapped(_) => return ReadPart::Swapped,
            ObjectPage::InTransit(pfn) => {
                return ReadPart::InTransit(self.vm.join_folio(section.inside(), &slot, pfn));
            }
        }
        ReadPart::Done
    }

    /// Writes up to the size; bytes beyond it are not written.
    ///
    /// # Errors
    ///
    /// [`ObjectWriteError`]: nothing is written, save where pages were [discarded](Self::discard) or written back, their memory
    /// failed, or a folio was read again in another size, at the same time. Pages of zeroes may have been added.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), ObjectWriteError> {
        self.vm.call();
        self.may_be_written()?;
        let len = from.len().min(usize::try_from(self.size_bytes().saturating_sub(offset)).unwrap_or(usize::MAX));
        let mut asked = 0..0;
        for part in self.parts(offset, len) {
            self.with_room(part.index, &mut asked, &mut |_| ())?;
        }
        for part in self.parts(offset, len) {
            let from = &from[part.done..part.done + part.len];
            self.with_room(part.index, &mut asked, &mut |frame| {
                self.vm.frames.desc(frame.head()).note_written();
                self.vm.frames.note_run_used(frame.head(), 1);
                program::write(&self.vm.machine, frame.pfn, part.start, from);
            })?;
        }
        self.vm.reclaim_if_low();
        Ok(())
    }

    /// As [`with_frame`](Self::with_frame), once the machine has room for the page's folio: a dirty one has it. `asked` are the
    /// adjacent pages for which the machine was asked.
    fn with_room(
        &self,
        index: u64,
        asked: &mut Range<u64>,
        with: &mut dyn FnMut(PageFrame),
    ) -> Result<(), ObjectWriteError> {
        if self.vm.object_file(self.id).is_none() {
            return self.with_frame(index, with);
        }
        loop {
            let mut more = None;
            self.with_frame(index, &mut |frame| {
                let pages = self.vm.pages_to_store(self.id, index, frame);
                let has_room = covers(asked, &pages) || self.vm.frames.desc(frame.head()).state().is_dirty();
                if has_room { with(frame) } else { more = Some(pages) }
            })?;
            let Some(more) = more else { return Ok(()) };
            let pages = self.vm.ask_for_room(self.id, index, more)?;
            let is_apart = pages.start > asked.end || pages.end < asked.start;
            *asked = if is_apart { pages } else { asked.start.min(pages.start)..asked.end.max(pages.end) };
        }
    }

    /// Provides pages that are missing, up to the size: fallocate(2). Pages that were there keep their bytes. Pages
    /// beyond the size are not provided.
    ///
    /// # Errors
    ///
    /// [`ObjectWriteError`]; the pages before the one that was refused stay.
    ///
    /// Source: fallocate(2).
    pub fn allocate(&self, pages: impl Into<ObjectPages>) -> Result<(), ObjectWriteError> {
        self.vm.call();
        self.may_be_written()?;
        let pages: ObjectPages = pages.into();
        let (pages, order) = (pages.below(self.vm.object_nr_pages(self.id)), self.vm.object_orders(self.id).least());
        let mut pace = Pace::new(&self.vm.machine);
        let mut index = if pages.is_empty() { pages.end } else { around(pages.start, order).start };
        while index < pages.end.min(self.vm.object_nr_pages(self.id)) {
            pace.step();
            self.with_frame(index, &mut |_| ())?;
            self.vm.reclaim_if_low();
            index += order.nr_pages();
        }
        Ok(())
    }

    /// Calls `f` in a section with the page's frame, which is added if there is none. Does not call
    /// it if the page lies beyond the size.
    fn with_frame(&self, index: u64, f: &mut dyn FnMut(PageFrame)) -> Result<(), ObjectWriteError> {
        let mut prealloc = ObjectPrealloc::new(self.vm);
        let mut mark = None;
        loop {
            let put = {
                let section = self.vm.section();
                if index >= self.vm.object_nr_pages(self.id) {
                    return Ok(());
                }
                let slot = self.vm.object_slot(section.inside(), self.id, index);
                match slot.page() {
                    ObjectPage::Frame(frame) => {
                        f(frame);
                        return Ok(());
                    }
                    ObjectPage::Poisoned => return Err(ObjectWriteError::Poisoned),
                    ObjectPage::Absent => prealloc.put_into(section.inside(), self.id, index, &slot),
                    ObjectPage::Swapped(_) => Put::Bring,
                    ObjectPage::InTransit(pfn) => Put::Sleep(self.vm.join_folio(section.inside(), &slot, pfn)),
                    ObjectPage::Filling | ObjectPage::Leaving(_) => Put::Wait,
                }
            };
            match put {
                Put::Done => {}
                Put::Missing => return Err(ObjectWriteError::Missing),
                Put::NeedsFrames => prealloc.bring(self.id, index)?,
                Put::Bring => {
                    prealloc.give_back();
                    self.vm.object_bring(self.id, index)?;
                }
                Put::Sleep(wait) => {
                    prealloc.give_back();
                    self.vm.wait_for_folio(wait);
                }
                Put::Fill(fill) => prealloc.fill(fill)?,
                Put::Read(read) => {
                    prealloc.give_back();
                    let ahead = read.read_after(&mut mark)?;
                    self.vm.read_ahead(ahead);
                }
                Put::Wait => {
                    // The CPU that takes the page out may wait for frames of others.
                    prealloc.give_back();
                    self.vm.machine.relax();
                }
            }
        }
    }

    /// Iterates over the pages of `len` bytes from `offset`; answers other CPUs now and then.
    fn parts(&self, offset: u64, len: usize) -> impl Iterator<Item = PagePart> {
        let mut done = 0;
        let mut pace = Pace::new(&self.vm.machine);
        core::iter::from_fn(move || {
            if done == len {
                return None;
            }
            let at = offset + done as u64;
            let start = (at % PAGE_SIZE) as usize;
            let part =
                PagePart { index: at / PAGE_SIZE, start, done, len: (PAGE_SIZE as usize - start).min(len - done) };
            pace.page();
            done += part.len;
            Some(part)
        })
    }
}

/// The result of a read of one page.
enum ReadPart {
    Done,
    /// The page is about to leave the object: start over.
    Leaving,
    /// Its memory failed.
    Poisoned,
    /// It was swapped out.
    Swapped,
    /// It is in the file alone.
    Missing,
    /// It is in transit: wait, and start over.
    InTransit(FolioWait),
}

/// The part of an access that is in one page.
struct PagePart {
    index: u64,
    /// Where in the page.
    start: usize,
    /// Bytes of the access before it.
    done: usize,
    len: usize,
}

impl<M: Machine> Drop for SharedObject<'_, M> {
    fn drop(&mut self) {
        self.vm.call();
        self.vm.object(self.id).handles.set(0);
        self.vm.object_drop(self.id, 1);
    }
}

impl<M: Machine> core::fmt::Debug for SharedObject<'_, M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SharedObject").field("id", &self.id).field("size_bytes", &self.size_bytes()).finish()
    }
}
