//! The VMAs of an address space, in a B+tree that readers walk without a lock.
//!
//! Published nodes never change. A writer copies the path that it edits into
//! nodes of its own ([`Txn`]), publishes the new version by one store of the
//! root word, and gives the replaced nodes back once no reader can be inside
//! them ([`Retired`]). A reader sees one version or the other, never a mixture.
//!
//! ```text
//!   root word ---> inner ------+-------------+
//!                    |         |             |      txn: insert Y
//!                  AAA*BB    C*DD**E       FF*G
//!                                             \
//!   new root ----> inner' --(A)--(C)--------> FF*GY   two nodes made,
//!                                                     two retired
//! ```
//!
//! Neighbours: [`vma`](super::vma) is what is stored; the frames that nodes lie
//! in come from the caller that edits (a closure), so that the tree knows no allocator.
//!
//! Locks: none is taken here. A [`Tree`] is what the holder of the writer lock has, and
//! a [`Txn`] begins on one; a [`Snapshot`] is what a CPU in a section has
//! (`space/read.rs`, which asks for the tokens). [`Retired::free`] asks for a grace
//! period and no lock.

mod check;
mod displaced;
mod edit;
mod gap;
mod indices;
mod layout;
mod node;
mod pool;
mod read;
mod slots;
mod tally;
#[cfg(test)]
mod tests;
mod txn;

pub use check::TreeFault;
pub(crate) use displaced::Displaced;
pub(crate) use gap::{Direction, GapRequest};
pub use layout::TreeRoot;
pub use node::NodeId;
pub use pool::{OutOfNodes, PoolMark, Retired};
pub(crate) use read::Found;
pub use read::Snapshot;
pub(crate) use tally::Tally;
pub use txn::{Trial, TwoStep, Txn};

use crate::addr::{PageRange, Pfn, Vpn};
use crate::machine::Machine;
use crate::mem::{Words, view};
use crate::space::vma::Vma;
use crate::sync::Ordering;
use core::ops::ControlFlow;
use layout::{Header, Inner, Leaf};
use node::NodeRef;

/// A tree: its root words and the machine whose frames the nodes lie in.
pub struct Tree<'a, M> {
    machine: &'a M,
    root: &'a TreeRoot,
}

// Not derived: a derive would ask for `M: Copy`.
impl<M> Clone for Tree<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M> Copy for Tree<'_, M> {}

impl<'a, M: Machine> Tree<'a, M> {
    /// The tree at `root`; zeroed words are an empty one.
    #[inline(always)]
    pub(in crate::space) fn new(machine: &'a M, root: &'a TreeRoot) -> Tree<'a, M> {
        Tree { machine, root }
    }

    /// The version published last. It can be read until the section that it was
    /// taken in ends.
    #[inline(always)]
    pub fn snapshot(self) -> Snapshot<'a, M> {
        // Acquire: pairs with the store in `Txn::publish`; every node of this
        // version was complete before it, so that the walk needs no more.
        Snapshot::at(self, NodeId::from_root_word(self.root.root.load(Ordering::Acquire)))
    }

    /// Number of VMAs in the version published last.
    pub fn nr_in_tree(&self) -> u64 {
        self.root.tally.nr_vmas.get()
    }

    /// The counts of the version published last.
    pub fn tally(&self) -> Tally {
        self.root.tally.get()
    }

    /// The VMA that holds `vpn`: what each fault asks.
    #[inline(always)]
    pub fn lookup(self, vpn: Vpn) -> Option<Found<'a>> {
        self.snapshot().lookup(vpn)
    }

    /// The first VMA that ends after `vpn`: it holds `vpn` or lies above.
    #[inline]
    pub fn next(self, vpn: Vpn) -> Option<Found<'a>> {
        self.snapshot().next(vpn)
    }

    /// The last VMA that starts before `vpn`.
    pub fn prev(self, vpn: Vpn) -> Option<Found<'a>> {
        self.snapshot().prev(vpn)
    }

    /// Calls `f` with each VMA that has a page in `range`, lowest first.
    pub fn for_each(self, range: PageRange, f: &mut dyn FnMut(Vma) -> ControlFlow<()>) -> ControlFlow<()> {
        self.snapshot().for_each(range, f)
    }

    /// Calls `f` with each frame that nodes lie in: for the end of the address
    /// space, when nobody can read the tree any more. `f` may reuse the frame.
    pub fn pool_frames(&self, f: &mut dyn FnMut(Pfn)) {
        pool::for_each_frame(*self, f);
    }

    /// How far the pool has grown, for [`shrink_pool`](Self::shrink_pool).
    pub fn pool_mark(&self) -> PoolMark {
        pool::mark(*self)
    }

    /// Gives each frame that was added since `mark` to `f`, who may reuse it. No version was
    /// published since, and no transaction is in progress.
    pub fn shrink_pool(self, mark: PoolMark, f: &mut dyn FnMut(Pfn)) {
        pool::shrink(self, mark, f);
    }

    /// The nodes that were left to the next grace period.
    pub fn claim_deferred(self) -> Retired<'a, M> {
        pool::claim_deferred(self)
    }

    /// How many these are.
    pub fn nr_deferred(&self) -> u64 {
        self.root.pool.nr_deferred.get()
    }

    /// Nodes that the pool's frames have room for: more cannot be in a tree, so
    /// this bounds every walk, whatever a stale reader finds.
    fn nr_nodes(&self) -> u64 {
        self.root.pool.nr_frames.get() * layout::NODES_PER_FRAME
    }

    #[inline(always)]
    fn view<T: Words>(&self, id: NodeId) -> &'a T {
        view(self.machine, id.pfn(), id.offset())
    }

    #[inline(always)]
    fn header(&self, id: NodeId) -> &'a Header {
        self.view(id)
    }

    fn node(&self, id: NodeId) -> NodeRef<'a> {
        self.node_at(id, self.header(id).level())
    }

    #[inline(always)]
    fn node_at(&self, id: NodeId, level: u8) -> NodeRef<'a> {
        match level {
            0 => NodeRef::Leaf(self.view::<Leaf>(id)),
            _ => NodeRef::Inner(self.view::<Inner>(id)),
        }
    }
}
