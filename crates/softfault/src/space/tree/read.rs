//! Reads one version of the tree: for faults, and for writers with a version of their own.
//!
//! Locks on entry: none; a section, or the writer lock. A reader without either, or after the end
//! of its section, gets wrong answers, but nothing worse: the frames of published nodes stay with
//! the address space, only names of such nodes are followed, the level falls with every step, and
//! lengths are bounded.

use super::Tree;
use super::layout::{HEIGHT_MAX, INNER_MAX, Inner, LEAF_MAX, Leaf};
use super::node::{NodeId, nr_up_to};
use super::slots::Slots;
use crate::addr::{PageRange, Vpn};
use crate::machine::Machine;
use crate::pace::Pace;
use crate::space::vma::Vma;
use crate::sync::Word;
use core::ops::ControlFlow;

/// One version of the tree.
pub struct Snapshot<'a, M> {
    pub(super) tree: Tree<'a, M>,
    pub(super) root: NodeId,
}

// Not derived: a derive would ask for `M: Copy`.
impl<M> Clone for Snapshot<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M> Copy for Snapshot<'_, M> {}

/// A VMA in its node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a> {
    /// The VMA.
    pub vma: Vma,
    /// Its reference count, for the fault-locking mode that has one. The copy of the
    /// VMA in the next version has a count of its own, which starts at 0.
    pub refs: &'a Word,
}

impl<'a> Found<'a> {
    #[inline(always)]
    fn at(leaf: &'a Leaf, i: usize) -> Found<'a> {
        Found { vma: leaf.entry(i), refs: &leaf.refs[i] }
    }
}

impl<'a, M: Machine> Snapshot<'a, M> {
    #[inline(always)]
    pub(super) fn at(tree: Tree<'a, M>, root: NodeId) -> Snapshot<'a, M> {
        Snapshot { tree, root }
    }

    /// The VMA that holds `vpn`.
    #[inline(always)]
    pub fn lookup(&self, vpn: Vpn) -> Option<Found<'a>> {
        let (leaf, i) = self.seek(vpn)?;
        (leaf.records[i].start.get() <= vpn.0).then(|| Found::at(leaf, i))
    }

    /// The first VMA that ends after `vpn`: it holds `vpn` or lies above.
    #[inline]
    pub fn next(&self, vpn: Vpn) -> Option<Found<'a>> {
        let (leaf, i) = self.seek(vpn)?;
        Some(Found::at(leaf, i))
    }

    /// Where the hole at `vpn` ends, if a VMA ends it; for a page that is in
    /// none.
    pub fn next_start(&self, vpn: Vpn) -> Option<Vpn> {
        Some(self.next(vpn)?.vma.range.start)
    }

    /// Where the hole at `vpn` starts, if a VMA is below; for a page that is in
    /// none.
    pub fn prev_end(&self, vpn: Vpn) -> Option<Vpn> {
        Some(self.prev(vpn)?.vma.range.end)
    }

    /// The last VMA that starts before `vpn`.
    pub fn prev(&self, vpn: Vpn) -> Option<Found<'a>> {
        let (leaf, i) = self.seek_back(vpn)?;
        Some(Found::at(leaf, i))
    }

    /// Calls `f` with each VMA that overlaps `range`, lowest first, until it breaks. Answers other
    /// CPUs: called under the writer lock or at rest, not in a section.
    pub fn for_each(&self, range: PageRange, f: &mut dyn FnMut(Vma) -> ControlFlow<()>) -> ControlFlow<()> {
        if range.is_empty() {
            return ControlFlow::Continue(());
        }
        let mut from = range.start;
        let mut pace = Pace::new(self.tree.machine);
        for _ in 0..self.tree.nr_nodes() {
            let Some((leaf, first)) = self.seek(from) else { break };
            for i in first..leaf.len() {
                let vma = leaf.entry(i);
                if vma.range.start >= range.end {
                    return ControlFlow::Continue(());
                }
                pace.page();
                f(vma)?;
                from = from.max(vma.range.end);
            }
            if from >= range.end {
                break;
            }
        }
        ControlFlow::Continue(())
    }

    /// The leaf and place of the first VMA that ends after `vpn`. It is below
    /// the first child that ends after `vpn`: there is no way back up.
    #[inline(always)]
    fn seek(&self, vpn: Vpn) -> Option<(&'a Leaf, usize)> {
        let mut id = self.root;
        let mut above = HEIGHT_MAX;
        while !id.is_none() {
            let (level, len) = self.tree.header(id).level_and_len();
            if level == 0 {
                let leaf = self.tree.view::<Leaf>(id);
                let len = len.min(LEAF_MAX);
                let i = nr_up_to(&leaf.ends, vpn.0);
                return (i < len).then_some((leaf, i));
            }
            let inner = self.tree.view::<Inner>(id);
            let len = len.min(INNER_MAX);
            let i = nr_up_to(&inner.last_end, vpn.0);
            if i >= len || level >= above {
                return None;
            }
            id = inner.child(i);
            above = level;
        }
        None
    }

    /// The leaf and place of the last VMA that starts before `vpn`, likewise.
    fn seek_back(&self, vpn: Vpn) -> Option<(&'a Leaf, usize)> {
        let mut id = self.root;
        let mut above = HEIGHT_MAX;
        while !id.is_none() {
            let (level, len) = self.tree.header(id).level_and_len();
            if level == 0 {
                let leaf = self.tree.view::<Leaf>(id);
                let records = &leaf.records[..len.min(LEAF_MAX)];
                return records.iter().rposition(|r| r.start.get() < vpn.0).map(|i| (leaf, i));
            }
            let inner = self.tree.view::<Inner>(id);
            let starts = &inner.first_start[..len.min(INNER_MAX)];
            let i = starts.iter().rposition(|w| w.get() < vpn.0)?;
            if level >= above {
                return None;
            }
            id = inner.child(i);
            above = level;
        }
        None
    }
}
