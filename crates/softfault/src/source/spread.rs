//! The numbers under which an object of huge pages has its pages in its tree.
//!
//! CPUs fault on neighbouring pages of a pool at once, and each writes its page's word twice. So each such word has a cache line of
//! its own: the tree numbers huge pages by eights, and seven of eight words stay empty. That costs 64 bytes for each huge page,
//! where a page of 4 KiB has 8.
//!
//! ```text
//! page      huge page | page in it
//! in tree   huge page | 000 | page in it
//! ```
//! The lowest bits are the same, so a word's level, and the number of a page in it, are as in other objects.
//!
//! Locks on entry: none.

use super::slot::INDEX_BITS;
use crate::addr::{ObjectPages, Order};

/// log2 of the words in a cache line.
pub(super) const GAP_BITS: u32 = 3;
/// Huge pages that have their words in one node.
pub(super) const POOL_PAGES_IN_NODE: u64 = 1 << (INDEX_BITS - GAP_BITS);
/// No object has so many pages.
pub(super) const TOO_MANY_PAGES: u64 = 1 << 51;

/// Pages of which order have the gap above them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spread(pub(super) Order);

impl Spread {
    /// The number in the tree.
    pub(super) fn to_tree(self, index: u64) -> u64 {
        let order = u32::from(self.0.0);
        let huge = index >> order;
        huge << (order + GAP_BITS) | index & ((1 << order) - 1)
    }

    /// The page that has this number in the tree.
    pub(super) fn page_of(self, index: u64) -> u64 {
        let order = u32::from(self.0.0);
        (index >> (order + GAP_BITS)) << order | index & ((1 << order) - 1)
    }

    /// These pages in the tree.
    pub(super) fn range_to_tree(self, pages: ObjectPages) -> ObjectPages {
        let in_tree = |index: u64| self.to_tree(index.min(TOO_MANY_PAGES));
        ObjectPages { start: in_tree(pages.start), end: in_tree(pages.end) }
    }

    /// How far apart words of that level are which may be in use.
    pub(super) fn step(self, level: u32) -> usize {
        if level * INDEX_BITS == u32::from(self.0.0) { 1 << GAP_BITS } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Word;

    /// Pages come back, in order, and those of one huge page have one word.
    #[test]
    fn words_are_a_line_apart() {
        let line = 64 / size_of::<Word>() as u64;
        for order in [Order::PMD, Order::PUD] {
            let (spread, nr) = (Spread(order), order.nr_pages());
            let last = TOO_MANY_PAGES - 1;
            for page in [0, 1, nr - 1, nr, 3 * nr + 5, 511 * nr, 512 * nr, last - 1, last] {
                let word = |page: u64| spread.to_tree(page) >> order.0;
                assert_eq!(spread.page_of(spread.to_tree(page)), page);
                assert_eq!(word(page) % line, 0, "the first of its line");
                assert_eq!(spread.to_tree(page) & (nr - 1), page & (nr - 1));
                assert_eq!(word(page + nr) - word(page), line);
            }
            let all = spread.range_to_tree(ObjectPages::ALL);
            assert!(
                all.start == 0 && all.end > spread.to_tree(last) && spread.step(u32::from(order.0) / INDEX_BITS) == 8
            );
        }
    }
}
