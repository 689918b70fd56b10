//! Inserts, removes and replaces a VMA in a version that is being edited.
//!
//! Each edit first reserves the most nodes that it may need, so that it happens completely or not
//! at all. `txn` owns the version, `slots` moves entries. Locks on entry: the writer lock, which
//! the transaction implies.

use super::indices::Indices;
use super::layout::{HEIGHT_MAX, Inner, Leaf};
use super::node::{NodeId, NodeRef};
use super::pool::{FrameSource, OutOfNodes, reserve};
use super::slots::{Branch, Slots};
use super::txn::Txn;
use crate::addr::Vpn;
use crate::machine::Machine;
use crate::space::vma::Vma;

impl<'a, M: Machine> Txn<'a, M> {
    /// Adds `vma`, which must not be empty nor overlap another.
    pub fn insert(&mut self, vma: Vma, alloc: &mut FrameSource) -> Result<(), OutOfNodes> {
        debug_assert!(!vma.range.is_empty(), "vma: should have a page");
        debug_assert!(
            self.view().next_start(vma.range.start).is_none_or(|start| start >= vma.range.end),
            "vma: should lie in a hole"
        );
        let height = self.height();
        if height == u64::from(HEIGHT_MAX) && self.is_full(self.root) {
            return Err(OutOfNodes);
        }
        // On each level a copy and its other half, and a root above.
        reserve(self.tree, 2 * height + 1, alloc)?;
        self.tally.add(&vma);
        if self.root.is_none() {
            self.root = self.fresh(0);
        }
        let (root, split) = self.insert_below(self.root, &vma);
        self.root = match split {
            Some(right) => self.grow(root, right),
            None => root,
        };
        Ok(())
    }

    /// Appends `vma`. Fork does this with each VMA, so there is a fast path if the last leaf
    /// belongs to this transaction and has room.
    pub fn append(&mut self, vma: Vma, alloc: &mut FrameSource) -> Result<(), OutOfNodes> {
        debug_assert!(!vma.range.is_empty(), "vma: should have a page");
        if self.root.is_none() || self.append_below(self.root, &vma).is_none() {
            return self.insert(vma, alloc);
        }
        self.tally.add(&vma);
        Ok(())
    }

    /// Gives the hole before the VMA, by which the spans above may have grown;
    /// `None` where it takes an insertion, and nothing has happened.
    fn append_below(&self, id: NodeId, vma: &Vma) -> Option<u64> {
        if self.tree.header(id).stamp.get() != self.serial {
            return None;
        }
        match self.tree.node(id) {
            NodeRef::Leaf(leaf) => {
                let last = leaf.len().checked_sub(1).filter(|last| last + 1 < Leaf::MAX)?;
                let end = leaf.entry(last).range.end.0;
                debug_assert!(end <= vma.range.start.0, "vma: should lie behind all others");
                leaf.insert_at(last + 1, vma);
                Some(vma.range.start.0 - end)
            }
            NodeRef::Inner(inner) => {
                let last = inner.len().checked_sub(1)?;
                let mut branch = inner.entry(last);
                let gap = self.append_below(branch.child, vma)?;
                branch.span.last = vma.range.end.0;
                branch.span.max_gap = branch.span.max_gap.max(gap);
                if Indices::of(vma) != Indices::NONE {
                    branch = self.branch(branch.child);
                }
                inner.put(last, &branch);
                Some(gap)
            }
        }
    }

    /// Removes the VMA that starts at `start`; `None` if there is none.
    pub fn remove(&mut self, start: Vpn, alloc: &mut FrameSource) -> Result<Option<Vma>, OutOfNodes> {
        let Some(old) = self.starting_at(start) else { return Ok(None) };
        // On each level a copy, and one of the neighbour that it joins.
        reserve(self.tree, 2 * self.height(), alloc)?;
        self.tally.subtract(&old);
        self.root = self.remove_below(self.root, start.0);
        self.shrink();
        Ok(Some(old))
    }

    /// Replaces the VMA that starts at `start` by `vma`; returns the old one, or `None` if there is
    /// none. `vma` may have another extent, but must not overlap others.
    pub fn replace(&mut self, start: Vpn, vma: Vma, alloc: &mut FrameSource) -> Result<Option<Vma>, OutOfNodes> {
        let Some(old) = self.starting_at(start) else { return Ok(None) };
        debug_assert!(!vma.range.is_empty(), "vma: should have a page");
        debug_assert!(
            self.view().prev_end(start).is_none_or(|end| end <= vma.range.start)
                && self.view().next_start(old.range.end).is_none_or(|start| start >= vma.range.end),
            "vma: should lie where the old one and the holes beside it are"
        );
        reserve(self.tree, self.height(), alloc)?;
        self.tally.subtract(&old);
        self.tally.add(&vma);
        self.root = self.replace_below(self.root, start.0, &vma);
        Ok(Some(old))
    }

    fn starting_at(&self, start: Vpn) -> Option<Vma> {
        self.view().lookup(start).map(|found| found.vma).filter(|vma| vma.range.start == start)
    }

    fn height(&self) -> u64 {
        if self.root.is_none() { 0 } else { u64::from(self.tree.header(self.root).level()) + 1 }
    }

    fn is_full(&self, id: NodeId) -> bool {
        match self.tree.node(id) {
            NodeRef::Leaf(leaf) => leaf.len() == Leaf::MAX,
            NodeRef::Inner(inner) => inner.len() == Inner::MAX,
        }
    }

    /// The parent's record of the node.
    fn branch(&self, child: NodeId) -> Branch {
        let span = match self.tree.node(child) {
            NodeRef::Leaf(leaf) => leaf.span(),
            NodeRef::Inner(inner) => inner.span(),
        };
        Branch { span, child }
    }

    /// Gives the node that takes the place of `id`, and a new one to its right
    /// if it had to split.
    fn insert_below(&mut self, id: NodeId, vma: &Vma) -> (NodeId, Option<NodeId>) {
        let id = self.own(id);
        let start = vma.range.start.0;
        let split = match self.tree.node(id) {
            NodeRef::Leaf(leaf) => self.place(leaf, leaf.nr_ended(start), vma),
            NodeRef::Inner(inner) => {
                let i = inner.place_of(start);
                let (child, split) = self.insert_below(inner.child(i), vma);
                inner.put(i, &self.branch(child));
                split.and_then(|right| self.place(inner, i + 1, &self.branch(right)))
            }
        };
        (id, split)
    }

    /// Puts the entry into the node at `at`; gives the new right half if the
    /// node was full.
    fn place<S: Slots>(&mut self, node: &S, at: usize, entry: &S::Entry) -> Option<NodeId> {
        if node.len() < S::MAX {
            node.insert_at(at, entry);
            return None;
        }
        let right = self.fresh(node.header().level());
        node.split_insert(self.tree.view::<S>(right), at, entry);
        Some(right)
    }

    /// A root above two nodes.
    fn grow(&mut self, left: NodeId, right: NodeId) -> NodeId {
        let root = self.fresh(self.tree.header(left).level() + 1);
        let inner = self.tree.view::<Inner>(root);
        inner.insert_at(0, &self.branch(left));
        inner.insert_at(1, &self.branch(right));
        root
    }

    /// Gives the node that takes the place of `id`, without the VMA at `start`. It may have too few
    /// entries then, which its parent repairs.
    fn remove_below(&mut self, id: NodeId, start: u64) -> NodeId {
        let id = self.own(id);
        match self.tree.node(id) {
            NodeRef::Leaf(leaf) => leaf.remove_at(leaf.nr_ended(start), 1),
            NodeRef::Inner(inner) => {
                let i = inner.place_of(start);
                let child = self.remove_below(inner.child(i), start);
                inner.put(i, &self.branch(child));
                match self.tree.node(child) {
                    NodeRef::Leaf(leaf) if leaf.len() < Leaf::MIN => self.mend::<Leaf>(inner, i),
                    NodeRef::Inner(below) if below.len() < Inner::MIN => self.mend::<Inner>(inner, i),
                    _ => {}
                }
            }
        }
        id
    }

    /// Joins child `i`, which has too few entries, with a neighbour.
    ///
    /// ```text
    ///   [A B] [C D E F G H I]   -->  [A B C D] [E F G H I]   too many for one
    ///   [A B] [C D E]           -->  [A B C D E]             one node less
    /// ```
    fn mend<S: Slots>(&mut self, inner: &Inner, i: usize) {
        // The right neighbour, the left one of the last child.
        let i = if i + 1 < inner.len() { i } else { i - 1 };
        let (left, right) = (self.own(inner.child(i)), self.own(inner.child(i + 1)));
        if self.tree.view::<S>(left).join(self.tree.view::<S>(right)) {
            self.discard(right);
            inner.remove_at(i + 1, 1);
        } else {
            inner.put(i + 1, &self.branch(right));
        }
        inner.put(i, &self.branch(left));
    }

    /// Drops a useless root: an inner node with one child, or an empty leaf. The child has as
    /// many entries as it needs.
    fn shrink(&mut self) {
        let below = match self.tree.node(self.root) {
            NodeRef::Leaf(leaf) if leaf.len() == 0 => NodeId::NONE,
            NodeRef::Inner(inner) if inner.len() == 1 => inner.child(0),
            _ => return,
        };
        self.discard(self.root);
        self.root = below;
    }

    fn replace_below(&mut self, id: NodeId, start: u64, vma: &Vma) -> NodeId {
        let id = self.own(id);
        match self.tree.node(id) {
            NodeRef::Leaf(leaf) => leaf.put(leaf.nr_ended(start), vma),
            NodeRef::Inner(inner) => {
                let i = inner.place_of(start);
                let child = self.replace_below(inner.child(i), start, vma);
                inner.put(i, &self.branch(child));
            }
        }
        id
    }
}

impl Inner {
    /// The child for `vpn`: the first that ends after it, or the last of all.
    fn place_of(&self, vpn: u64) -> usize {
        self.nr_ended(vpn).min(self.len() - 1)
    }
}
