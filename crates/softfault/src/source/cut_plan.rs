//! Plans the cut of a folio of which some pages are removed. Arithmetic only: reads no shared memory.
//!
//! Locks on entry: none.

use super::slot::level_of;
use crate::addr::{ObjectPages, Order};
use core::ops::Range;

/// The removed pages of a folio, and those of them that are freed.
pub(super) struct Plan {
    pub(super) goes: Range<u64>,
    /// Whole folios of the least size, which are freed; may be empty. The other removed pages are zeroed.
    pub(super) inner: Range<u64>,
}

impl Plan {
    /// Plans the cut of a folio with the pages `all`, some of which are among `pages`.
    pub(super) fn new(all: &Range<u64>, pages: ObjectPages, least: Order) -> Plan {
        let goes = pages.start.max(all.start)..pages.end.min(all.end);
        let inner = round_up(goes.start, least)..round_down(goes.end, least);
        Plan { inner: if inner.is_empty() { goes.start..goes.start } else { inner }, goes }
    }

    /// Returns the remaining folios.
    pub(super) fn parts(&self, all: &Range<u64>) -> impl Iterator<Item = (u64, Order)> + use<> {
        pieces(all.start..self.inner.start).chain(pieces(self.inner.end..all.end))
    }

    /// Number of nodes that the remaining parts need in place of a folio of that order.
    pub(super) fn nr_nodes(&self, all: &Range<u64>, order: Order) -> usize {
        if self.inner.is_empty() || level_of(order) == 0 {
            return 0;
        }
        let (mut nr, mut last) = (1, None);
        for (page, part) in self.parts(all) {
            let node = page / Order::PMD.nr_pages();
            if level_of(order) > 1 && part < Order::PMD && last != Some(node) {
                (nr, last) = (nr + 1, Some(node));
            }
        }
        nr
    }
}

fn round_up(page: u64, order: Order) -> u64 {
    page.next_multiple_of(order.nr_pages())
}

fn round_down(page: u64, order: Order) -> u64 {
    page & !(order.nr_pages() - 1)
}

/// Divides pages into the largest aligned folios, of at most 2 MiB, in order.
pub(super) fn pieces(mut pages: Range<u64>) -> impl Iterator<Item = (u64, Order)> {
    core::iter::from_fn(move || {
        let nr = pages.end.checked_sub(pages.start).filter(|nr| *nr > 0)?;
        let (first, aligned) = (pages.start, pages.start.trailing_zeros());
        let order = Order(nr.ilog2().min(aligned) as u8).min(Order::PMD);
        pages.start += order.nr_pages();
        Some((first, order))
    })
}

/// The same, the highest first.
fn pieces_down(mut pages: Range<u64>) -> impl Iterator<Item = (u64, Order)> {
    core::iter::from_fn(move || {
        let nr = pages.end.checked_sub(pages.start).filter(|nr| *nr > 0)?;
        let order = Order(nr.ilog2().min(pages.end.trailing_zeros()) as u8).min(Order::PMD);
        pages.end -= order.nr_pages();
        Some((pages.end, order))
    })
}

/// The folios that a folio of the pages `all` is split into where one is `part`, the highest first.
pub(super) fn split_down(all: Range<u64>, part: (u64, Order)) -> impl Iterator<Item = (u64, Order)> {
    let behind = part.0 + part.1.nr_pages()..all.end;
    pieces_down(behind).chain([part]).chain(pieces_down(all.start..part.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_and_leave_nothing_out() {
        for (start, end) in [(0, 512), (0, 1), (512, 512 + 100), (7, 16), (3, 3), (513, 1024), (1, 511)] {
            let mut next = start;
            for (first, order) in pieces(start..end) {
                assert_eq!((first, first % order.nr_pages()), (next, 0));
                next += order.nr_pages();
            }
            assert_eq!(next, end);
        }
        let of = |pages| pieces(pages).map(|(first, order)| (first, order.0)).collect::<std::vec::Vec<_>>();
        for (start, end) in [(0, 512), (7, 16), (3, 3), (512, 512 + 100), (1, 1537), (513, 5000)] {
            let mut down = pieces_down(start..end).collect::<std::vec::Vec<_>>();
            down.reverse();
            assert_eq!(down, pieces(start..end).collect::<std::vec::Vec<_>>(), "the same ones");
        }
        assert_eq!(of(0..7), [(0, 2), (4, 1), (6, 0)]);
        assert_eq!(of(5..16), [(5, 0), (6, 1), (8, 3)]);
    }

    #[test]
    fn a_split_is_the_part_and_what_is_beside_it() {
        let of = |all, part| split_down(all, part).map(|(first, order)| (first, order.0)).collect::<std::vec::Vec<_>>();
        assert_eq!(of(16..24, (19, Order(0))), [(20, 2), (19, 0), (18, 0), (16, 1)]);
        assert_eq!(of(0..8, (0, Order(3))), [(0, 3)]);
        let gib = of(0..1 << 18, (600, Order(0)));
        assert_eq!((gib.len(), gib[0]), (511 + 10, ((1 << 18) - 512, 9)));
        assert_eq!(gib.iter().map(|(_, order)| 1u64 << order).sum::<u64>(), 1 << 18);
    }

    /// One in place of the folio, and one for each 2 MiB of which a part stays.
    #[test]
    fn nodes_are_counted() {
        let nr = |order: Order, pages: Range<u64>, least: u8| {
            let all = 0..order.nr_pages();
            Plan::new(&all, pages.into(), Order(least)).nr_nodes(&all, order)
        };
        assert_eq!([nr(Order(8), 5..6, 0), nr(Order::PMD, 5..6, 0), nr(Order::PMD, 5..6, 1)], [0, 1, 0]);
        assert_eq!([nr(Order::MAX, 5..6, 0), nr(Order::MAX, 5..1000, 0), nr(Order::MAX, 512..1024, 0)], [2, 3, 1]);
        assert_eq!([nr(Order::MAX, 500..1000, 9), nr(Order::MAX, 500..1024, 9)], [0, 1]);
    }
}
