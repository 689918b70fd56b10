//! Building a new version of the VMA tree, in terms of operations.
//!
//! Locks on entry: the writer lock.

use super::AddressSpace;
use super::lock::Writer;
use super::tree::{OutOfNodes, Retired, Trial, TwoStep, Txn};
use super::vma::Vma;
use crate::addr::{PageRange, Pfn, Vpn};
use crate::frame::{Fill, FrameKind, MetaUse, Source};
use crate::machine::Machine;
use crate::pace::Pace;
use crate::sync::Ordering;

/// The source of frames for nodes when the pool is empty: none, or that of a holder. Only
/// [`prepare`](AddressSpace::prepare) makes one.
pub(crate) type Nodes<'s, M> = Option<&'s Source<'s, M>>;

/// Edits in progress. Dropping this undoes them.
pub(crate) struct Edit<'a, 'vm, M: Machine> {
    space: &'a AddressSpace<'vm, M>,
    writer: &'a Writer<'a, M>,
    txn: Txn<'vm, M>,
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    pub(crate) fn edit<'a>(&'a self, writer: &'a Writer<'_, M>) -> Edit<'a, 'vm, M> {
        self.assert_writer(writer);
        Edit { space: self, writer, txn: Txn::begin(self.tree(writer)) }
    }

    /// Raises the generation, after a tree was published or a table taken: later sections see it
    /// and look both up again.
    pub(crate) fn announce(&self, writer: &Writer<'_, M>) {
        self.assert_writer(writer);
        let generation = &self.data.generation;
        generation.store(generation.get() + 1, Ordering::Release);
    }

    /// Frees replaced nodes when nothing else has to wait: at once if no other CPU can be reading
    /// them, else with the next grace period, which this waits for only if many are deferred. So
    /// few mmap(2) of a program on many CPUs interrupt the others.
    pub(crate) fn free_retired(&self, writer: &Writer<'_, M>, retired: Retired<'vm, M>) {
        let alone = self.cpus().is_only(self.vm.machine.this_cpu());
        if !alone && self.tree(writer).nr_deferred() + retired.nr_nodes() < self.vm.tunables.deferred_nodes_max {
            return retired.defer();
        }
        let retired = self.with_deferred(writer, retired);
        self.wait_for_readers();
        retired.free();
    }

    /// Adds the nodes that were deferred to this grace period.
    pub(crate) fn with_deferred(&self, writer: &Writer<'_, M>, mut retired: Retired<'vm, M>) -> Retired<'vm, M> {
        self.assert_writer(writer);
        retired.append(self.tree(writer).claim_deferred());
        retired
    }

    /// A frame for tree nodes.
    fn node_frame(&self, nodes: Nodes<'_, M>) -> Option<Pfn> {
        let pfn = nodes?.frame(Fill::Fixed).ok()?;
        self.vm.frames.desc(pfn).assign(FrameKind::Meta, 0, u64::from(self.frame.0), MetaUse::Tree as u64);
        Some(pfn)
    }
}

impl<'a, 'vm, M: Machine> Edit<'a, 'vm, M> {
    pub(crate) fn nr_vmas_then(&self) -> u64 {
        self.txn.nr_in_tree()
    }

    /// For edits, with `nodes` for what they need.
    pub(crate) fn with<'e>(&'e mut self, nodes: Nodes<'e, M>) -> Lent<'e, 'vm, M> {
        Lent { space: self.space, txn: &mut self.txn, nodes }
    }

    /// Publishes it as the space's tree. The caller frees the retired nodes after a grace period.
    pub(crate) fn publish(self) -> Retired<'vm, M> {
        let retired = self.txn.publish();
        self.space.announce(self.writer);
        retired
    }

    /// Keeps the edits so far as a first version and continues with a second one.
    pub(crate) fn seal(self) -> TwoEdits<'a, 'vm, M> {
        TwoEdits { space: self.space, writer: self.writer, steps: self.txn.seal() }
    }
}

/// Two versions, both prepared, to be published one after the other.
pub(crate) struct TwoEdits<'a, 'vm, M: Machine> {
    space: &'a AddressSpace<'vm, M>,
    writer: &'a Writer<'a, M>,
    steps: TwoStep<'vm, M>,
}

impl<'a, 'vm, M: Machine> TwoEdits<'a, 'vm, M> {
    /// The second version, for edits, with `nodes` for what they need.
    pub(crate) fn second<'e>(&'e mut self, nodes: Nodes<'e, M>) -> Lent<'e, 'vm, M> {
        Lent { space: self.space, txn: self.steps.second(), nodes }
    }

    pub(crate) fn nr_vmas_then(&mut self) -> u64 {
        self.steps.second().nr_in_tree()
    }

    /// Publishes the first version; the second one comes with what is given back.
    pub(crate) fn publish_first(self) -> (Retired<'vm, M>, Edit<'a, 'vm, M>) {
        let (retired, txn) = self.steps.publish_first();
        self.space.announce(self.writer);
        (retired, Edit { space: self.space, writer: self.writer, txn })
    }

    /// Publishes the first version, which may be rolled back.
    pub(crate) fn publish_trial(self) -> TrialEdit<'a, 'vm, M> {
        let trial = self.steps.publish_trial();
        self.space.announce(self.writer);
        TrialEdit { space: self.space, writer: self.writer, trial }
    }
}

/// A first version that is published and may be rolled back.
#[must_use = "a trial has to end in the second version or in the one before"]
pub(crate) struct TrialEdit<'a, 'vm, M: Machine> {
    space: &'a AddressSpace<'vm, M>,
    writer: &'a Writer<'a, M>,
    trial: Trial<'vm, M>,
}

impl<'vm, M: Machine> TrialEdit<'_, 'vm, M> {
    /// Publishes the second version. The caller frees the retired nodes after a grace period.
    pub(crate) fn publish_second(self) -> Retired<'vm, M> {
        let retired = self.trial.publish_second();
        self.space.announce(self.writer);
        retired
    }

    /// Publishes the version before the trial again, without an allocation. The caller frees the
    /// retired nodes after a grace period.
    pub(crate) fn roll_back(self) -> Retired<'vm, M> {
        let retired = self.trial.roll_back();
        self.space.announce(self.writer);
        retired
    }
}

/// A version that is being edited.
pub(crate) struct Lent<'e, 'vm, M: Machine> {
    space: &'e AddressSpace<'vm, M>,
    txn: &'e mut Txn<'vm, M>,
    nodes: Nodes<'e, M>,
}

impl<'vm, M: Machine> Lent<'_, 'vm, M> {
    fn insert(&mut self, vma: Vma) -> Result<(), OutOfNodes> {
        let (space, nodes) = (self.space, self.nodes);
        self.txn.insert(vma, &mut || space.node_frame(nodes))
    }

    fn remove(&mut self, start: Vpn) -> Result<Option<Vma>, OutOfNodes> {
        let (space, nodes) = (self.space, self.nodes);
        self.txn.remove(start, &mut || space.node_frame(nodes))
    }

    fn replace(&mut self, start: Vpn, vma: Vma) -> Result<(), OutOfNodes> {
        let (space, nodes) = (self.space, self.nodes);
        self.txn.replace(start, vma, &mut || space.node_frame(nodes)).map(|_| ())
    }

    /// Removes the range from all VMAs, with `vma_split` at its ends.
    pub(crate) fn carve(&mut self, range: PageRange) -> Result<(), OutOfNodes> {
        let mut pace = Pace::new(&self.space.vm.machine);
        while let Some(vma) = self.first_in(range) {
            pace.step();
            self.cut(&vma, range)?;
        }
        Ok(())
    }

    fn first_in(&self, range: PageRange) -> Option<Vma> {
        self.txn.view().next(range.start).map(|f| f.vma).filter(|vma| vma.range.overlaps(&range))
    }

    /// ```text
    /// AAAAAA   vma        AA**AA   after, both ends kept
    ///   ++     range
    /// ```
    fn cut(&mut self, vma: &Vma, range: PageRange) -> Result<(), OutOfNodes> {
        let left = PageRange::new(vma.range.start, range.start.min(vma.range.end));
        let right = PageRange::new(range.end.max(vma.range.start), vma.range.end);
        match (left.is_empty(), right.is_empty()) {
            (true, true) => self.remove(vma.range.start).map(|_| ()),
            (false, true) => self.replace(vma.range.start, vma.part(left)),
            (true, false) => self.replace(vma.range.start, vma.part(right)),
            (false, false) => {
                self.replace(vma.range.start, vma.part(left))?;
                self.insert(vma.part(right))
            }
        }
    }

    /// Inserts a VMA into a hole, and merges it with neighbours that it continues.
    pub(crate) fn place(&mut self, vma: Vma) -> Result<(), OutOfNodes> {
        let mut whole = vma;
        let before = self.txn.view().prev(vma.range.start).map(|f| f.vma);
        if let Some(prev) = before.filter(|p| p.merges_with(&whole)) {
            self.remove(prev.range.start)?;
            let flags = prev.flags | whole.flags;
            whole = Vma { range: PageRange::new(prev.range.start, whole.range.end), flags, ..prev };
        }
        let behind = self.txn.view().lookup(vma.range.end).map(|f| f.vma);
        if let Some(next) = behind.filter(|n| whole.merges_with(n)) {
            self.remove(next.range.start)?;
            let flags = whole.flags | next.flags;
            whole = Vma { range: PageRange::new(whole.range.start, next.range.end), flags, ..whole };
        }
        self.insert(whole)
    }

    /// Replaces each part of a VMA in `range` by the result of `f`.
    pub(crate) fn rewrite(&mut self, range: PageRange, f: &mut dyn FnMut(&Vma) -> Vma) -> Result<(), OutOfNodes> {
        let mut at = range.start;
        let mut pace = Pace::new(&self.space.vm.machine);
        while let Some(vma) = self.first_in(PageRange::new(at, range.end)) {
            pace.step();
            let part = vma.part(vma.range.intersect(&PageRange::new(at, range.end)));
            at = part.range.end;
            let new = f(&part);
            if new != part {
                self.cut(&vma, part.range)?;
                self.place(new)?;
            }
        }
        Ok(())
    }

    /// Appends a VMA without merging: for copying a whole tree.
    pub(crate) fn append(&mut self, vma: Vma) -> Result<(), OutOfNodes> {
        let (space, nodes) = (self.space, self.nodes);
        self.txn.append(vma, &mut || space.node_frame(nodes))
    }
}
