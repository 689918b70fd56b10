//! A block that is a page of a pool, or a part of one: its marks.
//!
//! | mark | set by | cleared by |
//! | --- | --- | --- |
//! | POOL, POOL_1G | the CPU that brings the page into the pool and owns its frames | the CPU that takes it out, and owns it; POOL_1G alone: the CPU that makes it smaller pages, and owns it |
//!
//! Whether the page is free is not among them. CPUs take pages side by side, and each would move the line of a block. It is a bit
//! of the summaries of [`Kind::Pool2M`] or [`Kind::Pool1G`], which have the bits of a CPU's home blocks in one word.
//!
//! | bit of the first block | set by | cleared by |
//! | --- | --- | --- |
//! | of the kind of the page's size | the owner of the page, which nobody names | a CPU that wants one: then it is the owner |
//!
//! Locks on entry: none.

use super::{Block, BlockData};
use crate::addr::{BlockId, Order};
use crate::built::HUGETLB;
use crate::frame::offers::{POOL, POOL_1G, changed};
use crate::frame::summary::Kind;
use crate::sync::Ordering;

/// The marks of a page of that size.
fn marks_of(order: Order) -> u64 {
    if order == Order::PMD { POOL } else { POOL | POOL_1G }
}

impl BlockData {
    /// Whether it is a page of a pool, or a part of one. It stays so while the caller owns it, or an entry or slot
    /// names a frame of it in the section.
    pub(crate) fn is_in_pool(&self) -> bool {
        HUGETLB && self.state.load(Ordering::Acquire) & POOL != 0
    }

    /// The size of that page.
    pub(crate) fn pool_order(&self) -> Option<Order> {
        let state = self.state.load(Ordering::Acquire);
        (HUGETLB && state & POOL != 0).then_some(if state & POOL_1G != 0 { Order::PUD } else { Order::PMD })
    }

    /// Whether a page of a pool has its first frame in another block. As [`is_in_pool`](Self::is_in_pool).
    pub(crate) fn is_behind_in_pool(&self, b: BlockId) -> bool {
        self.pool_order().is_some_and(|order| !u64::from(b.first_frame().0).is_multiple_of(order.nr_pages()))
    }

    /// Notes that its frames may have any content. The caller owns all of them.
    pub(crate) fn soil(&self) {
        self.dirty.iter().for_each(|word| word.store(!0, Ordering::Relaxed));
    }
}

impl Block<'_> {
    /// Makes it a page of that size, or a part of one. The caller owns all frames.
    pub(crate) fn join_pool(&self, order: Order) {
        self.mark_pool(marks_of(order));
    }

    /// Makes it a page of 2 MiB. It was part of a page of 1 GiB, which the caller owns.
    pub(crate) fn become_page(&self) {
        self.unmark_pool(POOL_1G);
    }

    /// Takes it out of its pool. The caller owns all frames.
    pub(crate) fn leave_pool(&self) {
        self.unmark_pool(POOL | POOL_1G);
    }

    /// The kind of pool in which a page that begins here is free, if one is.
    pub(crate) fn free_page_kind(&self) -> Option<Kind> {
        [Kind::Pool2M, Kind::Pool1G].into_iter().find(|kind| HUGETLB && self.summary.holds(*kind, self.b))
    }

    /// Whether a page that begins here is free in its pool.
    pub(crate) fn is_free_in_pool(&self) -> bool {
        self.free_page_kind().is_some()
    }

    /// Puts the page that begins here, which the caller owns, into the pool: a search finds it when this returns, or soon.
    pub(crate) fn put_page(&self, kind: Kind) {
        self.summary.offer(kind, self.b);
    }

    /// Takes the page that begins here, if it is free and of that size: then the caller owns it. It may have been another one,
    /// when the caller looked.
    pub(crate) fn take_page(&self, kind: Kind) -> bool {
        self.summary.take(kind, self.b)
    }

    fn mark_pool(&self, marks: u64) {
        let before = self.state.fetch_or(marks, Ordering::AcqRel);
        self.note(changed(before, before | marks));
    }

    fn unmark_pool(&self, marks: u64) {
        let before = self.state.fetch_and(!marks, Ordering::AcqRel);
        self.note(changed(before, before & !marks));
    }
}
