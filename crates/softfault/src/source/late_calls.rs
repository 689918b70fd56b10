//! Calls of the machine that write a folio to its file while a removal takes the folio out, or zeroes a part of it.
//!
//! ```text
//! taken out   counted before its words are empty ─▶ orphan: AWAITED if the machine is in its call ─▶ the CPU that asks ends the count
//! zeroed      zeroes ─▶ a read-modify-write of the folio's state: is the machine in its call?
//! removal     returns when these calls are over, and those of earlier removals of the same pages, and tells which pages have left
//! write       asks for nothing of the object while a call for what has left it lasts
//! ```
//! Both who zeroes and who asks change the state of the folio by a read-modify-write. So the call has the zeroes, or is seen.
//!
//! Ways to fail: a removal returns during the call for what it took out (`a_removal_waits_for_the_call_that_writes_its_page`), or for
//! what an earlier one took out that waits still (`a_second_removal_waits_for_the_call`), or for what it zeroed
//! (`zeroes_wait_for_the_call_that_writes_their_page`); it waits for the write, or for a page that it does not remove, and with a
//! lock; it waits for a call that began after the zeroes, and so for each later one (model `zeroes_do_not_wait_for_a_later_call`); the
//! old bytes of a page come after those of the page that has its place (`a_store_while_a_removal_waits_stays`). Models
//! `a_removal_against_…`, `two_removals_…`, `zeroes_against_…` in `late_calls`.
//!
//! Locks on entry: see the functions. What waits holds nothing: the machine may take as long as it likes.

use super::late_words::{NUMBER, TIMES};
use super::slot::{ObjectPage, PageSlot};
use crate::account::Event;
use crate::addr::{ObjectPages, Pfn};
use crate::frame::{Call, FolioWait, FrameList};
use crate::links::Links;
use crate::machine::Machine;
use crate::space::vma::ObjectId;
use crate::sync::Ordering;
use core::ops::Range;

/// A folio that is in its object, and that the machine was being asked to write when a part of it was zeroed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CalledFolio {
    page: u64,
    head: Pfn,
    call: Call,
}

/// The removal of a part of a folio: of some of its pages.
pub(super) struct Cut {
    /// Those that have left. The others are zero, and dirty. If none has, this is inverted: from the end of the others to their start.
    pub(super) gone: Range<u64>,
    /// The folio has stayed whole, and the machine is in a call that writes it.
    pub(super) called: Option<CalledFolio>,
}

/// The calls for which a removal waits at its end.
#[must_use]
pub(crate) struct AwaitedCalls {
    /// `calls` before the removal, if some are for pages that an earlier removal took out and this one removes, too.
    earlier: Option<u64>,
    /// Of folios that it has taken out.
    taken_out: FrameList,
    /// Of folios of which it has zeroed a part: those at the two ends of what it removes.
    zeroed: [Option<CalledFolio>; 2],
    /// The pages that have left or were missing: all but those at the two ends that are zero in folios that stay.
    gone: Range<u64>,
}

impl AwaitedCalls {
    pub(super) fn add_taken_out<M: Machine>(&mut self, links: &Links<M>, head: Pfn) {
        self.taken_out.push(&links.frames, head);
    }

    /// A part of a folio with these pages was removed.
    pub(super) fn add_cut(&mut self, folio: Range<u64>, cut: Cut) {
        self.add_zeroed(cut.called);
        let before = self.gone.clone();
        if folio.start < before.start {
            self.gone.start = cut.gone.start;
        }
        if folio.end > before.end {
            self.gone.end = cut.gone.end;
        }
    }

    pub(crate) fn add_zeroed(&mut self, called: Option<CalledFolio>) {
        let Some(called) = called else { return };
        // A smaller size zeroes the end of a page, and then the pages behind it of the same folio.
        let place = self.zeroed.iter_mut().find(|place| place.is_none_or(|there| there.head == called.head));
        debug_assert!(place.is_some(), "I56: a range has two ends");
        if let Some(place) = place {
            *place = Some(called);
        }
    }
}

/// The machine's call for a folio of which a part was zeroed.
enum CallNow {
    Lasts(FolioWait),
    IsOver,
    /// The folio is being taken out, or is about to move.
    Unknown,
    /// The folio was taken out: the call is over, or counted.
    IsLate,
}

impl<M: Machine> Links<M> {
    /// Begins to remove pages: notes whether calls last for pages that earlier removals have taken out.
    pub(crate) fn begin_to_await(&self, id: ObjectId, pages: ObjectPages) -> AwaitedCalls {
        let (earlier, gone) = (self.late_calls_of(id, pages), pages.start..pages.end);
        AwaitedCalls { earlier, taken_out: FrameList::EMPTY, zeroed: [None; 2], gone }
    }

    /// `calls`, if some last for pages that removals have taken out. The number comes first: while one lasts the pages only become more.
    pub(super) fn late_calls_of(&self, id: ObjectId, pages: ObjectPages) -> Option<u64> {
        let late = &self.object(id).late_calls;
        let seen = late.calls.load(Ordering::Acquire);
        let is_one_of_these = pages.start < late.end_page.get() && late.first_page.get() < pages.end;
        (seen & NUMBER != 0 && is_one_of_these).then_some(seen)
    }

    /// A folio of these pages is about to leave its object: if the machine is being asked to write it, or may be yet, nobody asks for
    /// another write until that is over. Before the words are empty, so that who writes what is put there then finds this. Returns
    /// whether the caller has to end it, unless it finds the folio asked for. The caller holds `resize`.
    pub(super) fn begin_late_call(&self, id: ObjectId, pages: ObjectPages, head: Pfn) -> bool {
        // Its words have been marked for a grace period: no write begins any more.
        let may_be_asked_for = self.object_file(id).is_some() && self.frames.desc(head).state().is_being_written();
        if may_be_asked_for {
            let late = &self.object(id).late_calls;
            let is_first = late.nr() == 0;
            let first_page = if is_first { pages.start } else { late.first_page.get().min(pages.start) };
            let end_page = if is_first { pages.end } else { late.end_page.get().max(pages.end) };
            late.first_page.set(first_page);
            late.end_page.set(end_page);
            late.calls.fetch_add(1, Ordering::AcqRel);
        }
        may_be_asked_for
    }

    /// The call is over, or was not made.
    pub(super) fn end_late_call(&self, id: ObjectId) {
        let calls = &self.object(id).late_calls.calls;
        let mut seen = calls.load(Ordering::Relaxed);
        loop {
            let is_last = seen & NUMBER == 1;
            let ended = (seen - 1).wrapping_add(u64::from(is_last) << TIMES);
            match calls.compare_exchange(seen, ended, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        self.machine.unpark(calls);
    }

    /// Waits until the machine was once in no call for a folio that had left the object by now, or its old bytes could come after
    /// those of the folio that is there now.
    pub(super) fn wait_for_late_calls(&self, id: ObjectId) {
        self.wait_for_calls_since(id, self.object(id).late_calls.calls.load(Ordering::Acquire));
    }

    /// While there is one nobody claims another call, save who was about to: so there is none before long.
    pub(super) fn wait_for_calls_since(&self, id: ObjectId, before: u64) {
        let calls = &self.object(id).late_calls.calls;
        loop {
            let seen = calls.load(Ordering::Acquire);
            if seen & NUMBER == 0 || seen >> TIMES != before >> TIMES {
                return;
            }
            self.count(Event::Waited, 1);
            self.machine.park(calls, seen);
        }
    }

    /// The caller has zeroed a part of a folio of the object, and is in the section in which it found it, or owns its words: tells
    /// whether the machine is in its call for it, and may have taken the bytes before. Nobody waits for a write that goes on.
    pub(super) fn is_called_now(&self, id: ObjectId, page: u64, head: Pfn) -> Option<CalledFolio> {
        self.object_file(id)?;
        self.frames.desc(head).call_now().map(|call| CalledFolio { page, head, call })
    }

    /// Waits for the calls. Returns the pages that may have their old bytes in the storage, though no folio of the object is dirty for
    /// them: those that have left, or were missing.
    pub(crate) fn wait_for_calls(&self, id: ObjectId, awaited: AwaitedCalls) -> Range<u64> {
        let AwaitedCalls { earlier, mut taken_out, zeroed, gone } = awaited;
        while let Some(head) = taken_out.pop(&self.frames) {
            let desc = self.frames.desc(head);
            while let Some(call) = desc.state().call() {
                self.wait_for_folio(self.folio_waits.join_call(head, desc, call));
            }
            self.end_part_of_write(head, desc.end_await());
        }
        zeroed.into_iter().flatten().for_each(|called| self.wait_for_call(id, called));
        if let Some(before) = earlier {
            self.wait_for_calls_since(id, before);
        }
        gone.start.min(gone.end)..gone.end
    }

    /// Waits until the machine is not in that call for the folio, of which the caller has zeroed a part. A later one has the zeroes.
    pub(crate) fn wait_for_call(&self, id: ObjectId, called: CalledFolio) {
        loop {
            match self.look_at_call(id, called) {
                CallNow::Lasts(wait) => self.wait_for_folio(wait),
                CallNow::Unknown => self.machine.relax(),
                CallNow::IsOver => return,
                CallNow::IsLate => return self.wait_for_late_calls_of(id, called.page),
            }
        }
    }

    /// Waits for a call that writes a folio with the page, and with which a removal has taken it out. There is none if the call
    /// was over before the folio left, or moved.
    fn wait_for_late_calls_of(&self, id: ObjectId, page: u64) {
        if let Some(before) = self.late_calls_of(id, ObjectPages { start: page, end: page + 1 }) {
            self.wait_for_calls_since(id, before);
        }
    }

    fn look_at_call(&self, id: ObjectId, CalledFolio { page, head, call }: CalledFolio) -> CallNow {
        let look = |slot: PageSlot<'_>| match slot.page() {
            ObjectPage::Frame(frame) if frame.head() == head => {
                let desc = self.frames.desc(head);
                let lasts = desc.state().call() == Some(call);
                // The frame is no other folio's while the word names it, and while the call lasts, whose end wakes.
                if lasts { CallNow::Lasts(self.folio_waits.join_call(head, desc, call)) } else { CallNow::IsOver }
            }
            ObjectPage::Leaving(frame) if frame.head() == head => CallNow::Unknown,
            _ => CallNow::IsLate,
        };
        self.with_slot_of(id, page, look).unwrap_or(CallNow::IsLate)
    }
}
