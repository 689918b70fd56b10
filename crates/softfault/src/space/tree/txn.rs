//! Transactions: editing a version, and publishing it.
//!
//! Edits may fail, because they allocate frames; publishing cannot. Dropping a transaction undoes
//! it. Nodes that it made have its number as their stamp: it edits those in place, and copies all
//! others first. `edit` has the edits.
//!
//! Locks on entry: the writer lock, from [`Txn::begin`] until the transaction is
//! published or dropped.

use super::node::{NodeId, NodeRef};
use super::pool::{Chain, Retired, give};
use super::read::Snapshot;
use super::slots::Slots;
use super::tally::Tally;
use super::{Tree, pool};
use crate::machine::Machine;
use crate::pace::Pace;
use crate::sync::Ordering;

/// A version that is being edited.
#[must_use = "a transaction that is not published has no effect"]
pub struct Txn<'a, M: Machine> {
    pub(super) tree: Tree<'a, M>,
    /// The version that it started from.
    base: NodeId,
    pub(super) root: NodeId,
    pub(super) tally: Tally,
    pub(super) serial: u64,
    retired: Chain,
}

impl<'a, M: Machine> Txn<'a, M> {
    /// Starts from the version published last.
    pub fn begin(tree: Tree<'a, M>) -> Txn<'a, M> {
        Txn::begin_on(tree, tree.snapshot().root, tree.tally())
    }

    fn begin_on(tree: Tree<'a, M>, base: NodeId, tally: Tally) -> Txn<'a, M> {
        tree.root.txn_serial.add_owned(1);
        Txn { tree, base, root: base, tally, serial: tree.root.txn_serial.get(), retired: Chain::EMPTY }
    }

    /// The version as edited so far. The borrow prevents edits while it is read.
    pub fn view(&self) -> Snapshot<'_, M> {
        Snapshot::at(self.tree, self.root)
    }

    /// Number of VMAs in the version as edited so far.
    pub fn nr_in_tree(&self) -> u64 {
        self.tally.nr_vmas
    }

    /// Makes it the version that readers see from now on.
    pub fn publish(mut self) -> Retired<'a, M> {
        let words = self.tree.root;
        debug_assert_eq!(words.root.get(), self.base.to_root_word(), "a second writer, or versions out of order");
        words.tally.set(self.tally);
        // Release: the nodes are complete before they can be found. SeqCst: what
        // the caller reads next, to learn who may be inside, is not read before
        // (on machines where the store is a full barrier; a caller that needs it
        // everywhere has a fence of its own).
        words.root.store(self.root.to_root_word(), Ordering::SeqCst);
        self.base = self.root;
        self.root = NodeId::NONE;
        Retired::new(self.tree, core::mem::replace(&mut self.retired, Chain::EMPTY))
    }

    /// Seals the version as edited so far and starts another one on top of it, so that both are
    /// ready before the first is published.
    pub fn seal(self) -> TwoStep<'a, M> {
        let second = Txn::begin_on(self.tree, self.root, self.tally);
        TwoStep { second, first: self }
    }

    /// A new, empty node.
    pub(super) fn fresh(&self, level: u8) -> NodeId {
        pool::alloc(self.tree, self.serial, level)
    }

    /// The node itself if this transaction made it, else a copy that takes its
    /// place.
    pub(super) fn own(&mut self, id: NodeId) -> NodeId {
        let header = self.tree.header(id);
        if header.stamp.get() == self.serial {
            return id;
        }
        let copy = self.fresh(header.level());
        match self.tree.node(id) {
            NodeRef::Leaf(leaf) => self.tree.view::<super::Leaf>(copy).append(leaf, 0, leaf.len()),
            NodeRef::Inner(inner) => self.tree.view::<super::Inner>(copy).append(inner, 0, inner.len()),
        }
        self.retired.retire(self.tree, id);
        copy
    }

    /// Frees a node of its own that it no longer needs.
    pub(super) fn discard(&self, id: NodeId) {
        debug_assert_eq!(self.tree.header(id).stamp.get(), self.serial);
        give(self.tree, id);
    }

    /// Frees the nodes that this transaction made. They are connected: below a node of an earlier
    /// version there are only earlier ones.
    fn give_fresh(&self, id: NodeId, pace: &mut Pace<'_, M>) {
        if id.is_none() || self.tree.header(id).stamp.get() != self.serial {
            return;
        }
        if let NodeRef::Inner(inner) = self.tree.node(id) {
            (0..inner.len()).for_each(|i| self.give_fresh(inner.child(i), pace));
        }
        pace.step();
        give(self.tree, id);
    }
}

impl<M: Machine> Drop for Txn<'_, M> {
    /// Undoes the transaction. After [`Txn::publish`] there is nothing to do.
    fn drop(&mut self) {
        self.give_fresh(self.root, &mut Pace::new(self.tree.machine));
        self.retired.revive(self.tree);
    }
}

/// Two versions that are published one after the other. Between them a range is in no VMA while its
/// pages are removed (mmap(2) over a mapping), or in a VMA that is marked while they move
/// (mremap(2)).
///
/// ```text
///   base    **AAA*****    first   **********    second  **BBB*****
/// ```
#[must_use = "versions that are not published have no effect"]
pub struct TwoStep<'a, M: Machine> {
    // Dropped in this order: the second stands on the first.
    second: Txn<'a, M>,
    first: Txn<'a, M>,
}

impl<'a, M: Machine> TwoStep<'a, M> {
    /// The first version, as it was sealed.
    #[cfg(test)]
    pub(super) fn first(&self) -> Snapshot<'_, M> {
        self.first.view()
    }

    /// The second version, for edits; the first does not change with it.
    pub fn second(&mut self) -> &mut Txn<'a, M> {
        &mut self.second
    }

    /// Publishes the first version. The second remains, to be published or dropped.
    pub fn publish_first(self) -> (Retired<'a, M>, Txn<'a, M>) {
        (self.first.publish(), self.second)
    }

    /// Publishes the first version as a trial. The caller then publishes the second one, or the one
    /// before again.
    pub fn publish_trial(self) -> Trial<'a, M> {
        let first = &self.first;
        let (base, serial, root) = (first.base, first.serial, first.root);
        let tally = first.tree.tally();
        Trial { base: Base { root: base, tally }, root, serial, replaced: self.first.publish(), second: self.second }
    }
}

/// The version before a [`Trial`].
#[derive(Clone, Copy)]
struct Base {
    root: NodeId,
    tally: Tally,
}

/// A published version that may be rolled back. Neither way allocates a node, so
/// neither can fail.
///
/// ```text
///   base    **AAA*****    trial   **aaa*****    second  ******AAA*
/// ```
#[must_use = "a trial has to end in the second version or in the one before"]
pub struct Trial<'a, M: Machine> {
    base: Base,
    /// The version that readers see, and the transaction that made it.
    root: NodeId,
    serial: u64,
    /// Nodes of the version before that this one does not have. They keep their
    /// contents, so that this version can be replaced by that one.
    replaced: Retired<'a, M>,
    second: Txn<'a, M>,
}

impl<'a, M: Machine> Trial<'a, M> {
    /// Makes the second the version that readers see. Gives the nodes that only
    /// the two versions before it had.
    pub fn publish_second(self) -> Retired<'a, M> {
        let mut retired = self.replaced;
        retired.append(self.second.publish());
        retired
    }

    /// Makes the version before the one that readers see. Gives the nodes that
    /// only the trial had.
    pub fn roll_back(self) -> Retired<'a, M> {
        let Trial { base, root, serial, replaced, second } = self;
        let tree = second.tree;
        // Before anything else: its nodes stand on those of the trial.
        drop(second);
        let words = tree.root;
        debug_assert_eq!(words.root.get(), root.to_root_word(), "a second writer, or versions out of order");
        replaced.revive();
        words.tally.set(base.tally);
        // As in `Txn::publish`.
        words.root.store(base.root.to_root_word(), Ordering::SeqCst);
        let mut chain = Chain::EMPTY;
        retire_made_by(tree, serial, root, &mut chain);
        Retired::new(tree, chain)
    }
}

/// Retires the nodes of a published version that the transaction made. They hang
/// together, as in [`Txn::give_fresh`].
fn retire_made_by<M: Machine>(tree: Tree<'_, M>, serial: u64, id: NodeId, chain: &mut Chain) {
    if id.is_none() || tree.header(id).stamp.get() != serial {
        return;
    }
    if let NodeRef::Inner(inner) = tree.node(id) {
        (0..inner.len()).for_each(|i| retire_made_by(tree, serial, inner.child(i), chain));
    }
    chain.retire(tree, id);
}
