//! Writes folios of an object to its file: their beginning and end. `space/ops/write_back.rs` has the steps between.
//!
//! ```text
//! begin    section: the word names the folio without a mark ─▶ DIRTY clear, WRITEBACK set
//! ...      grace; the write right goes from every entry of the folio, with a shootdown
//! ask      no call for what was taken out any more; ASKING set; taken out meanwhile? the machine is not asked
//! write    the machine: at once, or later from any CPU; the object is kept
//! end      an error is noted ─▶ WRITEBACK clear, DIRTY set if it failed
//! return   of the machine's call: ASKING clear ─▶ waiters are woken
//! ```
//! A store meanwhile makes the folio dirty again. A CPU that takes pages out does not wait for a write, but for the machine's call,
//! if that has been claimed: the folio becomes an orphan, and its frames go with the end of the write.
//!
//! Locks on entry: none, no section, unless a function says so.

use super::keep::KeptObject;
use super::slot::{ObjectPage, PageFrame, PageSlot};
use crate::account::Event;
use crate::addr::{ObjectPages, PAGE_SIZE, Pfn};
use crate::frame::{EndedPart, FolioWait, FolioWaits, FrameState, Io, WriteBegin};
use crate::links::Links;
use crate::machine::{FileId, FileWrite, ForeignWrite, Machine, StoreRefused, WriteError, Writing, ask};
use crate::policy::folio::around;
use crate::section::InSection;
use crate::space::vma::ObjectId;
use crate::sync::{self, Ordering};
use core::ops::{ControlFlow, Range};

/// The low half of `write_errors` is the number of failures, the high half how many of them were told.
const HALF: u32 = 32;
const LOW: u64 = (1 << HALF) - 1;

/// A folio that the caller has begun to write, and whose entries may still allow stores.
pub(crate) struct BegunWrite {
    pub(crate) first_page: u64,
    frame: PageFrame,
}

impl BegunWrite {
    pub(crate) fn nr_pages(&self) -> u64 {
        self.frame.order.nr_pages()
    }

    /// Its first frame.
    pub(crate) fn head(&self) -> Pfn {
        self.frame.pfn
    }

    pub(crate) fn pages(&self) -> ObjectPages {
        ObjectPages { start: self.first_page, end: self.first_page + self.nr_pages() }
    }
}

/// The next step for a page that may be dirty.
pub(crate) enum PageWrite {
    Begun(BegunWrite),
    /// There is nothing to write; the next page that may differ.
    Next(u64),
    /// It is being written; whether it is dirty again.
    UnderWay {
        next: u64,
        is_dirty: bool,
    },
    /// It is being taken out or moved: look again.
    Wait,
}

/// A store to a page of a file, for which the machine must be asked. The object is kept.
#[must_use]
pub(crate) struct StoreToFile<'vm, M: Machine> {
    object: KeptObject<'vm, M>,
    page: u64,
}

impl<M: Machine> Links<M> {
    /// Begins to write the folio of a page.
    pub(crate) fn begin_file_write(&self, index: u64, slot: PageSlot<'_>) -> PageWrite {
        let _section = self.section();
        let frame = match slot.page() {
            ObjectPage::Frame(frame) => frame,
            ObjectPage::Leaving(_) => return PageWrite::Wait,
            // A folio that is being read is clean.
            _ => return PageWrite::Next(index + 1),
        };
        let pages = around(index, frame.order);
        match self.frames.desc(frame.head()).begin_file_write() {
            WriteBegin::Begun => {
                let frame = PageFrame { pfn: frame.head(), ..frame };
                PageWrite::Begun(BegunWrite { first_page: pages.start, frame })
            }
            WriteBegin::Clean => PageWrite::Next(pages.end),
            WriteBegin::UnderWay { is_dirty } => PageWrite::UnderWay { next: pages.end, is_dirty },
        }
    }

    /// Finds the first of the pages that is being written, or whose state is unknown because it is being taken out or moved.
    pub(crate) fn next_being_written(&self, id: ObjectId, pages: ObjectPages) -> Option<u64> {
        let mut found = None;
        let _ = self.for_each_page(id, pages, &mut |index, slot| {
            let _section = self.section();
            let is_one = match slot.page() {
                ObjectPage::Frame(frame) => self.frames.desc(frame.head()).state().is_being_written(),
                page => matches!(page, ObjectPage::Leaving(_)),
            };
            if !is_one {
                return ControlFlow::Continue(());
            }
            found = Some(index);
            ControlFlow::Break(())
        });
        found
    }

    /// Returns how to wait until the page, if it is being written, is not any more.
    pub(crate) fn join_file_write(&self, id: ObjectId, index: u64) -> Option<FolioWait> {
        let section = self.section();
        let place = self.object_slot(section.inside(), id, index);
        let ObjectPage::Frame(frame) = place.page() else { return None };
        let desc = self.frames.desc(frame.head());
        if !desc.state().is_being_written() {
            return None;
        }
        let wait = self.folio_waits.join_write(frame.head(), desc);
        // A CPU that takes the folio out wakes those that have joined before.
        let is_there = place.page() == ObjectPage::Frame(frame);
        Some(if is_there { wait } else { FolioWaits::not_any_more(wait) })
    }

    /// Whether an entry may map the folio. Exact after a grace period: then each entry that allows stores was made before.
    pub(crate) fn may_be_mapped(&self, begun: &BegunWrite) -> bool {
        self.frames.desc(begun.frame.pfn).state().was_mapped()
    }

    /// Asks the machine to write a folio, unless it was taken out of the object since the write began. No entry of it allows
    /// stores that are not noted.
    pub(crate) fn write_to_file(&self, kept: &KeptObject<'_, M>, file: FileId, begun: BegunWrite) {
        let head = begun.head();
        let desc = self.frames.desc(head);
        self.wait_for_late_calls(kept.id);
        if desc.begin_to_ask() {
            self.ask_to_write(kept, file, begun);
        } else {
            self.end_part_of_write(head, desc.end_file_write(Io::Done));
        }
        let ended = desc.end_asking();
        if ended.is_of_late_call {
            self.end_late_call(kept.id);
        }
        self.end_part_of_write(head, ended);
    }

    /// The caller has claimed the call.
    fn ask_to_write(&self, kept: &KeptObject<'_, M>, file: FileId, begun: BegunWrite) {
        // A CPU that makes the object smaller stores the size, fences, and then changes the file.
        sync::fence();
        let size_bytes = self.object(kept.id).size_bytes.load(Ordering::Acquire);
        let BegunWrite { first_page, frame: PageFrame { pfn, order } } = begun;
        let len_bytes = size_bytes.saturating_sub(first_page * PAGE_SIZE).min(order.nr_pages() * PAGE_SIZE);
        let (vm, object) = (self.number, kept.id);
        let write = FileWrite { vm, object, file, first_page, first_frame: pfn, order, len_bytes };
        self.keep_for_io(self.keep_again(kept));
        let writing =
            if len_bytes == 0 { Writing::Ended(write, Ok(())) } else { ask::write_back(&self.machine, write) };
        if let Writing::Ended(write, result) = writing {
            // The machine may have answered another one, of this `Vm` or not.
            let _foreign = self.end_write(write, result);
        }
    }

    /// Takes the answer to a write.
    pub(crate) fn end_write(&self, write: FileWrite, result: Result<(), WriteError>) -> Result<(), ForeignWrite> {
        if write.vm != self.number {
            return Err(ForeignWrite(write));
        }
        // The reference that the write has had since it began: dropped last.
        let object = self.kept_by_write(&write);
        if result.is_err() {
            self.count(Event::FileWriteFailed, 1);
            // Before a waiter finds the folio not written any more. Of pages that have left the file nothing is lost.
            if !self.frames.desc(write.first_frame).state().is_orphan() {
                self.note_write_error(object.id);
            }
        } else {
            self.count(Event::FileWritten, write.nr_frames());
        }
        let ended = self.frames.desc(write.first_frame).end_file_write(Io::of(result));
        self.end_part_of_write(write.first_frame, ended);
        Ok(())
    }

    /// Wakes those who wait for a folio, and frees it if nothing holds its frames any more.
    pub(super) fn end_part_of_write(&self, head: Pfn, ended: EndedPart) {
        let EndedPart { unlocked, is_ours, .. } = ended;
        self.folio_waits.wake(head, unlocked, &self.machine);
        if is_ours {
            self.give_back_page(head);
        }
    }

    /// Whether a page whose memory failed is missing from now on, since its file has its bytes. If it was dirty they are lost, and
    /// the next call that waits for the file is told: before the word changes, for which such a call waits. `old` is the state
    /// of its folio, which has no entry, pin or write any more, so that DIRTY is final.
    pub(super) fn file_has_failed_page(&self, id: ObjectId, old: FrameState) -> bool {
        let is_of_file = self.object_file(id).is_some();
        if is_of_file && old.is_dirty() {
            self.note_write_error(id);
        }
        is_of_file && !old.is_dirty()
    }

    fn note_write_error(&self, id: ObjectId) {
        let errors = &self.object(id).write_errors;
        let mut seen = errors.load(Ordering::Relaxed);
        let more = |seen: u64| seen & !LOW | (seen + 1) & LOW;
        while let Err(now) = errors.compare_exchange(seen, more(seen), Ordering::AcqRel, Ordering::Relaxed) {
            seen = now;
        }
    }

    /// Returns the number of writes of the object that have failed so far.
    pub(crate) fn nr_write_errors(&self, id: ObjectId) -> u64 {
        self.object(id).write_errors.load(Ordering::Acquire) & LOW
    }

    /// Whether a write has failed that was not reported, or since there were `nr_before` failures: the caller may have waited
    /// for that one, even if another one was told of it first.
    pub(crate) fn take_write_error(&self, id: ObjectId, nr_before: u64) -> bool {
        let errors = &self.object(id).write_errors;
        let mut seen = errors.load(Ordering::Acquire);
        loop {
            let nr_failed = seen & LOW;
            if nr_failed == seen >> HALF {
                return nr_failed != nr_before;
            }
            let told = nr_failed | nr_failed << HALF;
            match errors.compare_exchange(seen, told, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Keeps the object. In a section in which a VMA names it, and whose page is clean.
    pub(crate) fn begin_to_ask(&self, inside: InSection<'_>, id: ObjectId, page: u64) -> StoreToFile<'_, M> {
        StoreToFile { object: self.object_keep_found(inside, id), page }
    }

    /// Asks the machine for room for these pages of a folio, if the object has a file. Returns the pages for which there is room:
    /// none if the machine refused and the folio of `page` has become dirty meanwhile, which needs no more.
    pub(super) fn ask_for_room(&self, id: ObjectId, page: u64, pages: Range<u64>) -> Result<Range<u64>, StoreRefused> {
        let Some(file) = self.object_file(id) else { return Ok(pages) };
        match ask::may_store(&self.machine, file, pages.clone()) {
            Err(StoreRefused) if self.page_to_store(id, page).is_some_and(|(_, is_dirty)| is_dirty) => Ok(page..page),
            answer => answer.map(|()| pages),
        }
    }

    /// The same of a page that is there and clean.
    pub(super) fn pages_of_clean(&self, id: ObjectId, page: u64) -> Option<Range<u64>> {
        self.object_file(id)?;
        self.page_to_store(id, page).and_then(|(pages, is_dirty)| (!is_dirty).then_some(pages))
    }

    /// Of a page that is there, the pages that are dirty together with it, and whether they are.
    fn page_to_store(&self, id: ObjectId, page: u64) -> Option<(Range<u64>, bool)> {
        self.with_slot_of(id, page, |slot| {
            let ObjectPage::Frame(frame) = slot.page() else { return None };
            let is_dirty = self.frames.desc(frame.head()).state().is_dirty();
            Some((self.pages_to_store(id, page, frame), is_dirty))
        })
        .flatten()
    }

    /// The pages that are dirty together with this one, which is in that frame: those of its folio, up to the size.
    pub(super) fn pages_to_store(&self, id: ObjectId, page: u64, frame: PageFrame) -> Range<u64> {
        let folio = around(page, frame.order);
        folio.start..folio.end.min(self.object_nr_pages(id)).max(page + 1)
    }
}

/// State of a page that is to be stored to.
enum Asked {
    /// The machine has to be asked for these pages.
    Need(Range<u64>),
    Dirty,
    /// It is not there, or being taken out.
    Gone,
}

impl<M: Machine> StoreToFile<'_, M> {
    /// Asks the machine. Then the page's folio is dirty, if it is still there.
    pub(crate) fn ask(self) -> Result<(), StoreRefused> {
        let StoreToFile { object, page } = self;
        let links = object.links();
        let mut asked = page..page;
        loop {
            let mut next = Asked::Gone;
            links.with_slot(&object, page, |slot| {
                let ObjectPage::Frame(frame) = slot.page() else { return };
                let pages = links.pages_to_store(object.id, page, frame);
                let desc = links.frames.desc(frame.head());
                next = if covers(&asked, &pages) || desc.state().is_dirty() {
                    desc.note_written();
                    Asked::Dirty
                } else {
                    Asked::Need(pages)
                };
            });
            match next {
                Asked::Need(pages) => asked = links.ask_for_room(object.id, page, pages)?,
                Asked::Dirty => return Ok(()),
                Asked::Gone => {
                    // Perhaps it is about to leave, and the entry is there still: the next turn of the fault may find the same.
                    links.machine.relax();
                    return Ok(());
                }
            }
        }
    }
}

/// Whether the machine was asked for all of the pages.
pub(super) fn covers(asked: &Range<u64>, pages: &Range<u64>) -> bool {
    asked.start <= pages.start && pages.end <= asked.end
}
