//! Finds displaced VMAs by page index, for the reverse map.
//!
//! A private VMA is *displaced* if the index of its pages is not their page number, because
//! mremap(2) moved it. All other private VMAs are found by [`lookup`](super::Snapshot::lookup) at
//! the index itself. Inner nodes have, for each child, the interval of the indices of the displaced
//! VMAs below it. So the search enters only children that may have the index.
//!
//! ```text
//!   AA  B'B'   CC D'     inner: [-, 40..42) [90..91)     index 41: left child only
//!   10  30(40) 50 60(90)
//! ```
//! Cost: while displaced VMAs keep their order, the intervals of siblings are disjoint, and a
//! search enters one node per level. Moves that change the order of many VMAs make the intervals
//! overlap. At worst, after a random permutation, the search enters each node that has a displaced
//! VMA. VMAs that were never moved cost nothing.
//!
//! Locks on entry: a section.

use super::indices::Indices;
use super::layout::{HEIGHT_MAX, Inner};
use super::node::{NodeId, NodeRef};
use super::read::Snapshot;
use super::slots::Slots;
use crate::addr::Vpn;
use crate::machine::{Machine, Tick};
use crate::space::vma::Vma;

/// The most nodes that one call enters, to keep the section short.
const NODES_MAX: u32 = 64;

/// The result of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Displaced {
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
