//! Reads folios of an object from its file.
//!
//! ```text
//! begin    section: frames ─▶ words: in transit ─▶ the folio is locked; the object is kept
//! read     the machine: at once, or later from any CPU
//! end      folio unlocked ─▶ words: the frames, or nothing if it was not read ─▶ waiters are woken
//! ```
//! The CPU that finds a page missing reads it for all that want it. Others sleep, with nothing held. A remover does not
//! wait: it takes the words out. The end of the read finds that, and frees the frames. So a read that never
//! ends keeps its frames and its object, and blocks no other CPU.
//!
//! The size is looked at in the section in which the read begins. A CPU that makes the object smaller stores the size,
//! and waits for sections, and takes out what is in transit behind it. Frames are zero before, so that bytes behind
//! the size are zero.
//!
//! A caller whose read was under way may find the page missing again: not read, or dropped. It asks the object which of
//! the two happened ([`ReadMark`]), so that an error is reported once and a race is not.
//!
//! Locks on entry: none, no section, unless a function says so.

use super::keep::KeptObject;
use super::object::MAX_OBJECT_BYTES;
use super::slot::{LostFill, PageFrame, PageSlot};
use super::transit::NotRead;
use crate::account::Event;
use crate::addr::{Order, PAGE_SIZE};
use crate::built::{OF_FILES, OfFiles};
use crate::frame::Io;
use crate::links::Links;
use crate::machine::file::FillWay;
use crate::machine::{FileFill, FileId, FillError, Filling, ForeignFill, Machine, ask};
use crate::policy::folio::around;
use crate::section::InSection;
use crate::space::vma::ObjectId;
use crate::sync::{self, Ordering};
use core::ops::Range;

/// Folios of files are smaller: one word each above the lowest level could not be dropped in part.
pub(crate) const MOST_FILE_ORDER: Order = Order(Order::PMD.0 - 1);

/// A folio in transit from a file, whose object is kept. Must be read.
#[must_use]
pub(crate) struct FileRead<'vm, M: Machine> {
    object: KeptObject<'vm, M>,
    fill: FileFill,
    _built: OfFiles,
    /// The end of the pages that are read afterwards, if they can be.
    ahead_end: u64,
}

/// Pages of a file to be read ahead. The object is kept.
#[must_use]
pub(crate) struct Ahead<'vm, M: Machine> {
    pub(super) object: KeptObject<'vm, M>,
    pub(super) pages: Range<u64>,
}

impl<'vm, M: Machine> Ahead<'vm, M> {
    pub(crate) fn of(object: KeptObject<'vm, M>, pages: Range<u64>) -> Self {
        Ahead { object, pages }
    }
}

/// When the machine has answered a read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    AtOnce = 0,
    Later = 1,
}

/// The object's record of failed reads before a read of one page began.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadMark {
    first_page: u64,
    record: u64,
}

/// In the record of failed reads the first page of the last one's folio is below these bits, and the number of failures in them,
/// which wraps around. One word, so that nobody takes the number of one failure for that of another page's.
const NR_FAILED_SHIFT: u32 = 52;
const LAST_FAILED: u64 = (1 << NR_FAILED_SHIFT) - 1;
const _: () = assert!(MAX_OBJECT_BYTES / PAGE_SIZE < LAST_FAILED);

impl<M: Machine> Links<M> {
    /// Puts a folio of zeroes, owned by the caller alone, around a page that is missing, to be read. In the section of the
    /// lookup, after a look at the size.
    ///
    /// # Errors
    ///
    /// Another CPU was first; the caller still owns the frames.
    pub(crate) fn begin_to_read_file<'vm>(
        &'vm self,
        inside: InSection<'_>,
        (id, index, file): (ObjectId, u64, FileId),
        slot: PageSlot<'_>,
        head: PageFrame,
    ) -> Result<FileRead<'vm, M>, LostFill> {
        let Some(built) = OF_FILES else { return Err(LostFill) };
        let first_page = around(index, head.order).start;
        slot.begin_fill(head, || self.make_folio_to_read(head.pfn, head.order, id.0, first_page))?;
        let object = self.object_keep_found(inside, id);
        let way = if self.is_explicit(id) { FillWay::Install } else { FillWay::Read };
        let fill = self.fill_of(id, file, first_page, head, way);
        Ok(FileRead { object, fill, _built: built, ahead_end: 0 })
    }

    /// Puts a folio of an explicit object in transit, in the embedder's hands. The caller has marked it as moving, and no
    /// entry or pin uses it. `None` if another CPU is about to take it out: then it is not marked.
    pub(crate) fn object_begin_evict(
        &self,
        object: KeptObject<'_, M>,
        first_page: u64,
        head: PageFrame,
    ) -> Option<FileFill> {
        let desc = self.frames.desc(head.pfn);
        desc.lock_to_take_out();
        if self.with_slot(&object, first_page, |slot| slot.begin_to_evict(head)) == Some(true) {
            let fill =
                self.fill_of(object.id, FileId(object.id.0), first_page, head, FillWay::Evict { is_dirty: true });
            self.keep_for_io(object);
            return Some(fill);
        }
        let unlocked = desc.end_filling(Io::Done);
        self.object_end_move(&object, first_page, head);
        self.folio_waits.wake(head.pfn, unlocked, &self.machine);
        None
    }

    fn fill_of(&self, object: ObjectId, file: FileId, first_page: u64, head: PageFrame, way: FillWay) -> FileFill {
        let size_bytes = self.object(object).size_bytes.load(Ordering::Acquire);
        // The object may have become smaller since the look: then nobody will see the page.
        let len_bytes = size_bytes.saturating_sub(first_page * PAGE_SIZE).min(head.order.nr_pages() * PAGE_SIZE);
        let (first_frame, order) = (head.pfn, head.order);
        FileFill { vm: self.number, object, file, first_page, first_frame, order, len_bytes, way }
    }

    fn note_failed(&self, id: ObjectId, first_page: u64) {
        let data = self.object(id);
        let mut seen = data.failed_reads.load(Ordering::Relaxed);
        let next = |seen: u64| (seen & !LAST_FAILED).wrapping_add(LAST_FAILED + 1) | first_page;
        while let Err(now) = data.failed_reads.compare_exchange(seen, next(seen), Ordering::AcqRel, Ordering::Relaxed) {
            seen = now;
        }
    }

    /// Ends a read, no matter which CPU began it. If it has failed, and the pages are still the object's, `note` is called before
    /// anybody finds them missing.
    fn end_file_read(&self, object: &KeptObject<'_, M>, fill: &FileFill, io: Io, note: impl FnOnce()) {
        let FileFill { first_page, first_frame, order, .. } = *fill;
        let head = PageFrame { pfn: first_frame, order };
        let unlocked = self.frames.desc(first_frame).end_filling(io);
        let is_there = self.with_slot(object, first_page, |slot| slot.end_fill(head, io, note)) == Some(true);
        self.folio_waits.wake(first_frame, unlocked, &self.machine);
        if !is_there {
            while self.with_slot(object, first_page, |slot| slot.is_being_dropped(head)) == Some(true) {
                self.machine.relax();
            }
        }
        if io == Io::Failed || !is_there {
            self.give_back_page(first_frame);
        }
    }

    /// Takes the answer to a read: at once in the call that asked for it, and else later, also in a call that asked for another one.
    pub(crate) fn end_fill(
        &self,
        fill: FileFill,
        result: Result<(), FillError>,
        answer: Answer,
    ) -> Result<(), ForeignFill> {
        if fill.vm != self.number {
            return Err(ForeignFill(fill));
        }
        // The reference that the read has had since it began.
        let object = self.kept_by_fill(&fill);
        let answers_later = &self.object(object.id).answers_later;
        if fill.way == FillWay::Read && answers_later.load(Ordering::Relaxed) != answer as u64 {
            answers_later.store(answer as u64, Ordering::Relaxed);
        }
        if fill.way == FillWay::Read && answer == Answer::Later {
            self.under_way.0.fetch_sub(fill.nr_frames(), Ordering::Relaxed);
        }
        match (fill.way, result) {
            (FillWay::Read, Ok(())) => self.count(Event::FileRead, fill.nr_frames()),
            (FillWay::Read, Err(FillError)) => {
                self.count(Event::FileReadFailed, 1);
            }
            (FillWay::Install, Ok(())) => self.count(Event::ExplicitInstalled, fill.nr_frames()),
            (FillWay::Evict { .. }, Err(FillError)) => self.count(Event::ExplicitEvicted, fill.nr_frames()),
            (FillWay::Install, Err(FillError)) | (FillWay::Evict { .. }, Ok(())) => {}
        }
        // A failure of what was taken out meanwhile is nobody's: the next read of the page may be well.
        self.end_file_read(&object, &fill, Io::of(result), || {
            if fill.way == FillWay::Read {
                self.note_failed(object.id, fill.first_page);
            }
        });
        Ok(())
    }
}

impl<'vm, M: Machine> FileRead<'vm, M> {
    /// Reads, unless an earlier read of the page by the same caller has failed, of which `mark` knows. Then
    /// reads ahead, the first time only: failures of pages ahead come after that of the page, and would hide it each time.
    ///
    /// # Errors
    ///
    /// The machine could not read the page.
    pub(crate) fn read_after(self, mark: &mut Option<ReadMark>) -> Result<Option<Ahead<'vm, M>>, NotRead> {
        if mark.is_some_and(|mark| self.has_failed_since(mark)) {
            self.give_up();
            return Err(NotRead);
        }
        let is_first = mark.replace(self.mark()).is_none();
        let ahead = self.ask()?;
        Ok(ahead.filter(|_| is_first))
    }

    /// Notes that pages up to this one are read afterwards.
    pub(crate) fn and_ahead(self, ahead_end: u64) -> Self {
        FileRead { ahead_end, ..self }
    }

    fn mark(&self) -> ReadMark {
        ReadMark { first_page: self.fill.first_page, record: self.record() }
    }

    fn record(&self) -> u64 {
        self.object.links().object(self.object.id).failed_reads.load(Ordering::Acquire)
    }

    fn has_failed_since(&self, mark: ReadMark) -> bool {
        let record = self.record();
        record != mark.record && record & LAST_FAILED == mark.first_page
    }

    /// Makes the pages missing again: the error is reported, and nothing was read.
    fn give_up(self) {
        self.object.links().end_file_read(&self.object, &self.fill, Io::Failed, || ());
    }

    /// Returns the fill for the embedder, who gives it back later. `None` if the pages lie behind a size that has become
    /// smaller meanwhile: they are missing.
    pub(super) fn into_fill(self) -> Option<FileFill> {
        let FileRead { object, fill, .. } = self;
        if fill.len_bytes == 0 {
            object.links().end_file_read(&object, &fill, Io::Failed, || ());
            return None;
        }
        object.links().keep_for_io(object);
        // As in `ask`.
        sync::fence();
        Some(fill)
    }

    /// Asks the machine. Afterwards the pages are there, or missing, or still in transit.
    fn ask(self) -> Result<Option<Ahead<'vm, M>>, NotRead> {
        let FileRead { object, fill, ahead_end, .. } = self;
        let links = object.links();
        let pages = fill.first_page + fill.nr_frames()..ahead_end;
        if fill.len_bytes == 0 {
            links.end_file_read(&object, &fill, Io::Done, || ());
            return Ok(None);
        }
        let ahead = (!pages.is_empty()).then(|| Ahead { object: links.keep_again(&object), pages });
        let (first_frame, nr) = (fill.first_frame, fill.nr_frames());
        links.keep_for_io(object);
        // A CPU that changes the file and then takes pages out fences, too: it finds the words, or this finds the change.
        sync::fence();
        match ask::fill(&links.machine, fill) {
            // The frames tell it from another fill of the same page, which was taken out before.
            Filling::Ended(fill, result) if (fill.vm, fill.first_frame) == (links.number, first_frame) => {
                let _ours = links.end_fill(fill, result, Answer::AtOnce);
                result.map_err(|FillError| NotRead)?;
            }
            answer => {
                // The machine keeps it, or has given it back elsewhere by now.
                links.under_way.0.fetch_add(nr, Ordering::Relaxed);
                if let Filling::Ended(another, result) = answer {
                    // Of this `Vm` or not.
                    let _foreign = links.end_fill(another, result, Answer::Later);
                }
            }
        }
        Ok(ahead)
    }
}
