//! Chooses the order of a new folio of an object.
//!
//! Values and pure functions. The mechanism claims each slot of the folio before it fills it, so an
//! outdated answer only costs a turn.

use crate::addr::Order;
use core::ops::Range;

/// Sizes that the pages of an object may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FolioOrders {
    least: Order,
    most: Order,
}

/// Why there are no such sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FolioOrdersError {
    /// The smallest is larger than the largest.
    Inverted,
    /// Larger than [`Order::PUD`].
    TooLarge,
    /// One of them is larger than [`Order::PMD`] and smaller than [`Order::PUD`]: the tree of an object has
    /// no word for such a page.
    Between,
}

impl core::fmt::Display for FolioOrdersError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            FolioOrdersError::Inverted => "least: should be at most `most`",
            FolioOrdersError::TooLarge => "most: should be at most 18, which is 1 GiB",
            FolioOrdersError::Between => "least, most: should be at most 9, which is 2 MiB, or 18, which is 1 GiB",
        })
    }
}
impl core::error::Error for FolioOrdersError {}

impl FolioOrders {
    /// Base pages alone.
    pub const BASE: FolioOrders = FolioOrders { least: Order::BASE, most: Order::BASE };

    /// From 2^`least` to 2^`most` base pages: up to 2 MiB, and 1 GiB. A page is never smaller than the least, also where
    /// memory is fragmented: then a fault is refused for want of frames.
    ///
    /// # Errors
    ///
    /// [`FolioOrdersError`].
    ///
    /// Source: `mapping_set_folio_order_range` of Linux.
    pub fn new(least: Order, most: Order) -> Result<FolioOrders, FolioOrdersError> {
        if least > most {
            return Err(FolioOrdersError::Inverted);
        }
        if most > Order::PUD {
            return Err(FolioOrdersError::TooLarge);
        }
        if ![least, most].into_iter().all(is_size) {
            return Err(FolioOrdersError::Between);
        }
        Ok(FolioOrders { least, most })
    }

    /// One size, [`Order::PMD`] or [`Order::PUD`].
    pub(crate) const fn only(order: Order) -> FolioOrders {
        FolioOrders { least: order, most: order }
    }

    /// The smallest.
    pub fn least(self) -> Order {
        self.least
    }
    /// The largest.
    pub fn most(self) -> Order {
        self.most
    }

    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.least.0) | u64::from(self.most.0) << 8
    }
    pub(crate) fn from_word(word: u64) -> FolioOrders {
        FolioOrders { least: Order(word as u8), most: Order((word >> 8) as u8) }
    }
}

/// A page of an object that is missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FolioQuestion {
    /// Its number.
    pub(crate) index: u64,
    /// Pages that the object's size covers.
    pub(crate) nr_pages: u64,
    pub(crate) orders: FolioOrders,
    /// The largest size for which there may be frames.
    pub(crate) most_there: Order,
}

/// Whether pages of an object may have that size.
fn is_size(order: Order) -> bool {
    order <= Order::PMD || order == Order::PUD
}

/// The naturally aligned pages of that order around `index`.
pub(crate) fn around(index: u64, order: Order) -> Range<u64> {
    let start = index & !(order.nr_pages() - 1);
    start..start + order.nr_pages()
}

/// Returns the largest order whose pages are all missing and inside the object. A folio of the least
/// order may reach beyond its end. `None` if a page of the least folio is present: at rest all of its
/// pages are, or none (I45), so another CPU is filling it in or removing it.
pub(crate) fn largest(question: &FolioQuestion, is_empty: &mut dyn FnMut(Range<u64>) -> bool) -> Option<Order> {
    let FolioOrders { least, most } = question.orders;
    let mut found = least;
    let mut seen = around(question.index, least);
    if !is_empty(seen.clone()) {
        return None;
    }
    for order in (least.0 + 1..=most.min(question.most_there).0).map(Order).filter(|order| is_size(*order)) {
        let all = around(question.index, order);
        if all.end > question.nr_pages || !is_empty(all.start..seen.start) || !is_empty(seen.end..all.end) {
            break;
        }
        (found, seen) = (order, all);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(least: u8, most: u8) -> FolioOrders {
        FolioOrders::new(Order(least), Order(most)).unwrap()
    }

    #[test]
    fn sizes_are_ordered_and_have_a_word_in_the_tree() {
        let refused = |least, most| FolioOrders::new(Order(least), Order(most)).unwrap_err();
        assert_eq!([refused(3, 2), refused(19, 18)], [FolioOrdersError::Inverted; 2]);
        assert_eq!([refused(0, 19), refused(0, 255)], [FolioOrdersError::TooLarge; 2]);
        for between in 10..18 {
            assert_eq!([refused(0, between), refused(between, 18)], [FolioOrdersError::Between; 2]);
        }
        for some in [orders(2, 9), orders(0, 18), orders(18, 18)] {
            assert_eq!(FolioOrders::from_word(some.to_word()), some);
        }
        assert_eq!((orders(2, 9).least(), orders(2, 9).most()), (Order(2), Order(9)));
        assert_eq!(FolioOrders::from_word(0), FolioOrders::BASE);
    }

    #[test]
    fn the_largest_that_is_empty_and_inside() {
        let ask = |index, nr_pages, orders, most_there: u8, used: &[u64]| {
            let question = FolioQuestion { index, nr_pages, orders, most_there: Order(most_there) };
            largest(&question, &mut |pages| !used.iter().any(|page| pages.contains(page))).map(|order| order.0)
        };
        assert_eq!(ask(5, 1000, orders(0, 9), 9, &[]), Some(9));
        assert_eq!(ask(5, 512, orders(0, 9), 9, &[]), Some(9));
        assert_eq!(ask(5, 511, orders(0, 9), 9, &[]), Some(8), "the last page is not the object's");
        assert_eq!(ask(5, 6, orders(3, 9), 9, &[]), Some(3), "the least may reach beyond the end");
        assert_eq!(ask(5, 1000, orders(0, 9), 9, &[15]), Some(3));
        assert_eq!(ask(5, 1000, orders(0, 9), 9, &[4]), Some(0));
        assert_eq!(ask(5, 1000, orders(0, 9), 2, &[]), Some(2), "no larger frames");
        assert_eq!(ask(5, 1000, orders(1, 4), 9, &[]), Some(4));
        assert_eq!(ask(5, 1000, orders(3, 4), 0, &[]), Some(3), "the least is asked for all the same");
        assert_eq!(ask(5, 1000, orders(3, 9), 9, &[7]), None, "a part of the least is there");
        assert_eq!(ask(5, 1000, orders(3, 9), 9, &[8]), Some(3));
        let large = Order::PUD.nr_pages();
        assert_eq!(ask(5, large, orders(0, 18), 18, &[]), Some(18));
        assert_eq!(ask(5, large - 1, orders(0, 18), 18, &[]), Some(9), "the last page is not the object's");
        assert_eq!(ask(5, large, orders(0, 18), 17, &[]), Some(9), "no size lies between");
        assert_eq!(ask(5, large, orders(0, 18), 18, &[600]), Some(9));
        assert_eq!(ask(large + 5, 2 * large, orders(0, 18), 18, &[5]), Some(18));
        assert_eq!(ask(5, 6, orders(18, 18), 9, &[]), Some(18), "the least may reach beyond the end");
    }
}
