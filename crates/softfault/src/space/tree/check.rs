//! Whether a version, and the pool, are as they should be. For tests, for the
//! checker of whole address spaces, and for the curious; nothing here is fast.
//!
//! Locks on entry: the writer lock, but for a version alone, where a section does.

use super::layout::{HEIGHT_MAX, NODES_PER_FRAME};
use super::node::{NO_END, NodeId, NodeRef, State};
use super::slots::{Slots, Span};
use super::{Retired, Snapshot, Tally, Tree};
use crate::machine::Machine;
use core::fmt;

/// A defect of a tree. It is reported with the node where it shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TreeFault {
    /// A VMA without pages.
    Empty(NodeId),
    /// Two VMAs in the wrong order or with a page in common.
    Order(NodeId),
    /// Fewer entries than a node may have, or more, or some beyond the last.
    Count(NodeId),
    /// A node at a level that is not one below its parent's.
    Level(NodeId),
    /// An inner node that says of a child what is not so.
    Summary(NodeId),
    /// A word that should name a child and does not.
    Name(NodeId),
    /// A node that is on a list that it should not be on.
    State(NodeId),
    /// A number of VMAs or of their pages other than the one that is written down.
    Tally,
    /// Nodes that are neither in the version nor free nor retired, or two of
    /// these at once.
    Total,
}

impl fmt::Display for TreeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (node, what) = match self {
            TreeFault::Empty(id) => (id, "each VMA should have a page"),
            TreeFault::Order(id) => (id, "VMAs should be in order and apart"),
            TreeFault::Count(id) => (id, "the number of entries should be within its bounds"),
            TreeFault::Level(id) => (id, "the level should be one below the parent's"),
            TreeFault::Summary(id) => (id, "what is said of a child should be so"),
            TreeFault::Name(id) => (id, "each child should have a name"),
            TreeFault::State(id) => (id, "a node should be on the list of its state"),
            TreeFault::Tally => return f.write_str("tally: should be the sum over the VMAs"),
            TreeFault::Total => return f.write_str("pool: each node should be in the tree, free or retired"),
        };
        write!(f, "{node:?}: {what}")
    }
}

/// The counts of a walk through a version.
#[derive(Default)]
struct Census {
    nr_nodes: u64,
    tally: Tally,
    /// Whether some node was not in state `Live`, and which.
    not_live: Option<NodeId>,
}

/// The end of the nodes of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Nothing.
    Last,
    /// Perhaps nodes of other lists.
    GoesOn,
}

impl<M: Machine> Snapshot<'_, M> {
    /// Checks this version; gives its number of VMAs. A section is enough here,
    /// for it does not matter whether nodes are already replaced in the next.
    #[cfg(test)]
    pub(super) fn check_nodes(&self) -> Result<u64, TreeFault> {
        Ok(self.census()?.tally.nr_vmas)
    }

    fn census(&self) -> Result<Census, TreeFault> {
        let mut census = Census::default();
        if !self.root.is_none() {
            let level = self.tree.header(self.root).level();
            if level >= HEIGHT_MAX {
                return Err(TreeFault::Level(self.root));
            }
            self.check_node(self.root, level, &mut census)?;
        }
        Ok(census)
    }

    /// Order makes a tree of it: a node reached twice would bring its VMAs back
    /// where larger ones are due.
    fn check_node(&self, id: NodeId, level: u8, census: &mut Census) -> Result<Span, TreeFault> {
        census.nr_nodes += 1;
        let header = self.tree.header(id);
        if header.level() != level {
            return Err(TreeFault::Level(id));
        }
        if header.state().0 != State::Live {
            census.not_live = Some(id);
        }
        match self.tree.node(id) {
            NodeRef::Leaf(leaf) => {
                self.check_slots(id, leaf, 1)?;
                (0..leaf.len()).for_each(|i| census.tally.add(&leaf.entry(i)));
                Ok(leaf.span())
            }
            NodeRef::Inner(inner) => {
                self.check_slots(id, inner, 2)?;
                for i in 0..inner.len() {
                    let child = inner.child(i);
                    if child.is_none() {
                        return Err(TreeFault::Name(id));
                    }
                    if self.check_node(child, level - 1, census)? != inner.span_at(i) {
                        return Err(TreeFault::Summary(id));
                    }
                }
                Ok(inner.span())
            }
        }
    }

    fn check_slots<S: Slots>(&self, id: NodeId, node: &S, min_in_root: usize) -> Result<(), TreeFault> {
        let min = if id == self.root { min_in_root } else { S::MIN };
        let len = node.header().len();
        if len < min || len > S::MAX {
            return Err(TreeFault::Count(id));
        }
        let mut end = 0;
        for i in 0..len {
            let span = node.span_at(i);
            if span.first >= span.last {
                return Err(TreeFault::Empty(id));
            }
            if span.first < end {
                return Err(TreeFault::Order(id));
            }
            end = span.last;
        }
        if (len..S::MAX).any(|i| node.end_word(i).get() != NO_END) {
            return Err(TreeFault::Count(id));
        }
        Ok(())
    }
}

impl<M: Machine> Tree<'_, M> {
    /// Checks the version published last, and that each node of the pool is in exactly one of three
    /// places: this version, the free list, `retired`. No transaction may be in progress, no
    /// retired nodes on their way back.
    pub fn check_at_rest(&self, retired: &[&Retired<'_, M>]) -> Result<(), TreeFault> {
        let census = self.snapshot().census()?;
        if census.tally != self.tally() {
            return Err(TreeFault::Tally);
        }
        if let Some(id) = census.not_live {
            return Err(TreeFault::State(id));
        }
        let pool = &self.root.pool;
        let nr_free = pool.nr_free.get();
        let mut nr_nodes = census.nr_nodes + nr_free;
        self.check_list(NodeId::from_root_word(pool.free.get()), nr_free, State::Free, End::Last)?;
        let deferred = NodeId::from_root_word(pool.deferred_first.get());
        nr_nodes += pool.nr_deferred.get();
        self.check_list(deferred, pool.nr_deferred.get(), State::Retired, End::Last)?;
        for retired in retired {
            let chain = &retired.chain;
            nr_nodes += chain.nr_nodes;
            self.check_list(chain.first, chain.nr_nodes, State::Retired, End::GoesOn)?;
        }
        // Three states, each seen on the node itself, and the sum: nothing is
        // counted twice, so nothing is missing either.
        let mut nr_frames = 0;
        self.pool_frames(&mut |_| nr_frames += 1);
        if nr_nodes == nr_frames * NODES_PER_FRAME { Ok(()) } else { Err(TreeFault::Total) }
    }

    fn check_list(&self, first: NodeId, nr_nodes: u64, state: State, end: End) -> Result<(), TreeFault> {
        let mut id = first;
        for _ in 0..nr_nodes {
            if id.is_none() {
                return Err(TreeFault::Total);
            }
            let (found, next) = self.header(id).state();
            if found != state {
                return Err(TreeFault::State(id));
            }
            id = next;
        }
        // A list that ends has no node twice.
        if end == End::Last && !id.is_none() { Err(TreeFault::Total) } else { Ok(()) }
    }
}
