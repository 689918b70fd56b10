//! The pool of nodes.
//!
//! Frames are added when an edit finds too few free nodes. Once a version with nodes in them is
//! published, they stay until the address space ends. So the memory of a node is always a node (see
//! `read`). Frames of an edit that is refused are freed.
//!
//! Locks on entry: the writer lock to add and to allocate; none to give back: an operation may end,
//! and the next one begin, before its grace period ends. With one allocating CPU the free list has
//! no ABA problem: nobody else removes the head that it sees, and a node returns to the list only
//! after that CPU has allocated it.

use super::Tree;
use super::layout::{Inner, Leaf, NODES_PER_FRAME};
use super::node::{NodeId, State};
use super::slots::Slots;
use crate::addr::{OptPfn, Pfn};
use crate::machine::Machine;
use crate::pace::Pace;
use crate::sync::Ordering;
use core::fmt;

/// Gives a zeroed frame that is the tree's from then on, or none.
pub type FrameSource<'s> = dyn FnMut() -> Option<Pfn> + 's;

/// How far the pool has grown.
#[derive(Clone, Copy)]
pub struct PoolMark(OptPfn);

/// The frame that was added last; each frame names the one before it.
fn last_frame<M: Machine>(tree: Tree<'_, M>) -> OptPfn {
    OptPfn::from_word(tree.root.pool.frames.get())
}

fn frame_before<M: Machine>(tree: Tree<'_, M>, pfn: Pfn) -> OptPfn {
    OptPfn::from_word(tree.header(NodeId::new(pfn, 0)).frame_link.get())
}

/// See [`Tree::pool_mark`].
pub(super) fn mark<M: Machine>(tree: Tree<'_, M>) -> PoolMark {
    PoolMark(last_frame(tree))
}

/// The frames that were added since the mark, newest first. A frame is not read after it was passed
/// on, because its receiver may free it.
fn frames_since<M: Machine>(tree: Tree<'_, M>, mark: PoolMark) -> impl Iterator<Item = Pfn> {
    let mut at = last_frame(tree);
    core::iter::from_fn(move || {
        let pfn = at.get().filter(|_| at != mark.0)?;
        at = frame_before(tree, pfn);
        Some(pfn)
    })
}

/// No frame for the nodes of an edit, or (25 million VMAs) no level left. The
/// tree is as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfNodes;

impl fmt::Display for OutOfNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("alloc: should have given a frame for the nodes of the VMA tree")
    }
}

/// Nodes linked through their headers.
#[derive(Clone, Copy)]
pub(super) struct Chain {
    pub(super) first: NodeId,
    last: NodeId,
    pub(super) nr_nodes: u64,
}

impl Chain {
    pub(super) const EMPTY: Chain = Chain { first: NodeId::NONE, last: NodeId::NONE, nr_nodes: 0 };

    /// Puts a node of the published version on the chain. Readers may be in it, but do not read its
    /// link.
    pub(super) fn retire<M: Machine>(&mut self, tree: Tree<'_, M>, id: NodeId) {
        tree.header(id).set_state(State::Retired, self.first);
        if self.first.is_none() {
            self.last = id;
        }
        self.first = id;
        self.nr_nodes += 1;
    }

    /// Gives each node a new state; `f` gets the name and the next one's.
    fn restate<M: Machine>(&self, tree: Tree<'_, M>, f: impl Fn(NodeId, NodeId)) {
        let mut id = self.first;
        for _ in 0..self.nr_nodes {
            let (_, next) = tree.header(id).state();
            f(id, next);
            id = next;
        }
    }

    /// The nodes were not replaced after all.
    pub(super) fn revive<M: Machine>(&self, tree: Tree<'_, M>) {
        self.restate(tree, |id, _| tree.header(id).set_state(State::Live, NodeId::NONE));
    }
}

/// The nodes that a version no longer has. Readers may still be in them:
/// [`free`](Retired::free) them after a grace period that began after the
/// publication. Dropped, they are lost until the address space ends.
#[must_use = "nodes that are not freed are lost until the address space ends"]
pub struct Retired<'a, M: Machine> {
    tree: Tree<'a, M>,
    pub(super) chain: Chain,
}

impl<'a, M: Machine> Retired<'a, M> {
    pub(super) fn new(tree: Tree<'a, M>, chain: Chain) -> Retired<'a, M> {
        Retired { tree, chain }
    }

    /// How many there are.
    pub fn nr_nodes(&self) -> u64 {
        self.chain.nr_nodes
    }

    /// The version that had them is the published one again.
    pub(super) fn revive(self) {
        self.chain.revive(self.tree);
    }

    /// Appends those of `other`, of the same tree, so that both wait for one grace
    /// period: one that begins after both publications.
    pub fn append(&mut self, other: Retired<'a, M>) {
        debug_assert!(core::ptr::eq(self.tree.root, other.tree.root), "other: should be of the same tree");
        let (ours, theirs) = (self.chain, other.chain);
        if theirs.first.is_none() {
            return;
        }
        self.tree.header(theirs.last).set_state(State::Retired, ours.first);
        let last = if ours.first.is_none() { theirs.last } else { ours.last };
        self.chain = Chain { first: theirs.first, last, nr_nodes: ours.nr_nodes + theirs.nr_nodes };
    }

    /// Defers them to the next grace period that an operation waits for anyway. Under the writer
    /// lock.
    pub fn defer(self) {
        let pool = &self.tree.root.pool;
        if self.chain.first.is_none() {
            return;
        }
        let before = NodeId::from_root_word(pool.deferred_first.get());
        self.tree.header(self.chain.last).set_state(State::Retired, before);
        if before.is_none() {
            pool.deferred_last.set(self.chain.last.to_root_word());
        }
        pool.deferred_first.set(self.chain.first.to_root_word());
        pool.nr_deferred.add_owned(self.chain.nr_nodes);
    }

    /// Gives them back to the pool. No lock is needed.
    pub fn free(self) {
        let tree = self.tree;
        self.chain.restate(tree, |id, next| {
            tree.header(id).head.set(0);
            tree.header(id).set_state(State::Free, next);
        });
        push(tree, &self.chain);
    }
}

/// All that was deferred. Under the writer lock.
pub(super) fn claim_deferred<M: Machine>(tree: Tree<'_, M>) -> Retired<'_, M> {
    let pool = &tree.root.pool;
    let chain = Chain {
        first: NodeId::from_root_word(pool.deferred_first.get()),
        last: NodeId::from_root_word(pool.deferred_last.get()),
        nr_nodes: pool.nr_deferred.get(),
    };
    [&pool.deferred_first, &pool.deferred_last, &pool.nr_deferred].iter().for_each(|w| w.set(0));
    Retired::new(tree, chain)
}

/// Puts a chain of nodes in state `Free` on the pool's list.
fn push<M: Machine>(tree: Tree<'_, M>, chain: &Chain) {
    if chain.first.is_none() {
        return;
    }
    let pool = &tree.root.pool;
    let mut head = pool.free.load(Ordering::Relaxed);
    loop {
        tree.header(chain.last).set_state(State::Free, NodeId::from_root_word(head));
        // Release: the allocating CPU finds the links, and on reuse none of our stores follows its
        // own.
        match pool.free.compare_exchange(head, chain.first.to_root_word(), Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => head = now,
        }
    }
    // After the push, so that the count never promises what is not there.
    pool.nr_free.fetch_add(chain.nr_nodes, Ordering::Release);
}

/// Gives back one node that no reader has ever seen.
pub(super) fn give<M: Machine>(tree: Tree<'_, M>, id: NodeId) {
    tree.header(id).head.set(0);
    push(tree, &Chain { first: id, last: id, nr_nodes: 1 });
}

/// A node for the transaction `serial`, empty; [`reserve`] has made sure that
/// there is one.
pub(super) fn alloc<M: Machine>(tree: Tree<'_, M>, serial: u64, level: u8) -> NodeId {
    let pool = &tree.root.pool;
    let mut head = pool.free.load(Ordering::Acquire);
    loop {
        let id = NodeId::from_root_word(head);
        assert!(!id.is_none(), "an edit allocates no more nodes than it has reserved");
        let header = tree.header(id);
        let (state, next) = header.state();
        debug_assert_eq!(state, State::Free);
        match pool.free.compare_exchange(head, next.to_root_word(), Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => {
                pool.nr_free.fetch_sub(1, Ordering::Relaxed);
                header.set_state(State::Live, NodeId::NONE);
                header.stamp.set(serial);
                match level {
                    0 => tree.view::<Leaf>(id).clear(level),
                    _ => tree.view::<Inner>(id).clear(level),
                }
                return id;
            }
            Err(now) => head = now,
        }
    }
}

/// Makes sure that `nr_nodes` are free. Nodes that were added stay if it fails.
pub(super) fn reserve<M: Machine>(tree: Tree<'_, M>, nr_nodes: u64, alloc: &mut FrameSource) -> Result<(), OutOfNodes> {
    let pool = &tree.root.pool;
    while pool.nr_free.load(Ordering::Acquire) < nr_nodes {
        let pfn = alloc().ok_or(OutOfNodes)?;
        debug_assert!(pfn.0 != 0, "alloc: should give a frame other than frame 0");
        let first = NodeId::new(pfn, 0);
        tree.header(first).frame_link.set(pool.frames.get());
        pool.frames.set(OptPfn::some(pfn).to_word());
        pool.nr_frames.add_owned(1);
        for slot in 0..NODES_PER_FRAME {
            give(tree, NodeId::new(pfn, slot));
        }
    }
    Ok(())
}

/// Stamp of the nodes of a frame that goes back; no transaction has that number.
const GOING: u64 = u64::MAX;

/// See [`Tree::shrink_pool`].
pub(super) fn shrink<M: Machine>(tree: Tree<'_, M>, mark: PoolMark, f: &mut dyn FnMut(Pfn)) {
    let pool = &tree.root.pool;
    let mut pace = Pace::new(tree.machine);
    let mut nr_frames = 0;
    for pfn in frames_since(tree, mark) {
        (0..NODES_PER_FRAME).for_each(|slot| {
            pace.step();
            tree.header(NodeId::new(pfn, slot)).stamp.set(GOING);
        });
        nr_frames += 1;
    }
    if nr_frames == 0 {
        return;
    }
    // All at once: nobody else allocates, and CPUs that free nodes start a new list.
    let mut id = NodeId::from_root_word(pool.free.swap(0, Ordering::Acquire));
    let (mut kept, mut nr_going) = (Chain::EMPTY, 0);
    while !id.is_none() {
        pace.step();
        let header = tree.header(id);
        let (_, next) = header.state();
        if header.stamp.get() == GOING {
            nr_going += 1;
        } else {
            header.set_state(State::Free, kept.first);
            let last = if kept.first.is_none() { id } else { kept.last };
            kept = Chain { first: id, last, nr_nodes: kept.nr_nodes + 1 };
        }
        id = next;
    }
    debug_assert_eq!(nr_going, nr_frames * NODES_PER_FRAME, "mark: no version has nodes that came after it");
    pool.nr_free.fetch_sub(nr_going + kept.nr_nodes, Ordering::Relaxed);
    push(tree, &kept);
    for pfn in frames_since(tree, mark) {
        pace.step();
        f(pfn);
    }
    pool.frames.set(mark.0.to_word());
    pool.nr_frames.add_owned(nr_frames.wrapping_neg());
}

/// See [`Tree::pool_frames`].
pub(super) fn for_each_frame<M: Machine>(tree: Tree<'_, M>, f: &mut dyn FnMut(Pfn)) {
    let mut pace = Pace::new(tree.machine);
    for pfn in frames_since(tree, PoolMark(OptPfn::NONE)) {
        pace.step();
        f(pfn);
    }
}
