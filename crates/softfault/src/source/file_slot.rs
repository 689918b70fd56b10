//! Words of pages that are being read from a file.
//!
//! ```text
//! in transit  frame + 1  0..33 | order of its folio 34..39 | TRANSIT 58
//! ```
//!
//! | change | by | from |
//! | --- | --- | --- |
//! | FILLING | a fault or a writer, in a section | nothing, all pages of the folio, the lowest first |
//! | in transit | the same, in the same section: the lowest last | FILLING |
//! | a frame | the CPU that has read the folio, in a section: the lowest first | in transit |
//! | FILLING of the lowest, then nothing | the same, if that has failed: between the two it notes the failure | in transit |
//! | in transit | the embedder who takes a folio out of an explicit object and has marked it: the lowest last | MOVING, the first without LEAVING |
//! | nothing | `discard`, under `resize`, and a new size: all pages, the lowest first | in transit |
//! | nothing | the CPU that has marked a clean folio as moving: all pages, the lowest first | MOVING, the first without LEAVING |
//!
//! The word of the folio's first page decides: reader and remover both change it by compare-and-swap, and the one that
//! succeeds changes the others by plain stores. If some of its pages leave the object, the whole folio does: it is
//! still in the file. The reader frees the frames, after no word names them.
//!
//! Locks on entry: see the table.

use super::node::FILLING;
use super::slot::{LostFill, MOVING, PageFrame, PageSlot};
use super::swapped::{Dropped, Swapped, TRANSIT};
use crate::frame::Io;
use crate::sync::{Ordering, Word};

fn in_transit(head: PageFrame, i: usize) -> u64 {
    head.next(i).to_word() | TRANSIT
}

fn change(word: &Word, from: u64, to: u64) -> bool {
    word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

impl PageSlot<'_> {
    /// Claims the places of a folio around the page that is going to be read, and puts it there. Its head has a
    /// descriptor by then that says so: `assign` gives it one, between the two.
    pub(super) fn begin_fill(self, head: PageFrame, assign: impl FnOnce()) -> Result<(), LostFill> {
        self.claim(head.order)?;
        assign();
        // The lowest last: a CPU that finds it takes the folio out, with words that nobody writes afterwards.
        for (i, word) in self.group(head.order).iter().enumerate().rev() {
            word.store(in_transit(head, i), Ordering::Release);
        }
        Ok(())
    }

    /// Ends a read: the folio is there, or missing; then `note` is called before anybody finds it so. `false` if it was taken out
    /// of the object meanwhile.
    pub(super) fn end_fill(self, head: PageFrame, io: Io, note: impl FnOnce()) -> bool {
        let to = |i| if io == Io::Done { head.next(i).to_word() } else { 0 };
        let Some((first, others)) = self.group(head.order).split_first() else { return false };
        let decided = if io == Io::Done { to(0) } else { FILLING };
        if !change(first, in_transit(head, 0), decided) {
            return false;
        }
        if io == Io::Failed {
            note();
            first.store(0, Ordering::Release);
        }
        others.iter().enumerate().for_each(|(i, word)| word.store(to(i + 1), Ordering::Release));
        true
    }

    /// Whether a word still names the folio. If not, it was taken out, and the CPU that does that is about to empty all words.
    pub(super) fn is_being_dropped(self, head: PageFrame) -> bool {
        let group = self.group(head.order);
        group.iter().enumerate().any(|(i, word)| word.load(Ordering::Acquire) == in_transit(head, i))
    }

    /// Makes the folio, which the caller has marked as moving, missing. `false` if `discard` has marked its first page: then
    /// nothing has changed.
    pub(super) fn end_dropped(self, head: PageFrame) -> bool {
        let Some((first, others)) = self.group(head.order).split_first() else { return false };
        if !change(first, head.to_word() | MOVING, 0) {
            return false;
        }
        others.iter().for_each(|word| word.store(0, Ordering::Release));
        true
    }

    /// Puts the folio, which the caller has marked as moving, in transit. `false` if another CPU is about to take it out:
    /// then it is still marked.
    pub(super) fn begin_to_evict(self, head: PageFrame) -> bool {
        let Some((first, others)) = self.group(head.order).split_first() else { return false };
        let marked = |i: usize| head.next(i).to_word() | MOVING;
        // The lowest last, as in `begin_fill`. A CPU that marks the folio as leaving begins there.
        let changed = others.iter().zip(1..).take_while(|(word, i)| change(word, marked(*i), in_transit(head, *i)));
        if changed.count() == others.len() && change(first, marked(0), in_transit(head, 0)) {
            return true;
        }
        for (word, i) in others.iter().zip(1..) {
            let _is_leaving = change(word, in_transit(head, i), marked(i));
        }
        false
    }

    /// Takes the folio out if the page is being read from a file, and not in transit to or from the swap area, as those of
    /// explicit objects may be: of such pages some bytes are kept.
    pub(super) fn drop_fill(self) -> Option<Dropped> {
        let seen = self.word().load(Ordering::Acquire);
        (seen & TRANSIT != 0 && Swapped::of_word(seen).nr_kept == 0).then(|| self.drop_in_transit(seen))
    }

    /// Takes a page in transit out, and its folio.
    pub(super) fn drop_in_transit(self, seen: u64) -> Dropped {
        let Some(frame) = PageFrame::of_word(seen) else { return Dropped::NotAway };
        let group = self.group(frame.order);
        let nr_before = group.iter().position(|word| core::ptr::eq(word, self.word())).unwrap_or(0);
        let Some((first, others)) = group.split_first() else { return Dropped::Arriving };
        // The frames are adjacent.
        if !change(first, seen - nr_before as u64, 0) {
            return Dropped::Arriving;
        }
        others.iter().for_each(|word| word.store(0, Ordering::Release));
        Dropped::InTransit(frame.head())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{Order, Pfn};
    use crate::source::slot::ObjectPage;

    /// A folio that is marked as leaving in part, or as a whole, does not change; then the mark stays.
    #[test]
    fn what_is_about_to_leave_is_not_taken_out() {
        let node: [Word; 512] = core::array::from_fn(|_| Word::new(0));
        for (order, nr_leaving) in [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)] {
            let (slot, head) = (PageSlot::new(&node, 0, 2), PageFrame { pfn: Pfn(8), order: Order(order) });
            slot.put(head.pfn, head.order);
            assert!(slot.begin_to_move(head));
            // A remover marks the lowest first.
            if nr_leaving == 2 {
                assert!(slot.begin_to_leave(head));
            } else if nr_leaving == 1 {
                slot.mark_as_leaving();
            }
            let before = [2, 3].map(|i| node[i].load(Ordering::Relaxed));
            assert_eq!(slot.begin_to_evict(head), nr_leaving == 0);
            if nr_leaving == 0 {
                assert_eq!(slot.page(), ObjectPage::InTransit(head.pfn));
            } else {
                assert_eq!([2, 3].map(|i| node[i].load(Ordering::Relaxed)), before);
            }
            slot.empty_all(Order(1));
        }
    }
}
