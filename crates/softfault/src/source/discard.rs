//! Discard: the object's side of removing pages from a live object.
//!
//! ```text
//! bar      the word of each page is marked as leaving
//! ...      the caller: grace; wait for moves in progress; removal of every entry (`rmap/object.rs`)
//! free     the words are emptied; frames without pins are freed; a pinned frame
//!          becomes an orphan, which its last pin frees; so does one that is being written
//! ```
//! A folio of several pages leaves as a whole. If only some of its pages are discarded, all are
//! marked, and the folio is cut (`cut.rs`).
//!
//! Locks on entry: the object's `resize`, no section.

use super::cut::Folio;
use super::cut_nodes::CutNodes;
use super::late_calls::AwaitedCalls;
use super::object_slot::ObjectSlot;
use super::slot::{ObjectPage, PageSlot, level_of};
use crate::addr::{ObjectPages, Order, Pfn};
use crate::frame::{FreeBatch, TakenOut};
use crate::links::Links;
use crate::machine::Machine;
use crate::policy::folio::around;
use crate::space::vma::ObjectId;
use core::ops::{ControlFlow, Range};

/// Frames of folios that have left their object.
struct Freed<'a, 'vm, M: Machine> {
    /// Nothing holds them.
    batch: FreeBatch<'vm, M>,
    /// The machine is being asked to write folios that were taken out, or zeroed in part.
    awaited: &'a mut AwaitedCalls,
}

impl<M: Machine> Links<M> {
    /// Returns the first of these pages that is present, swapped out or poisoned.
    pub(crate) fn object_next_page(&self, id: ObjectId, pages: ObjectPages) -> Option<u64> {
        let mut found = None;
        let _ = self.for_each_page(id, pages, &mut |index, slot| {
            if slot.page() == ObjectPage::Absent {
                return ControlFlow::Continue(());
            }
            found = Some(index);
            ControlFlow::Break(())
        });
        found
    }

    /// Whether a folio of 1 GiB may contain the page, now or later. Not if there is a node in its place,
    /// since nodes stay.
    pub(crate) fn may_lie_in_large_folio(&self, id: ObjectId, page: u64) -> bool {
        let section = self.section();
        self.object_orders(id).most() > Order::PMD
            && match self.object_slot(section.inside(), id, page) {
                ObjectSlot::Page(slot) | ObjectSlot::Hole(slot) => slot.level >= level_of(Order::PUD),
                ObjectSlot::Low(_) => true,
            }
    }

    /// Marks the present pages, and the other pages of their folios. Returns `pages`, extended by the
    /// pages of folios that reach beyond it. Pages that are swapped out are removed at once. After the next
    /// grace period of all CPUs nobody starts to map, read or write one of them.
    pub(crate) fn object_bar(&self, id: ObjectId, pages: ObjectPages) -> ObjectPages {
        let mut all = pages;
        let least = self.object_orders(id).least();
        let mut cover = |folio: Range<u64>| {
            all = ObjectPages { start: all.start.min(folio.start), end: all.end.max(folio.end) };
        };
        let _ = self.for_each_page(id, pages, &mut |index, slot| {
            loop {
                match slot.page() {
                    ObjectPage::Frame(frame) | ObjectPage::Leaving(frame) => {
                        let folio = around(index, frame.order);
                        // Once, at its first page among these; a CPU that puts it in meanwhile stays out of it.
                        let is_first = index == folio.start.max(pages.start);
                        cover(folio);
                        if !is_first || slot.begin_to_leave(frame) {
                            break;
                        }
                        // The folio has moved, or has gone meanwhile; another one may be there, of another size.
                        self.machine.relax();
                    }
                    // Else it has come back meanwhile.
                    ObjectPage::Swapped(_) | ObjectPage::InTransit(_) if !self.drop_away(slot) => {}
                    // Those that failed with it may lie beyond the end.
                    ObjectPage::Poisoned => {
                        cover(around(index, least));
                        break;
                    }
                    // A page that is being put in comes after this.
                    _ => break,
                }
            }
            ControlFlow::Continue(())
        });
        all
    }

    /// Waits for moves of these pages, which are marked, so that no new move begins. A mover waits for
    /// sections, shootdowns, `Busy` entries and subscribers.
    pub(crate) fn wait_for_moves(&self, id: ObjectId, pages: ObjectPages) {
        let _ = self.for_each_page(id, pages, &mut |_, slot| {
            while slot.is_moving() {
                self.machine.relax();
            }
            ControlFlow::Continue(())
        });
    }

    /// Whether an entry may map one of these pages. Exact for marked pages, after the grace period.
    pub(crate) fn object_was_mapped(&self, id: ObjectId, pages: ObjectPages) -> bool {
        let was_mapped = |slot: PageSlot<'_>| match slot.page() {
            ObjectPage::Absent | ObjectPage::Filling | ObjectPage::Poisoned => false,
            ObjectPage::Swapped(_) | ObjectPage::InTransit(_) => false,
            ObjectPage::Frame(frame) | ObjectPage::Leaving(frame) => {
                self.frames.desc(frame.head()).state().was_mapped()
            }
        };
        let walked = self.for_each_page(id, pages, &mut |_, slot| {
            if was_mapped(slot) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        walked.is_break()
    }

    /// Removes the marked pages, which no entry maps any more. Pages of `barred` that are not among
    /// `pages` stay (`cut.rs`). Adds the calls to `awaited` in which the machine is for one of them.
    pub(crate) fn object_free(
        &self,
        id: ObjectId,
        pages: ObjectPages,
        barred: ObjectPages,
        nodes: &mut CutNodes<'_, M>,
        awaited: &mut AwaitedCalls,
    ) {
        let mut freed = Freed { batch: FreeBatch::new(self), awaited };
        let (least, nr_pages) = (self.object_orders(id).least(), self.object_nr_pages(id));
        let _ = self.for_each_page(id, barred, &mut |index, slot| {
            match slot.page() {
                // All that failed together or none, so that what is missing has the least size.
                ObjectPage::Poisoned => {
                    let failed = around(index, least);
                    let all_go = pages.start <= failed.start && failed.end.min(nr_pages) <= pages.end;
                    if all_go { slot.heal() } else { slot.stay_poisoned() }
                }
                // A page that came after the others were barred may be moving now.
                ObjectPage::Leaving(frame) if slot.is_leaving() && frame.head() == frame.pfn => {
                    debug_assert!(!slot.is_moving(), "I22: moves have ended");
                    self.free_folio(Folio { id, first: index, slot, frame }, pages, nodes, &mut freed);
                }
                _ => {}
            }
            ControlFlow::Continue(())
        });
    }

    fn free_folio(
        &self,
        folio: Folio<'_>,
        pages: ObjectPages,
        nodes: &mut CutNodes<'_, M>,
        freed: &mut Freed<'_, '_, M>,
    ) {
        let Folio { id, first, slot, frame } = folio;
        let nr_pages = frame.order.nr_pages();
        if pages.start > first || first + nr_pages > pages.end {
            return freed.awaited.add_cut(first..first + nr_pages, self.cut(&folio, pages, nodes));
        }
        // A page of a pool goes back before its place is empty: a fault that finds the place empty may want it.
        let is_of_pool = self.object_pool(folio.id).is_some();
        let may_be_late = self.begin_late_call(id, ObjectPages { start: first, end: first + nr_pages }, frame.pfn);
        if !is_of_pool {
            slot.empty_all(frame.order);
        }
        let taken = self.take_out(id, frame.pfn, freed.awaited);
        debug_assert!(may_be_late || taken != TakenOut::Asked, "I56: no write begins of what is marked");
        if may_be_late && taken != TakenOut::Asked {
            self.end_late_call(id);
        }
        if taken == TakenOut::Ours {
            if frame.order == Order::BASE { freed.batch.add(frame.pfn) } else { self.give_back_page(frame.pfn) }
        }
        if is_of_pool {
            slot.empty_all(frame.order);
        }
    }

    /// Makes a folio that no word names an orphan.
    fn take_out(&self, id: ObjectId, head: Pfn, awaited: &mut AwaitedCalls) -> TakenOut {
        let desc = self.frames.desc(head);
        if self.object_file(id).is_none() {
            return if desc.orphan() { TakenOut::Ours } else { TakenOut::Held };
        }
        let taken = desc.take_out_of_file();
        if taken != TakenOut::Ours {
            // A waiter for a write of the folio, which may never end, does not want it any more.
            self.folio_waits.wake_now(head, &self.machine);
        }
        if taken == TakenOut::Asked {
            awaited.add_taken_out(self, head);
        }
        taken
    }
}
