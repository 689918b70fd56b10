//! The word of a page in its object: its frame and its state. A folio of 2 MiB is one word, in the
//! node above those of pages.
//!
//! ```text
//! OptPfn     0..33 | order of its folio 34..39 | RESERVED 57 | POISONED 59 | FILLING 60 | MOVING 61 | LEAVING 63
//! ```
//! With SWAPPED 62 the page is swapped out, with TRANSIT 58 it is in transit: see `swapped.rs` and
//! `swapped_slot.rs`, for files `file_slot.rs`; with RESERVED it is missing: `reserved_slot.rs`.
//!
//! | change | by | from |
//! | --- | --- | --- |
//! | FILLING | a fault or a writer, in a section | nothing, all pages of the folio, the lowest first |
//! | frame and order | the same, the lowest first | FILLING, or nothing if the folio is one page |
//! | LEAVING | `discard`, under `resize`: all pages of a folio | a frame |
//! | MOVING | a mover: all pages of a folio, the lowest first, or none | a frame |
//! | another frame, or the old one | the mover: all pages, the lowest last | MOVING |
//! | POISONED, and nothing else | a mover whose page has failed: all pages of the object's least size | MOVING |
//! | nothing | the same, of a clean folio of a file | MOVING |
//! | a frame and a smaller order | the same: the other pages of the folio | MOVING |
//! | nothing | `discard`, under `resize` | POISONED |
//!
//! A node of level 0 has words of pages, one of level 1 a word for each 512 of them. The words of a
//! folio below 2 MiB lie in one node of level 0, since it is aligned and smaller than that. One of
//! 2 MiB is a word of level 1, which has its first frame. Of a word above level 0:
//!
//! | word | is |
//! | --- | --- |
//! | 0 | nothing below |
//! | frame, order 0, no mark but those of `node.rs` | a node: for the rest of the object's life, but for nothing else |
//! | frame, the order of the level | a folio |
//! | FILLING | a folio that a CPU is about to put in |
//!
//! So a node and a folio are both installed by compare-and-swap from 0, and one of them wins. A
//! folio is replaced by a node where it is cut (`cut.rs`).
//!
//! Locks on entry: see the table. Reading a word to use its frame needs a section.

use super::node::{FILLING, Node, ORDER_SHIFT, ZeroMeans};
use super::swapped::{SWAPPED, Swapped, TRANSIT};
use crate::addr::{OptPfn, Order, Pfn};
use crate::sync::{Ordering, Word};
use core::ops::Range;

const ORDER_MASK: u64 = 31;
/// The memory of the page failed. It has no frame, and gets none until it has left the object.
const POISONED: u64 = 1 << 59;
/// The page is leaving the object. The slot has its frame until no entry maps it. Nobody starts to map,
/// read or write it. Set and cleared under `resize`.
const LEAVING: u64 = 1 << 63;
/// The page is moving to another frame. Set only if neither flag is set, and cleared by the CPU
/// that set it.
pub(super) const MOVING: u64 = 1 << 61;

/// The frame of a page, and the size of the folio that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageFrame {
    pub(crate) pfn: Pfn,
    pub(crate) order: Order,
}

impl PageFrame {
    /// The head of its folio.
    #[inline(always)]
    pub(crate) fn head(self) -> Pfn {
        Pfn(self.pfn.0 & !(self.order.nr_pages() as u32 - 1))
    }
    /// Returns the page that is `by` pages behind it in the same folio.
    pub(super) fn next(self, by: usize) -> PageFrame {
        PageFrame { pfn: Pfn(self.pfn.0 + by as u32), ..self }
    }
    pub(super) fn to_word(self) -> u64 {
        OptPfn::some(self.pfn).to_word() | u64::from(self.order.0) << ORDER_SHIFT
    }
    pub(super) fn of_word(word: u64) -> Option<PageFrame> {
        let pfn = OptPfn::from_word(word & ((1 << ORDER_SHIFT) - 1)).get()?;
        Some(PageFrame { pfn, order: Order((word >> ORDER_SHIFT & ORDER_MASK) as u8) })
    }
}

/// The state of a page, decoded from its word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ObjectPage {
    Absent,
    /// Its memory failed: there is nothing to map, read or write until it has left the object.
    Poisoned,
    /// A page is being filled in. Wait with nothing held, and start over.
    Filling,
    /// Its frame, which stays the page's until the section ends.
    Frame(PageFrame),
    /// The page is leaving the object, or moving. Wait with nothing held, and start over.
    Leaving(PageFrame),
    /// It is in the swap area. A fault swaps it in.
    Swapped(Swapped),
    /// It is in transit; its folio, of which this is the head, is locked until that is over. Wait with
    /// nothing held, and start over.
    InTransit(Pfn),
}

impl ObjectPage {
    /// Whether it is swapped out or in transit.
    pub(crate) fn is_away(self) -> bool {
        matches!(self, ObjectPage::Swapped(_) | ObjectPage::InTransit(_))
    }
}

/// Another CPU was first. The caller still owns the frame, which is zero.
pub(crate) struct LostFill;

/// log2 of the words in a node.
pub(super) const INDEX_BITS: u32 = 9;

/// The level of the word of a folio.
pub(super) fn level_of(order: Order) -> u32 {
    u32::from(order.0) / INDEX_BITS
}

/// A word of 0 is a reserved page in the node: see `node.rs`. Above all sub-pages, in bits that a frame's number has not.
const ZERO_IS_RESERVED: u64 = 1 << 63;

/// The word of a page, in its node.
#[derive(Clone, Copy)]
pub(crate) struct PageSlot<'a> {
    node: &'a [Word; 512],
    i: usize,
    /// Of the node: each word stands for 512^level pages.
    pub(super) level: u32,
    /// Which of these pages it is, and [`ZERO_IS_RESERVED`]: a fault-around copies the slot for each page, so there is no field
    /// for what only pages of a pool have.
    sub_page: u64,
}

impl<'a> PageSlot<'a> {
    /// The word of page `index` in a node of that level.
    #[inline(always)]
    pub(super) fn new(node: &'a [Word; 512], level: u32, index: u64) -> PageSlot<'a> {
        let shift = INDEX_BITS * level;
        PageSlot { node, i: (index >> shift) as usize & 511, level, sub_page: index & ((1 << shift) - 1) }
    }

    /// The same in a node of which the word above says this.
    #[inline(always)]
    pub(super) fn with(self, zero: ZeroMeans) -> PageSlot<'a> {
        let flag = if zero == ZeroMeans::Reserved { ZERO_IS_RESERVED } else { 0 };
        PageSlot { sub_page: self.sub_page | flag, ..self }
    }

    /// The word of this page as it is stored, if `word` is what it should say, and the other way round.
    #[inline(always)]
    pub(super) fn translate(self, word: u64) -> u64 {
        let is_reserved = self.sub_page & ZERO_IS_RESERVED != 0;
        if is_reserved { ZeroMeans::Reserved } else { ZeroMeans::Nothing }.translate(word)
    }

    #[inline(always)]
    pub(super) fn word(self) -> &'a Word {
        &self.node[self.i]
    }

    /// Number of pages from this one on that its word stands for.
    pub(crate) fn nr_pages(self) -> u64 {
        (1 << (INDEX_BITS * self.level)) - (self.sub_page & !ZERO_IS_RESERVED)
    }

    /// The words of the aligned pages of that order around it: one of a folio of 2 MiB.
    pub(super) fn group(self, order: Order) -> &'a [Word] {
        if self.level > 0 {
            return core::slice::from_ref(self.word());
        }
        let nr = order.nr_pages() as usize;
        let first = self.i & !(nr - 1);
        &self.node[first..first + nr]
    }

    /// Returns its frame, given the frame in the word: above level 0 that is the folio's first.
    #[inline(always)]
    fn frame_of(self, head: PageFrame) -> PageFrame {
        PageFrame { pfn: Pfn(head.pfn.0 + self.sub_page as u32), ..head }
    }

    #[inline]
    pub(crate) fn page(self) -> ObjectPage {
        let word = self.word().load(Ordering::Acquire);
        match PageFrame::of_word(word) {
            None if word & FILLING != 0 => ObjectPage::Filling,
            None if word & POISONED != 0 => ObjectPage::Poisoned,
            None => ObjectPage::Absent,
            // A node has replaced the folio that the caller saw: start over.
            Some(frame) if self.level > 0 && frame.order == Order::BASE => ObjectPage::Filling,
            Some(head) if word & (LEAVING | MOVING | SWAPPED | TRANSIT) == 0 => ObjectPage::Frame(self.frame_of(head)),
            Some(_) if word & SWAPPED != 0 => ObjectPage::Swapped(Swapped::of_word(word)),
            Some(frame) if word & TRANSIT != 0 => ObjectPage::InTransit(frame.head()),
            Some(head) => ObjectPage::Leaving(self.frame_of(head)),
        }
    }

    /// Whether some pages of its node, which is of level 0, are missing. Advisory. The page's number is
    /// `index`.
    pub(super) fn are_missing(self, index: u64, pages: Range<u64>) -> bool {
        let first = index - self.i as u64;
        let words = &self.node[(pages.start - first) as usize..(pages.end - first) as usize];
        words.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Fills in a page of one frame.
    pub(super) fn fill(self, pfn: Pfn) -> Result<(), LostFill> {
        let frame = PageFrame { pfn, order: Order::BASE };
        let done = self.word().compare_exchange(0, frame.to_word(), Ordering::AcqRel, Ordering::Acquire);
        done.map(|_| ()).map_err(|_| LostFill)
    }

    /// Claims the places of a folio, all or none. The lowest comes first, so of two overlapping
    /// claims one succeeds.
    pub(super) fn claim(self, order: Order) -> Result<(), LostFill> {
        let group = self.group(order);
        for (i, word) in group.iter().enumerate() {
            if word.compare_exchange(0, FILLING, Ordering::AcqRel, Ordering::Acquire).is_err() {
                group[..i].iter().for_each(|word| word.store(0, Ordering::Release));
                return Err(LostFill);
            }
        }
        Ok(())
    }

    /// Fills a folio into places that the caller has claimed, or that are not published yet.
    pub(super) fn put(self, first: Pfn, order: Order) {
        for (i, word) in self.group(order).iter().enumerate() {
            let frame = PageFrame { pfn: first, order };
            word.store(frame.next(i).to_word(), Ordering::Release);
        }
    }

    /// Marks all pages of the folio as leaving, or none. `frame` is that of the page. Only one CPU at a time does this for an
    /// object. The page may be moving: see [`is_moving`](Self::is_moving). Returns `false` if the words are not all of that
    /// folio: it is being put in, or is not there any more. Look again.
    pub(super) fn begin_to_leave(self, frame: PageFrame) -> bool {
        let (group, head) = (self.group(frame.order), PageFrame { pfn: frame.head(), ..frame });
        for (i, word) in group.iter().enumerate() {
            loop {
                let seen = word.load(Ordering::Acquire);
                if seen & !(LEAVING | MOVING) != head.next(i).to_word() {
                    group[..i].iter().for_each(|word| _ = word.fetch_and(!LEAVING, Ordering::Release));
                    return false;
                }
                if word.compare_exchange(seen, seen | LEAVING, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    break;
                }
            }
        }
        true
    }

    /// Marks this page alone, as a remover does first.
    #[cfg(test)]
    pub(super) fn mark_as_leaving(self) {
        self.word().fetch_or(LEAVING, Ordering::Relaxed);
    }

    /// Empties the slots of the folio. A later fill acquires this.
    pub(super) fn empty_all(self, order: Order) {
        self.group(order).iter().for_each(|word| word.store(self.translate(0), Ordering::Release));
    }

    /// The word of another page of the same 512: it is in the same node, and above level 0 the same word.
    pub(super) fn beside(self, index: u64) -> PageSlot<'a> {
        if self.level == 0 {
            return PageSlot { i: index as usize & 511, ..self };
        }
        let sub_page = index & ((1 << (INDEX_BITS * self.level)) - 1);
        PageSlot { sub_page: sub_page | self.sub_page & ZERO_IS_RESERVED, ..self }
    }

    /// Installs a node in an empty place.
    pub(super) fn fill_node(self, node: Pfn) -> Result<(), LostFill> {
        let named = Node::plain(node).to_word();
        self.word().compare_exchange(0, named, Ordering::AcqRel, Ordering::Acquire).map(|_| ()).map_err(|_| LostFill)
    }

    /// Replaces a folio that the caller has cut by a node. Readers of the node acquire its words.
    pub(super) fn put_node(self, node: Pfn) {
        self.word().store(Node::plain(node).to_word(), Ordering::Release);
    }

    /// Whether the page is leaving the object.
    pub(super) fn is_leaving(self) -> bool {
        self.word().load(Ordering::Acquire) & LEAVING != 0
    }

    /// Whether the page is being moved. A page that is leaving and not moving keeps its frame until it
    /// is removed.
    pub(super) fn is_moving(self) -> bool {
        self.word().load(Ordering::Acquire) & MOVING != 0
    }

    /// Marks all pages of the folio with that head as moving, or none: only if they have these frames and
    /// no other mark. The lowest comes first, so that one of two movers gives up at once.
    pub(super) fn begin_to_move(self, head: PageFrame) -> bool {
        if self.level != level_of(head.order) {
            return false;
        }
        let group = self.group(head.order);
        for (i, word) in group.iter().enumerate() {
            let from = head.next(i).to_word();
            if word.compare_exchange(from, from | MOVING, Ordering::AcqRel, Ordering::Acquire).is_err() {
                end_moves(&group[..i], head);
                return false;
            }
        }
        true
    }

    /// Ends a move: stores the old or new frames of the pages that the caller has marked. A page that is
    /// marked as leaving keeps that mark.
    pub(super) fn end_move(self, head: PageFrame) {
        end_moves(self.group(head.order), head);
    }

    /// Marks the pages around it, which the caller has marked as moving, as POISONED: they have no frame.
    pub(super) fn end_poisoned(self, order: Order) {
        self.group(order).iter().rev().for_each(|word| end_with(word, |_| POISONED));
    }

    /// Makes them missing instead: the file has them.
    pub(super) fn end_missing(self, order: Order) {
        self.group(order).iter().rev().for_each(|word| end_with(word, |_| 0));
    }

    /// Marks them as POISONED in a node that is not published yet.
    pub(super) fn put_poisoned(self, order: Order) {
        self.group(order).iter().for_each(|word| word.store(POISONED, Ordering::Release));
    }

    /// Removes a page whose memory had failed. Only a discard changes such a word. It may also be marked
    /// as leaving, if it failed just before the discard marked it.
    pub(super) fn heal(self) {
        debug_assert_eq!(self.word().load(Ordering::Relaxed) & !LEAVING, POISONED);
        self.word().store(self.translate(0), Ordering::Release);
    }

    /// Keeps a page whose memory had failed, and removes the mark of leaving that it may have.
    pub(super) fn stay_poisoned(self) {
        debug_assert_eq!(self.word().load(Ordering::Relaxed) & !LEAVING, POISONED);
        self.word().fetch_and(!LEAVING, Ordering::Release);
    }
}

/// Writes the words of the folio, the lowest last: a reader that finds the lowest without a mark and goes
/// upwards finds all of them without.
fn end_moves(words: &[Word], head: PageFrame) {
    for (i, word) in words.iter().enumerate().rev() {
        let to = head.next(i).to_word();
        end_with(word, |seen| to | seen & LEAVING);
    }
}

fn end_with(word: &Word, word_of: impl Fn(u64) -> u64) {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        debug_assert!(seen & MOVING != 0, "I22: only the mover ends a move");
        // Release: the page, and the descriptor of its frame.
        match word.compare_exchange(seen, word_of(seen), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

#[cfg(test)]
#[path = "slot_tests.rs"]
mod tests;
