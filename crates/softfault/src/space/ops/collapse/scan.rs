//! Checks what may be collapsed: the PMD range, its leaf table, and the policy's decision.
//!
//! The first check is under the writer lock; the second one is of a detached table.
//!
//! Locks on entry: the writer lock, or none for a detached table.

use crate::account::Event;
use crate::addr::{Pfn, Vpn};
use crate::machine::{Machine, Tick};
use crate::policy::collapse::{self, CollapseLimits, CollapseQuestion, CollapseRefusal};
use crate::space::AddressSpace;
use crate::space::Vm;
use crate::space::lock::Writer;
use crate::space::vma::{ObjectId, Vma};
use crate::sync::Word;
use crate::table::entry::Slot;
use crate::table::format::{self, Entry};
use crate::table::place::PmdSlot;
use crate::table::walk::{self, Walk};

/// The state of a leaf table: the counts for the policy, and what the collapse itself needs.
pub(super) struct Survey {
    question: CollapseQuestion,
    /// First frame, if all pages are in order in one aligned block.
    pub(super) in_place: Option<Pfn>,
    pub(super) accessed: bool,
    pub(super) dirty: bool,
}

/// A PMD range that may be collapsed.
pub(super) struct Scan<'a, M: Machine> {
    pub(super) vma: Vma,
    pub(super) pmd: PmdSlot<'a, M::Format>,
    pub(super) table: Pfn,
    pub(super) survey: Survey,
}

impl<M: Machine> AddressSpace<'_, M> {
    /// Finds the VMA that covers the whole PMD range and may be collapsed, and surveys its leaf
    /// table.
    pub(super) fn scan(
        &self,
        writer: &Writer<'_, M>,
        base: Vpn,
        allowed: &dyn Fn(&Vma) -> bool,
        limits: &CollapseLimits,
    ) -> Result<Scan<'_, M>, CollapseRefusal> {
        let found = self.tree(writer).lookup(base).map(|f| f.vma);
        let vma = found.filter(|vma| Self::has_stretch(vma, base)).ok_or(CollapseRefusal::OutsideVma)?;
        if !allowed(&vma) {
            return Err(CollapseRefusal::NotAllowed);
        }
        let (pmd, table) = self.collapse_place(writer, base)?;
        let survey = self.survey(table);
        crate::pace::answer(&self.vm.machine);
        self.verdict(&survey, limits)?;
        Ok(Scan { vma, pmd, table, survey })
    }

    pub(super) fn has_stretch(vma: &Vma, base: Vpn) -> bool {
        let end = base.0.saturating_add(Vm::<M>::NR_SUB_FRAMES);
        let is_inside = vma.range.start <= base && vma.range.end >= Vpn(end);
        is_inside && vma.object == ObjectId::NONE && base.0.is_multiple_of(Vm::<M>::NR_SUB_FRAMES)
    }

    /// Asks the policy, and refuses tables that cannot be collapsed even if it agrees.
    pub(super) fn verdict(&self, survey: &Survey, limits: &CollapseLimits) -> Result<(), CollapseRefusal> {
        collapse::linux(&survey.question, limits)?;
        let CollapseQuestion { nr_pinned, nr_guards, nr_poisoned, nr_swapped, nr_busy, .. } = survey.question;
        if nr_pinned + nr_guards + nr_poisoned + nr_swapped + nr_busy > 0 {
            self.vm.count(Event::PlanRejected, 1);
            return Err(CollapseRefusal::Busy);
        }
        Ok(())
    }

    /// Finds the entry of level 1 and the leaf table that it points to.
    pub(super) fn collapse_place(
        &self,
        writer: &Writer<'_, M>,
        base: Vpn,
    ) -> Result<(PmdSlot<'_, M::Format>, Pfn), CollapseRefusal> {
        self.assert_writer(writer);
        let machine = &self.vm.machine;
        let leaf = match walk::leaf_table(machine, self.root, base, writer) {
            Ok(table) => Some(table),
            Err(Walk::Huge(_)) => return Err(CollapseRefusal::AlreadyHuge),
            Err(Walk::Hole(_)) => return Err(CollapseRefusal::Empty),
            Err(Walk::Owned | Walk::Leaf(_)) => None,
        };
        match (walk::pmd_table(machine, self.root, base, writer), leaf) {
            (Some(table), Some(leaf)) => {
                let index = format::index_of::<M::Format>(base.0, 1);
                let slot = Slot::new(walk::entry(machine, table, index), 1);
                Ok((PmdSlot { slot, table, base }, leaf))
            }
            _ => Err(CollapseRefusal::Busy),
        }
    }

    pub(super) fn entries_of(&self, table: Pfn) -> impl Iterator<Item = (u32, Slot<'_, M::Format>)> {
        let words: &[Word; 512] = walk::entries(&self.vm.machine, table);
        let nr = Vm::<M>::NR_SUB_FRAMES as usize;
        words.iter().take(nr).enumerate().map(|(i, word)| {
            self.vm.machine.tick(Tick::Step);
            (i as u32, Slot::new(word, 0))
        })
    }

    pub(super) fn survey(&self, table: Pfn) -> Survey {
        let mut survey =
            Survey { question: CollapseQuestion::default(), in_place: None, accessed: false, dirty: false };
        let (mut first, mut in_order) = (None, true);
        let question = &mut survey.question;
        for (i, slot) in self.entries_of(table) {
            let leaf = match slot.observe().entry {
                Entry::Leaf(leaf) if leaf.pfn != self.vm.frames.zero => leaf,
                Entry::Leaf(_) | Entry::None => {
                    question.nr_none += 1;
                    continue;
                }
                Entry::Guard => {
                    question.nr_guards += 1;
                    continue;
                }
                Entry::Poison => {
                    question.nr_poisoned += 1;
                    continue;
                }
                Entry::Swap(_) => {
                    question.nr_swapped += 1;
                    continue;
                }
                Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) | Entry::Table(_) => {
                    question.nr_busy += 1;
                    continue;
                }
            };
            let state = self.vm.frames.desc(leaf.pfn).state();
            question.nr_shared += u64::from(state.nr_maps() > 1);
            question.nr_pinned += u64::from(state.pins() > 0);
            question.nr_referenced += u64::from(leaf.accessed);
            survey.accessed |= leaf.accessed;
            survey.dirty |= leaf.dirty;
            in_order &= *first.get_or_insert(leaf.pfn.0.wrapping_sub(i)) == leaf.pfn.0.wrapping_sub(i);
        }
        let nr_others =
            question.nr_none + question.nr_guards + question.nr_poisoned + question.nr_swapped + question.nr_busy;
        let is_whole = in_order && nr_others + question.nr_shared == 0;
        let is_aligned = |pfn: &u32| u64::from(*pfn).is_multiple_of(Vm::<M>::NR_SUB_FRAMES);
        survey.in_place = first.filter(|pfn| is_whole && is_aligned(pfn)).map(Pfn);
        survey
    }
}
