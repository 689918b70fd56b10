//! The pages of an object that were touched since a mark: a recorded working set.
//!
//! ```text
//! mark     entries of all mappings are removed; their accessed bits go to the folios' state ─▶ TOUCHED is cleared
//! touch    a fault, or the handle ─▶ TOUCHED; an access through an entry ─▶ its accessed bit
//! report   entries are removed once more ─▶ the folios that have TOUCHED
//! ```
//! A fault sets TOUCHED where it sets REFERENCED, in one step, so a recording costs faults nothing but the entries that they make again.
//! Reclaim clears REFERENCED when it looks for unused pages, and leaves TOUCHED alone.
//!
//! **No touch is lost.** A fault sets TOUCHED before it makes its entry, in the section in which it found the page; the
//! entry is accessed. One that comes between the removal and the clearing of TOUCHED leaves its entry, from which the report takes the
//! accessed bit. The state of a folio is cleared in a section in which its object's word names it, so it is not another folio's.
//! A CPU that clears the accessed bit of an entry that stays sets TOUCHED before, in a section in which the entry was there.
//!
//! Locks on entry: none, no section. Takes the locks of the object's shards.

use crate::addr::ObjectPages;
use crate::frame::FrameDesc;
use crate::machine::Machine;
use crate::notify::notice::Why;
use crate::policy::folio::around;
use crate::section::InSection;
use crate::source::handle::SharedObject;
use crate::source::slot::{ObjectPage, PageFrame, PageSlot};
use crate::space::AddressSpace;
use crate::table::entry::{Changed, Seen, Slot};
use crate::table::format::{Entry, Format};
use core::ops::{ControlFlow, Range};

/// Pages whose entries are removed together.
const PAGES_AT_ONCE: u64 = 512;

impl<M: Machine> SharedObject<'_, M> {
    /// Forgets which pages were touched, so that [`touched`](Self::touched) reports those that are touched from now on.
    /// Removes all entries of the pages: each mapping of a page costs one more fault. Accesses that run beside this call count as
    /// before it or after it.
    ///
    /// Subscribers of spaces that map the pages are told, so the caller must hold no lock that is
    /// taken in [`Machine::notify`].
    pub fn mark_untouched(&self) {
        self.vm.call();
        self.for_each_unmapped(ObjectPages::ALL, &FrameDesc::forget_touch, &mut |_, _, ()| ());
    }

    /// Calls `f` with the pages, of these, that were touched since the last [mark](Self::mark_untouched), or since they
    /// came to the object if there was none: by programs, reads and writes of the handle, and faults of pins. Folios count as a whole. Pages that are not
    /// in memory any more are not reported, nor are later accesses through a pin that was there at the mark.
    ///
    /// Runs come in order. For locks and faults see [`mark_untouched`](Self::mark_untouched). Where the hardware does not mark entries, neighbours
    /// that a fault has mapped count as touched.
    pub fn touched(&self, pages: impl Into<ObjectPages>, f: &mut dyn FnMut(Range<u64>)) {
        self.vm.call();
        let pages = pages.into().below(self.vm.object_nr_pages(self.id));
        let mut run = ObjectPages { start: pages.start, end: pages.start };
        self.for_each_unmapped(pages, &|desc| desc.state().was_touched(), &mut |index, frame, was_touched| {
            let folio = around(index, frame.order);
            let (start, end) = (folio.start.max(pages.start), folio.end.min(pages.end));
            if !was_touched || start < run.end {
                return;
            }
            if start != run.end {
                report(run, f);
                run.start = start;
            }
            run.end = end;
        });
        report(run, f);
    }

    /// Removes the entries of the pages that are in memory, asks the state of each in a section, and calls `f` outside with the page, its frame and the
    /// answer. Of a folio that is one word only the first page is visited. Pages that are about to leave are waited for.
    fn for_each_unmapped<T>(
        &self,
        mut rest: ObjectPages,
        ask: &dyn Fn(&FrameDesc) -> T,
        f: &mut dyn FnMut(u64, PageFrame, T),
    ) {
        let vm = self.vm;
        vm.assert_outside();
        while let Some(first) = vm.object_next_page(self.id, rest) {
            // A folio of 1 GiB has one entry in a mapping: it is removed once.
            let end =
                vm.end_of_folios(self.id, (first / PAGES_AT_ONCE + 1).saturating_mul(PAGES_AT_ONCE)).min(rest.end);
            let part = ObjectPages { start: first, end };
            // A fault that comes after this look comes after the mark.
            if vm.object_was_mapped(self.id, part) {
                // A page of a pool loses its one entry, of which subscribers are told as a whole.
                let least = vm.object_orders(self.id).least().nr_pages();
                let whole = ObjectPages { start: first / least * least, end: end.next_multiple_of(least) };
                vm.unmap_object_pages(self.id, whole, Why::Discard);
            }
            let _ = vm.for_each_page(self.id, part, &mut |index, slot| {
                let answer = loop {
                    match self.ask_state(slot, ask) {
                        State::Moving => vm.machine.relax(),
                        State::There(frame, answer) => break Some((frame, answer)),
                        State::Away => break None,
                    }
                };
                if let Some((frame, answer)) = answer {
                    f(index, frame, answer);
                }
                ControlFlow::Continue(())
            });
            rest.start = end;
        }
    }

    /// Asks in a section in which the word names the page's folio, so that the descriptor is its.
    fn ask_state<T>(&self, slot: PageSlot<'_>, ask: &dyn Fn(&FrameDesc) -> T) -> State<T> {
        let _section = self.vm.section();
        match slot.page() {
            ObjectPage::Frame(frame) => State::There(frame, ask(self.vm.frames.desc(frame.head()))),
            ObjectPage::Leaving(_) => State::Moving,
            _ => State::Away,
        }
    }
}

impl<M: Machine> AddressSpace<'_, M> {
    /// Clears the accessed bit of an entry that stays. Its frame's state has the touch before.
    ///
    /// # Errors
    ///
    /// The entry has changed: nothing was cleared.
    pub(crate) fn forget_accessed(
        &self,
        inside: InSection<'_>,
        slot: Slot<'_, impl Format>,
        seen: Seen,
    ) -> Result<(), Changed> {
        self.vm.assert_inside(inside);
        if !slot.is_still(seen) {
            return Err(Changed);
        }
        // Until the section ends the frame is that of the entry.
        if let Entry::Leaf(leaf) = seen.entry {
            self.vm.frames.head_desc(leaf.pfn).note_accessed();
        }
        slot.clear_accessed(seen)
    }
}

/// State of a page, by its word.
enum State<T> {
    There(PageFrame, T),
    Away,
    /// It is about to leave, or to move.
    Moving,
}

fn report(run: ObjectPages, f: &mut dyn FnMut(Range<u64>)) {
    if run.start < run.end {
        f(run.start..run.end);
    }
}
