//! Changes of the word of a page that is swapped out or in.
//!
//! | change | by | from |
//! | --- | --- | --- |
//! | in transit | the CPU that swaps it out and has marked it | MOVING, without LEAVING |
//! | in transit | a CPU that needs the page, in a section, with a frame | swapped |
//! | swapped, or a frame | the CPU that put it in transit | in transit |
//! | fewer bytes kept | a new size, under `resize` | swapped |
//! | nothing | `discard`, under `resize` | either |
//!
//! A page in transit has a locked folio (`frame/folio_lock.rs`), and faults wait for the lock. A
//! remover does not wait: the CPU that put the page in transit finds the word changed at the end, and
//! frees frame and slot. So the word owns the slot's one entry (I48) while the page is swapped out,
//! and that CPU owns it during transit.
//!
//! All changes are compare-and-swaps from the word that was seen. ABA is harmless: only the owner
//! of a frame can write its in-transit word again, and a swapped-out word means the same whenever
//! it returns.
//!
//! Locks on entry: see the table.

use super::slot::{LostFill, MOVING, PageFrame, PageSlot};
use super::swapped::{Dropped, SWAPPED, Swapped, TRANSIT};
use crate::addr::{Order, Pfn};
use crate::frame::Io;
use crate::sync::Ordering;

fn frame_word(pfn: Pfn) -> u64 {
    PageFrame { pfn, order: Order::BASE }.to_word()
}

impl PageSlot<'_> {
    fn change(self, from: u64, to: u64) -> bool {
        self.word().compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Begins to swap in: puts the page in transit. The caller owns the frame alone and has set its
    /// descriptor.
    pub(super) fn begin_read(self, from: Swapped, pfn: Pfn) -> Result<(), LostFill> {
        if self.change(from.to_word(), from.in_transit(pfn)) { Ok(()) } else { Err(LostFill) }
    }

    /// Ends a swap-in. Returns `false` if the page was removed from the object meanwhile.
    pub(super) fn end_read(self, from: Swapped, pfn: Pfn, io: Io) -> bool {
        self.change(from.in_transit(pfn), if io == Io::Done { frame_word(pfn) } else { from.to_word() })
    }

    /// Begins to swap out: puts the page in transit. The caller has marked it as moving. Returns `false`
    /// if the page is leaving the object; then nothing has changed.
    pub(super) fn begin_write(self, pfn: Pfn, to: Swapped) -> bool {
        self.change(frame_word(pfn) | MOVING, to.in_transit(pfn))
    }

    /// Ends a swap-out. Returns `false` if the page was removed from the object meanwhile.
    pub(super) fn end_write(self, to: Swapped, pfn: Pfn, io: Io) -> bool {
        self.change(to.in_transit(pfn), if io == Io::Done { to.to_word() } else { frame_word(pfn) })
    }

    /// Reduces the number of kept bytes to at most `nr_kept`. Returns `false` if the word has changed.
    pub(super) fn keep_at_most(self, seen: Swapped, nr_kept: u64) -> bool {
        let less = Swapped { nr_kept: seen.nr_kept.min(nr_kept), ..seen };
        less == seen || self.change(seen.to_word(), less.to_word())
    }

    /// Removes the page from the object if it is swapped out or in transit.
    pub(super) fn drop_away(self) -> Dropped {
        loop {
            let seen = self.word().load(Ordering::Acquire);
            if seen & (SWAPPED | TRANSIT) == 0 {
                return Dropped::NotAway;
            }
            if seen & TRANSIT != 0 {
                return self.drop_in_transit(seen);
            }
            if self.change(seen, 0) {
                return Dropped::Slot(Swapped::of_word(seen).slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{PAGE_SIZE, SwapSlot};
    use crate::source::slot::ObjectPage;
    use crate::sync::Word;

    fn with_word(word: u64, test: impl Fn(PageSlot<'_>)) {
        let node: [Word; 512] = core::array::from_fn(|_| Word::new(word));
        test(PageSlot::new(&node, 0, 3));
    }

    #[test]
    fn a_word_has_slot_and_length() {
        for (slot, nr_kept) in [(0, 0), (0, PAGE_SIZE), (u32::MAX, 1), (u32::MAX, PAGE_SIZE)] {
            let (pfn, swapped) = (Pfn(u32::MAX), Swapped { slot: SwapSlot(slot), nr_kept });
            with_word(swapped.to_word(), |at| {
                assert_eq!(at.page(), ObjectPage::Swapped(swapped));
                assert!(at.begin_read(swapped, pfn).is_ok() && at.begin_read(swapped, pfn).is_err());
                assert_eq!(at.page(), ObjectPage::InTransit(pfn));
                assert!(!at.end_read(swapped, Pfn(1), Io::Done) && at.end_read(swapped, pfn, Io::Failed));
                assert_eq!(at.page(), ObjectPage::Swapped(swapped));
            });
        }
    }

    #[test]
    fn a_length_only_shrinks() {
        let swapped = Swapped::whole(SwapSlot(9));
        let shorter = Swapped { nr_kept: 100, ..swapped };
        with_word(swapped.to_word(), |at| {
            assert!(at.keep_at_most(swapped, 100) && at.keep_at_most(shorter, 200) && !at.keep_at_most(swapped, 50));
            assert_eq!(at.page(), ObjectPage::Swapped(shorter));
        });
    }

    #[test]
    fn what_is_about_to_leave_is_not_written() {
        let (pfn, to) = (Pfn(7), Swapped::whole(SwapSlot(1)));
        with_word(frame_word(pfn) | MOVING, |at| {
            let frame = PageFrame { pfn, order: Order::BASE };
            assert!(at.begin_to_leave(frame));
            assert!(!at.begin_write(pfn, to));
            at.end_move(PageFrame { pfn, order: Order::BASE });
            assert!(matches!(at.page(), ObjectPage::Leaving(_)));
        });
        with_word(frame_word(pfn) | MOVING, |at| {
            assert!(at.begin_write(pfn, to) && matches!(at.drop_away(), Dropped::InTransit(_)));
            assert!(!at.end_write(to, pfn, Io::Done) && at.page() == ObjectPage::Absent);
        });
    }
}
