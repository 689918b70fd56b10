//! Words above level 0: which node or folio is below, and how to read an empty word of that node.
//!
//! The first reservation in a node of pages of a pool is made by the word that names the node: from then on an empty word there is a
//! *reserved* one, and [`RESERVED`] is nothing. So a reservation of 64 pages writes one word, and no fault finds its page's line in
//! another CPU's cache. A node keeps its meaning: one that a fault without a reservation has put in is one in which 0 is nothing,
//! and its pages are reserved one by one.
//!
//! | word | is | an empty word below is |
//! | --- | --- | --- |
//! | frame | a node | nothing |
//! | frame, ALL_RESERVED | a node | RESERVED |
//! | frame, RESERVED, FILLING | a node of which pages are being reserved: whoever needs one waits (`reserved.rs`) | not told yet |
//!
//! Locks on entry: none.

use crate::addr::{OptPfn, Pfn};

/// The order of a folio is above its frame.
pub(super) const ORDER_SHIFT: u32 = 34;
/// A missing page to which its object has a claim: see `reserved_slot.rs`. In some nodes it means the opposite.
pub(super) const RESERVED: u64 = 1 << 57;
/// A page is being filled in, by a CPU that does not wait.
pub(super) const FILLING: u64 = 1 << 60;
/// In the word that names a node.
const ALL_RESERVED: u64 = 1 << 56;
const UNDER_WAY: u64 = RESERVED | FILLING;

/// The meaning of a word of 0 in a node. A word of RESERVED means the opposite.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ZeroMeans {
    Nothing,
    Reserved,
}

impl ZeroMeans {
    /// Between a word as it is stored and as `reserved_slot.rs` says it: both ways.
    #[inline(always)]
    pub(super) fn translate(self, word: u64) -> u64 {
        match (self, word) {
            (ZeroMeans::Reserved, 0) => RESERVED,
            (ZeroMeans::Reserved, RESERVED) => 0,
            _ => word,
        }
    }
}

/// A node, as the word above names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Node {
    pub(super) pfn: Pfn,
    pub(super) zero: ZeroMeans,
}

impl Node {
    /// A node whose words say what they are.
    pub(super) fn plain(pfn: Pfn) -> Node {
        Node { pfn, zero: ZeroMeans::Nothing }
    }

    pub(super) fn to_word(self) -> u64 {
        OptPfn::some(self.pfn).to_word() | if self.zero == ZeroMeans::Reserved { ALL_RESERVED } else { 0 }
    }

    /// The word of a node of which pages are being reserved.
    pub(super) fn word_under_way(pfn: Pfn) -> u64 {
        OptPfn::some(pfn).to_word() | UNDER_WAY
    }

    /// Returns the node of which pages are being reserved, if the word says so.
    pub(super) fn under_way(word: u64) -> Option<Pfn> {
        if word & UNDER_WAY == UNDER_WAY { OptPfn::from_word(word & !UNDER_WAY).get() } else { None }
    }
}

/// The state of a word above level 0.
pub(super) enum Below {
    Nothing,
    Node(Node),
    /// A folio, or one that is being put in, or a node of which pages are being reserved.
    Folio,
}

impl Below {
    #[inline(always)]
    pub(super) fn of(word: u64) -> Below {
        // First, since all nodes of files and of other memory are such.
        if word >> ORDER_SHIFT == 0 {
            return OptPfn::from_word(word).get().map_or(Below::Nothing, |pfn| Below::Node(Node::plain(pfn)));
        }
        let named = word & !ALL_RESERVED;
        if named >> ORDER_SHIFT != 0 {
            return Below::Folio;
        }
        OptPfn::from_word(named)
            .get()
            .map_or(Below::Nothing, |pfn| Below::Node(Node { pfn, zero: ZeroMeans::Reserved }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each state of a word that names a node, and what is read from it.
    #[test]
    fn a_word_says_what_it_names() {
        let node = |zero| Node { pfn: Pfn(7), zero };
        for zero in [ZeroMeans::Nothing, ZeroMeans::Reserved] {
            assert!(matches!(Below::of(node(zero).to_word()), Below::Node(seen) if seen == node(zero)));
            assert_eq!(Node::under_way(node(zero).to_word()), None);
            for word in [0, RESERVED, FILLING, UNDER_WAY, 9] {
                assert_eq!(zero.translate(zero.translate(word)), word);
            }
        }
        let under_way = Node::word_under_way(Pfn(7));
        assert!(matches!(Below::of(under_way), Below::Folio) && Node::under_way(under_way) == Some(Pfn(7)));
        assert_eq!(Node::under_way(UNDER_WAY), None, "a page that is being reserved");
        assert_eq!([0, RESERVED].map(|word| ZeroMeans::Reserved.translate(word)), [RESERVED, 0]);
    }
}
