//! Collapse: 512 small pages become a huge one.
//!
//! ```text
//! look      may it be? a huge frame, a twin        nothing is changed yet
//! detach    table ─▶ Busy; generation, shootdown, grace: nobody reaches the leaf
//!           table any more, and no pin is under way
//! look      again; on any doubt the table is put back as it was
//! copy      page by page; what nobody touched is zero
//! settle    old frames counted down, the leaf table emptied and put in deposit
//! publish   Busy ─▶ huge mapping
//! ```
//! Faults that come meanwhile find `Busy` and wait outside their sections. Where
//! the pages lie in one block in order, as after a split, nothing is copied: the
//! block becomes a folio again.
//!
//! Locks on entry: none, no section. Takes the writer lock.

use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{PageRange, Pfn, Rights, Vpn};
use crate::frame::{Fill, FrameKind, FreeBatch};
use crate::machine::{Flush, Machine, Tick};
use crate::mem;
use crate::notify::Why;
use crate::pace::Pace;
use crate::policy::collapse::{self, CollapseLimits, CollapseQuestion, CollapseRefusal};
use crate::space::AddressSpace;
use crate::space::vma::{ObjectId, Vma};
use crate::sync::Word;
use crate::table::entry::Slot;
use crate::table::format::{Entry, Leaf, span_of};
use crate::table::pmd::{self, PmdSlot};
use crate::table::walk::{self, Walk};
use crate::vm::Vm;

/// What the second look found, besides the counts.
struct Survey {
    question: CollapseQuestion,
    /// First frame, if all pages lie in one folio's place, in order.
    in_place: Option<Pfn>,
    accessed: bool,
    dirty: bool,
}

impl<M: Machine> AddressSpace<'_, M> {
    /// Makes the 2 MiB at `base`, aligned, one huge page, whatever the limits of
    /// khugepaged say: what `MADV_COLLAPSE` does with each of its parts.
    ///
    /// # Errors
    ///
    /// [`CollapseRefusal`]; everything is as before then.
    ///
    /// Source: madvise(2).
    pub fn collapse(&self, base: u64) -> Result<(), CollapseRefusal> {
        let _writer = self.write_lock();
        let base = Vpn::of(base);
        let vma = self.vma_over(base)?;
        if self.collapse_orders(vma.flags).is_empty() {
            return Err(CollapseRefusal::NotAllowed);
        }
        self.collapse_at(&vma, base, &CollapseLimits::NONE)
    }

    /// The VMA that has the whole stretch. Under the writer lock.
    fn vma_over(&self, base: Vpn) -> Result<Vma, CollapseRefusal> {
        let end = Vpn(base.0.saturating_add(Vm::<M>::NR_SUB_FRAMES));
        let found = self.tree().lookup(base).map(|f| f.vma);
        let fits = |vma: &Vma| vma.range.end >= end && vma.object == ObjectId::NONE;
        found
            .filter(|vma| fits(vma) && base.0.is_multiple_of(Vm::<M>::NR_SUB_FRAMES))
            .ok_or(CollapseRefusal::OutsideVma)
    }

    /// Under the writer lock.
    pub(crate) fn collapse_at(&self, vma: &Vma, base: Vpn, limits: &CollapseLimits) -> Result<(), CollapseRefusal> {
        let result = self.try_collapse(vma, base, limits);
        if let Err(refusal) = result {
            self.vm.count(refusal.event(), 1);
        }
        result
    }

    fn try_collapse(&self, vma: &Vma, base: Vpn, limits: &CollapseLimits) -> Result<(), CollapseRefusal> {
        let (pmd, table) = self.collapse_place(base)?;
        let survey = self.survey(table);
        self.vm.machine.relax();
        self.verdict(&survey, limits)?;
        self.twin_for(pmd.table)?;
        // Nothing is allocated after this, and nobody waited for who allocates (I28).
        let _held = self.vm.hold();
        let new = match survey.in_place {
            Some(_) => None,
            None => {
                let huge = self.vm.obtain_huge_for_collapse(limits.may_compact);
                Some(huge.map_err(|_| CollapseRefusal::NoHugeFrame)?)
            }
        };
        let _told = self.invalidate(pmd.span(), Why::Collapse);
        pmd.slot.take_table();
        self.announce();
        self.shootdown_and_wait(Flush::Space);
        // Nobody changes the table now but owners of single entries, which the
        // look refuses.
        let survey = self.survey(table);
        self.vm.machine.relax();
        let verdict = self.verdict(&survey, limits).and_then(|()| match (survey.in_place, new) {
            (Some(first), None) => self.rejoin(vma, base, table, first),
            (_, Some(new)) => {
                self.gather(table, new.first, new.is_zero);
                self.vm.frames.folio(new.first).assign(FrameKind::Anon, self.family, vma.index_of(base));
                Ok(new.first)
            }
            (None, None) => Err(CollapseRefusal::Busy),
        });
        match verdict {
            Ok(first) => self.publish_collapsed(vma, &pmd, table, first, &survey),
            Err(refusal) => {
                pmd.slot.resolve(Entry::Table(table));
                if let Some(new) = new {
                    self.vm.give_back_huge(new.first, new.is_zero);
                }
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// What the policy says, and what cannot be whatever it says.
    fn verdict(&self, survey: &Survey, limits: &CollapseLimits) -> Result<(), CollapseRefusal> {
        collapse::linux(&survey.question, limits)?;
        let CollapseQuestion { nr_pinned, nr_guards, nr_busy, .. } = survey.question;
        if nr_pinned + nr_guards + nr_busy > 0 {
            self.vm.count(Event::PlanRejected, 1);
            return Err(CollapseRefusal::Busy);
        }
        Ok(())
    }

    /// The entry of level 1, and the leaf table that it names.
    fn collapse_place(&self, base: Vpn) -> Result<(PmdSlot<'_, M::Format>, Pfn), CollapseRefusal> {
        let machine = &self.vm.machine;
        let leaf = match walk::walk(machine, self.root, base) {
            Walk::Leaf(_) => walk::leaf_table(machine, self.root, base),
            Walk::Huge(_) => return Err(CollapseRefusal::AlreadyHuge),
            Walk::Hole(_) => return Err(CollapseRefusal::Empty),
            Walk::Owned => None,
        };
        match (walk::pmd_table(machine, self.root, base), leaf) {
            (Some(table), Some(leaf)) => {
                let index = crate::table::format::index_of::<M::Format>(base.0, 1);
                let slot = Slot::new(walk::entry(machine, table, index), 1);
                Ok((PmdSlot { slot, table, base }, leaf))
            }
            _ => Err(CollapseRefusal::Busy),
        }
    }

    fn entries_of(&self, table: Pfn) -> impl Iterator<Item = (u32, Slot<'_, M::Format>)> {
        let words: &[Word; 512] = walk::entries(&self.vm.machine, table);
        let nr = Vm::<M>::NR_SUB_FRAMES as usize;
        words.iter().take(nr).enumerate().map(|(i, word)| {
            self.vm.machine.tick(Tick::Step);
            (i as u32, Slot::new(word, 0))
        })
    }

    fn survey(&self, table: Pfn) -> Survey {
        let mut survey =
            Survey { question: CollapseQuestion::default(), in_place: None, accessed: false, dirty: false };
        let (mut first, mut in_order) = (None, true);
        let question = &mut survey.question;
        for (i, slot) in self.entries_of(table) {
            let leaf = match slot.read().entry {
                Entry::Leaf(leaf) if leaf.pfn != self.vm.frames.zero => leaf,
                Entry::Leaf(_) | Entry::None => {
                    question.nr_none += 1;
                    continue;
                }
                Entry::Guard => {
                    question.nr_guards += 1;
                    continue;
                }
                Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) | Entry::Table(_) => {
                    question.nr_busy += 1;
                    continue;
                }
            };
            let state = self.vm.frames.desc(leaf.pfn).state();
            question.nr_shared += u64::from(state.maps() > 1);
            question.nr_pinned += u64::from(state.pins() > 0);
            question.nr_referenced += u64::from(leaf.accessed);
            survey.accessed |= leaf.accessed;
            survey.dirty |= leaf.dirty;
            in_order &= *first.get_or_insert(leaf.pfn.0.wrapping_sub(i)) == leaf.pfn.0.wrapping_sub(i);
        }
        let is_whole = in_order && question.nr_none + question.nr_guards + question.nr_busy + question.nr_shared == 0;
        let is_aligned = |pfn: &u32| u64::from(*pfn).is_multiple_of(Vm::<M>::NR_SUB_FRAMES);
        survey.in_place = first.filter(|pfn| is_whole && is_aligned(pfn)).map(Pfn);
        survey
    }

    /// A twin for the table of level 1, if it has none.
    fn twin_for(&self, table: Pfn) -> Result<(), CollapseRefusal> {
        if self.vm.frames.twin(table).is_some() {
            return Ok(());
        }
        let twin = self.vm.obtain(Fill::Fixed).map_err(|_| CollapseRefusal::NoFrame)?;
        if self.vm.frames.put_twin(table, twin) {
            self.charge(Rss::Tables, 1);
            self.vm.count(Event::TableInstall, 1);
        } else {
            self.vm.give_back(twin, Fill::Fixed);
        }
        Ok(())
    }

    /// Copies the pages together and counts the old frames down. From here on
    /// nothing can fail. No translation and no section knows the old frames.
    fn gather(&self, table: Pfn, first: Pfn, is_zero: bool) {
        let vm = self.vm;
        for (i, slot) in self.entries_of(table) {
            let to = Pfn(first.0 + i);
            match slot.read().entry {
                Entry::Leaf(leaf) if leaf.pfn != vm.frames.zero => mem::copy_frame(&vm.machine, to, leaf.pfn),
                _ if !is_zero => mem::zero_frames(&vm.machine, to, 1),
                _ => {}
            }
            vm.machine.relax();
        }
        let mut batch = FreeBatch::new(&vm.frames);
        let mut nr_old = 0;
        for (_, slot) in self.entries_of(table) {
            if let Entry::Leaf(leaf) = slot.read().entry
                && leaf.pfn != vm.frames.zero
            {
                nr_old += 1;
                if vm.frames.desc(leaf.pfn).map_drop() {
                    batch.add(leaf.pfn);
                }
            }
        }
        drop(batch);
        vm.machine.relax();
        self.charge(Rss::Anon, Vm::<M>::NR_SUB_FRAMES as i64 - nr_old);
        vm.count(Event::ThpCollapseAlloc, 1);
    }

    /// The pages lie in their block in order, and are nobody else's: their
    /// descriptors fall silent, and the block has a folio again.
    fn rejoin(&self, vma: &Vma, base: Vpn, table: Pfn, first: Pfn) -> Result<Pfn, CollapseRefusal> {
        let folio = self.vm.frames.folio(first);
        if !folio.reserve(first) {
            return Err(CollapseRefusal::Busy);
        }
        for (_, slot) in self.entries_of(table) {
            if let Entry::Leaf(leaf) = slot.read().entry {
                self.vm.frames.desc(leaf.pfn).clear();
            }
        }
        self.vm.machine.relax();
        folio.assign(FrameKind::Anon, self.family, vma.index_of(base));
        Ok(first)
    }

    fn publish_collapsed(&self, vma: &Vma, pmd: &PmdSlot<'_, M::Format>, table: Pfn, first: Pfn, survey: &Survey) {
        mem::zero_frames(&self.vm.machine, table, 1);
        pmd::deposit::<M>(&self.vm.machine, &self.vm.frames, pmd.table, pmd.base, table);
        let allowed = vma.flags.rights();
        let rights = if allowed.is_empty() { allowed } else { allowed | Rights::READ };
        let leaf = Leaf { pfn: first, rights, accessed: survey.accessed, dirty: survey.dirty };
        pmd.slot.resolve(Entry::Leaf(leaf));
        self.charge(Rss::Huge, Vm::<M>::NR_SUB_FRAMES as i64);
        self.vm.count(Event::Collapsed, 1);
    }

    /// `MADV_COLLAPSE` for the whole stretches of a range: each in turn, the lock
    /// dropped between. Gives the last refusal, if there was one.
    pub(crate) fn collapse_range(&self, vma: &Vma, range: PageRange) -> Result<(), CollapseRefusal> {
        let nr = Vm::<M>::NR_SUB_FRAMES;
        let has_room = vma.range.start.0.next_multiple_of(nr) + nr <= vma.range.end.0;
        if !has_room || self.collapse_orders(vma.flags).is_empty() {
            return Err(CollapseRefusal::NotAllowed);
        }
        let (start, end) = (range.start.0.next_multiple_of(nr), range.end.0 / nr * nr);
        if start > end {
            return Err(CollapseRefusal::OutsideVma);
        }
        let mut result = Ok(());
        let mut base = Vpn(start);
        let mut pace = Pace::new(&self.vm.machine);
        while base.0 < end {
            pace.step();
            let next = Vpn(base.0 + nr);
            base = match self.collapse(base.addr()) {
                Ok(()) | Err(CollapseRefusal::AlreadyHuge) => next,
                Err(refusal) => {
                    result = Err(refusal);
                    if refusal == CollapseRefusal::Empty { self.end_of_hole(base).max(next) } else { next }
                }
            };
        }
        result
    }

    /// Where the hole in the tables that the page lies in ends; the page itself if it
    /// lies in none. Advisory: it may fill up at any moment.
    pub(crate) fn end_of_hole(&self, vpn: Vpn) -> Vpn {
        let _section = self.section();
        match walk::walk(&self.vm.machine, self.root, vpn) {
            Walk::Hole(hole) => Vpn(hole.base.0 + span_of::<M::Format>(hole.slot.level)),
            Walk::Leaf(_) | Walk::Huge(_) | Walk::Owned => vpn,
        }
    }
}

impl CollapseRefusal {
    pub(crate) fn event(self) -> Event {
        match self {
            CollapseRefusal::NotAllowed => Event::CollapseNotAllowed,
            CollapseRefusal::OutsideVma => Event::CollapseOutsideVma,
            CollapseRefusal::AlreadyHuge => Event::CollapseAlreadyHuge,
            CollapseRefusal::Empty => Event::CollapseEmpty,
            CollapseRefusal::ExceedNone => Event::ThpScanExceedNonePte,
            CollapseRefusal::ExceedShared => Event::ThpScanExceedSharePte,
            CollapseRefusal::Pinned => Event::CollapsePinned,
            CollapseRefusal::Guard => Event::CollapseGuard,
            CollapseRefusal::Busy => Event::CollapseBusy,
            CollapseRefusal::NotReferenced => Event::CollapseNotReferenced,
            CollapseRefusal::NoHugeFrame => Event::ThpCollapseAllocFailed,
            CollapseRefusal::NoFrame => Event::CollapseNoFrame,
        }
    }
}
