//! Finding displaced VMAs by page index: what the reverse map asks.
//!
//! A private VMA is *displaced* if the index of its pages is not their page
//! number, because mremap(2) moved it. All other private VMAs are found by
//! [`lookup`](super::Snapshot::lookup) at the index itself. Inner nodes know for
//! each child the interval that the indices of the displaced VMAs below it lie
//! in, so that the search enters only children that may have the index.
//!
//! ```text
//!   AA  B'B'   CC D'     inner: [-, 40..42) [90..91)     index 41: left child only
//!   10  30(40) 50 60(90)
//! ```
//! Cost: the intervals of siblings are disjoint as long as the displaced VMAs
//! have kept their order, and then a search enters one node a level. Moves that
//! reverse the order of many VMAs make the intervals overlap; at worst, a random
//! permutation, the search enters each node that has a displaced VMA. VMAs that
//! were never moved cost nothing in either case.
//!
//! Locks on entry: a section.

use super::layout::{HEIGHT_MAX, Inner};
use super::node::{NodeId, NodeRef};
use super::read::Snapshot;
use super::slots::Slots;
use crate::addr::Vpn;
use crate::machine::{Machine, Tick};
use crate::space::vma::{ObjectId, Vma};

/// Most nodes that one call enters: a section is short.
const NODES_MAX: u32 = 64;

/// An interval of page indices in one word: the lowest exactly, the length
/// rounded up to 13 significant bits.
///
/// ```text
/// lowest index 19..64 | exponent 13..19 | mantissa 0..13
/// ```
/// 0 is the empty interval. What does not fit is [`ALL`](Indices::ALL): an
/// interval that is too large costs time only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Indices(pub(super) u64);

const MANTISSA_BITS: u32 = 13;
const LOW_SHIFT: u32 = 19;
const LOW_LIMIT: u64 = 1 << (64 - LOW_SHIFT);

impl Indices {
    pub(super) const NONE: Indices = Indices(0);
    pub(super) const ALL: Indices = Indices(u64::MAX);

    /// The indices of a VMA that is displaced, none of any other.
    #[inline]
    pub(super) fn of(vma: &Vma) -> Indices {
        if vma.object != ObjectId::NONE || vma.pgoff == vma.range.start.0 {
            return Indices::NONE;
        }
        Indices::new(vma.pgoff, vma.range.nr_pages())
    }

    fn new(low: u64, len: u64) -> Indices {
        if low >= LOW_LIMIT || len >= LOW_LIMIT {
            return Indices::ALL;
        }
        let exponent_of = |len: u64| (u64::BITS - len.leading_zeros()).saturating_sub(MANTISSA_BITS);
        // Rounding up may carry into one more bit.
        let exponent = exponent_of(len.next_multiple_of(1 << exponent_of(len)));
        let mantissa = len.div_ceil(1 << exponent);
        Indices(low << LOW_SHIFT | u64::from(exponent) << MANTISSA_BITS | mantissa)
    }

    fn low_and_len(self) -> (u64, u64) {
        let exponent = (self.0 >> MANTISSA_BITS) & ((1 << (LOW_SHIFT - MANTISSA_BITS)) - 1);
        (self.0 >> LOW_SHIFT, (self.0 & ((1 << MANTISSA_BITS) - 1)) << exponent)
    }

    /// An interval that has both.
    #[inline]
    pub(super) fn union(self, other: Indices) -> Indices {
        match (self, other) {
            (any, Indices::NONE) | (Indices::NONE, any) => any,
            (Indices::ALL, _) | (_, Indices::ALL) => Indices::ALL,
            (one, two) => {
                let ((a, a_len), (b, b_len)) = (one.low_and_len(), two.low_and_len());
                let low = a.min(b);
                Indices::new(low, (a + a_len).max(b + b_len) - low)
            }
        }
    }

    /// Whether the index may lie in it.
    fn may_have(self, index: u64) -> bool {
        let (low, len) = self.low_and_len();
        self == Indices::ALL || index.wrapping_sub(low) < len
    }
}

/// What a search came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Displaced {
    /// This VMA has the page; the next search begins at its end.
    Found(Vma),
    /// Enough for one section; the next search begins here.
    Cut(Vpn),
    /// There is no other.
    End,
}

impl<M: Machine> Snapshot<'_, M> {
    /// Finds the lowest displaced VMA that ends after `from` and has the page of
    /// that index.
    pub fn next_displaced(&self, from: Vpn, index: u64) -> Displaced {
        if self.root.is_none() {
            return Displaced::End;
        }
        let level = self.tree.header(self.root).level().min(HEIGHT_MAX);
        self.displaced_below(self.root, level, from, index, &mut { NODES_MAX })
    }

    fn displaced_below(&self, id: NodeId, level: u8, from: Vpn, index: u64, nr_left: &mut u32) -> Displaced {
        self.tree.machine.tick(Tick::Step);
        // A stale reader may meet a node that is another by now.
        if id.is_none() || self.tree.header(id).level() != level {
            return Displaced::End;
        }
        match self.tree.node_at(id, level) {
            NodeRef::Leaf(leaf) => {
                let vmas = (leaf.nr_ended(from.0)..leaf.len()).map(|i| leaf.entry(i));
                let mut hits = vmas.filter(|vma| Indices::of(vma) != Indices::NONE && vma.page_at(index).is_some());
                hits.next().map_or(Displaced::End, Displaced::Found)
            }
            NodeRef::Inner(inner) => self.displaced_in(inner, level, from, index, nr_left),
        }
    }

    fn displaced_in(&self, inner: &Inner, level: u8, from: Vpn, index: u64, nr_left: &mut u32) -> Displaced {
        for i in inner.nr_ended(from.0)..inner.len() {
            let span = inner.span_at(i);
            if level == 0 || !span.displaced.may_have(index) {
                continue;
            }
            let Some(left) = nr_left.checked_sub(1) else { return Displaced::Cut(Vpn(span.first).max(from)) };
            *nr_left = left;
            let found = self.displaced_below(inner.child(i), level - 1, from, index, nr_left);
            if found != Displaced::End {
                return found;
            }
        }
        Displaced::End
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(indices: Indices) -> (u64, u64) {
        let (low, len) = indices.low_and_len();
        (low, low + len)
    }

    #[test]
    fn an_interval_is_never_too_small_and_hardly_too_large() {
        for low in [0, 1, 4095, 0x10_0000_0000, LOW_LIMIT - 1] {
            for len in (0..45).flat_map(|bit| [1 << bit, (1 << bit) + 1, (1 << bit) * 2 - 1]) {
                let (from, to) = ends(Indices::new(low, len));
                assert_eq!(from, low);
                assert!(to >= low + len && to - low <= len + len / 4096, "{low:x} {len:x}: {to:x}");
            }
        }
        for short in 1..8192 {
            assert_eq!(ends(Indices::new(7, short)), (7, 7 + short), "short ones are exact");
        }
        assert_eq!(Indices::new(LOW_LIMIT, 1), Indices::ALL);
        assert_eq!(Indices::new(1, u64::MAX), Indices::ALL);
        assert!(Indices::ALL.may_have(0) && Indices::ALL.may_have(u64::MAX));
    }

    #[test]
    fn a_union_has_both() {
        let (a, b) = (Indices::new(100, 10), Indices::new(1 << 40, 3));
        assert_eq!(a.union(Indices::NONE), a);
        assert_eq!(Indices::NONE.union(b), b);
        assert_eq!(a.union(Indices::ALL), Indices::ALL);
        assert_eq!(Indices::NONE.union(Indices::ALL), Indices::ALL);
        for both in [a.union(b), b.union(a)] {
            assert!([100, 109, 1 << 40, (1 << 40) + 2].into_iter().all(|index| both.may_have(index)));
            assert!(!both.may_have(99) && !both.may_have(1 << 41));
        }
    }
}
