//! Collapse: 512 small pages become a huge one.
//!
//! ```text
//! detach    under the writer lock: may it be? a twin, a huge frame that is free;
//!           table ─▶ Busy; generation. Where no huge frame is free the lock is
//!           dropped, one is made by compaction, and it begins again
//! wait      no lock: shootdown, grace: nobody reaches the leaf table any more,
//!           and no pin is under way
//! look      again; on any doubt the table is put back as it was
//! copy      page by page, as long as the mapping is the same; what nobody
//!           touched is zero
//! settle    old frames counted down, the leaf table emptied and put in deposit
//! publish   Busy ─▶ huge mapping
//! ```
//! Faults that come meanwhile find `Busy` and wait outside their sections. So do
//! operations, under the writer lock: whoever publishes a tree looks at the entry
//! afterwards, and finds `Busy`, the table or the huge mapping, each of which it
//! treats as its own change demands. The collapse itself asks for no lock once the
//! table is detached, so that nobody waits in a circle (I31). It looks at the
//! generation before each page and once more before it settles: an operation on
//! the mapping gets the table back, and waits for one page at most.
//!
//! Where the pages lie in one block in order, as after a split, nothing is copied:
//! the block becomes a folio again.
//!
//! Locks on entry: none, no section. Takes the writer lock to look and detach.

use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{PageRange, Pfn, Rights, Vpn};
use crate::frame::{Fill, FrameKind, FreeBatch, Held, HugeFrame};
use crate::machine::{Flush, Machine, Tick};
use crate::mem;
use crate::notify::{Invalidation, Why};
use crate::pace::Pace;
use crate::policy::collapse::{self, CollapseLimits, CollapseQuestion, CollapseRefusal};
use crate::space::AddressSpace;
use crate::space::vma::{ObjectId, Vma};
use crate::sync::{Ordering, Word};
use crate::table::entry::Slot;
use crate::table::format::{Entry, Leaf, span_of};
use crate::table::pmd::{self, PmdSlot};
use crate::table::walk::{self, Walk};
use crate::vm::Vm;

/// What a look at a leaf table found, besides the counts.
struct Survey {
    question: CollapseQuestion,
    /// First frame, if all pages lie in one folio's place, in order.
    in_place: Option<Pfn>,
    accessed: bool,
    dirty: bool,
}

/// A stretch that may be collapsed.
struct Look<'a, M: Machine> {
    vma: Vma,
    pmd: PmdSlot<'a, M::Format>,
    table: Pfn,
    survey: Survey,
}

/// A leaf table whose entry is `Busy` and the caller's. What it holds ends in the
/// order of the fields.
struct Detached<'a, M: Machine> {
    pmd: PmdSlot<'a, M::Format>,
    table: Pfn,
    /// The mapping that it belongs to, as it was at this generation.
    vma: Vma,
    generation: u64,
    new: NewHuge<'a, M>,
    _told: Invalidation<'a, M>,
    _held: Held<'a>,
}

/// A huge frame to fill, if one is needed. Goes back unless it was used.
struct NewHuge<'a, M: Machine> {
    vm: &'a Vm<M>,
    frame: Option<HugeFrame>,
}

impl<M: Machine> Drop for NewHuge<'_, M> {
    fn drop(&mut self) {
        if let Some(huge) = self.frame.take() {
            self.vm.give_back_huge(huge.first, huge.is_zero);
        }
    }
}

/// Attempts to get a huge frame: one that was made may be somebody else's before
/// the lock is taken again.
const TRIES_MAX: u32 = 3;

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
        let allowed = |vma: &Vma| !self.collapse_orders(vma.flags).is_empty();
        self.collapse_at(Vpn::of(base), &allowed, &CollapseLimits::NONE)
    }

    /// The same within limits, and only where `allowed` says so of the VMA.
    pub(crate) fn collapse_at(
        &self,
        base: Vpn,
        allowed: &dyn Fn(&Vma) -> bool,
        limits: &CollapseLimits,
    ) -> Result<(), CollapseRefusal> {
        let result = self.try_collapse(base, allowed, limits);
        if let Err(refusal) = result {
            self.vm.count(refusal.event(), 1);
        }
        result
    }

    fn try_collapse(
        &self,
        base: Vpn,
        allowed: &dyn Fn(&Vma) -> bool,
        limits: &CollapseLimits,
    ) -> Result<(), CollapseRefusal> {
        let mut nr_tries = 1;
        let mut detached = loop {
            match self.detach(base, allowed, limits) {
                Ok(detached) => break detached,
                Err(CollapseRefusal::NoHugeFrame) if limits.may_compact && nr_tries < TRIES_MAX => {
                    self.vm.make_huge_for_collapse().map_err(|_| CollapseRefusal::NoHugeFrame)?;
                }
                Err(refusal) => return Err(refusal),
            }
            nr_tries += 1;
        };
        self.shootdown_and_wait(Flush::Space);
        let filled = self.fill(&mut detached, limits);
        if let Err(refusal) = filled {
            detached.pmd.slot.resolve(Entry::Table(detached.table));
            return Err(refusal);
        }
        Ok(())
    }

    /// The VMA that has the whole stretch and may be collapsed, its table and what
    /// stands in it. Under the writer lock.
    fn look(
        &self,
        base: Vpn,
        allowed: &dyn Fn(&Vma) -> bool,
        limits: &CollapseLimits,
    ) -> Result<Look<'_, M>, CollapseRefusal> {
        let found = self.tree().lookup(base).map(|f| f.vma);
        let vma = found.filter(|vma| Self::has_stretch(vma, base)).ok_or(CollapseRefusal::OutsideVma)?;
        if !allowed(&vma) {
            return Err(CollapseRefusal::NotAllowed);
        }
        let (pmd, table) = self.collapse_place(base)?;
        let survey = self.survey(table);
        crate::pace::answer(&self.vm.machine);
        self.verdict(&survey, limits)?;
        Ok(Look { vma, pmd, table, survey })
    }

    fn has_stretch(vma: &Vma, base: Vpn) -> bool {
        let end = base.0.saturating_add(Vm::<M>::NR_SUB_FRAMES);
        let is_inside = vma.range.start <= base && vma.range.end >= Vpn(end);
        is_inside && vma.object == ObjectId::NONE && base.0.is_multiple_of(Vm::<M>::NR_SUB_FRAMES)
    }

    /// Takes the table out of its entry, under the writer lock: no removal that
    /// keeps numbers in entries of this table is under way.
    fn detach(
        &self,
        base: Vpn,
        allowed: &dyn Fn(&Vma) -> bool,
        limits: &CollapseLimits,
    ) -> Result<Detached<'_, M>, CollapseRefusal> {
        let _writer = self.write_lock();
        let Look { vma, pmd, table, survey } = self.look(base, allowed, limits)?;
        self.twin_for(pmd.table)?;
        // Nothing is allocated after this, and nobody waited for who allocates (I28).
        let held = self.vm.hold();
        let frame = match survey.in_place {
            Some(_) => None,
            None => {
                let free = self.vm.obtain_huge_for_collapse().map_err(|_| CollapseRefusal::NoFrame)?;
                Some(free.ok_or(CollapseRefusal::NoHugeFrame)?)
            }
        };
        let new = NewHuge { vm: self.vm, frame };
        let told = self.invalidate(pmd.span(), Why::Collapse);
        if pmd.slot.detach_table(table).is_err() {
            return Err(CollapseRefusal::Busy);
        }
        self.announce();
        let generation = self.data.generation.get();
        Ok(Detached { pmd, table, vma, generation, new, _told: told, _held: held })
    }

    /// Fills the huge mapping and publishes it. Nobody changes the table now but
    /// owners of single entries, which the look refuses.
    fn fill(&self, detached: &mut Detached<'_, M>, limits: &CollapseLimits) -> Result<(), CollapseRefusal> {
        let survey = self.survey(detached.table);
        crate::pace::answer(&self.vm.machine);
        self.verdict(&survey, limits)?;
        let first = match survey.in_place {
            Some(first) => {
                self.recheck(detached)?;
                self.rejoin(detached, first)?
            }
            None => {
                let first = self.copy_together(detached)?;
                self.recheck(detached)?;
                detached.new.frame = None;
                self.count_down_pages(detached.table);
                let index = detached.vma.index_of(detached.pmd.base);
                self.vm.frames.folio(first).assign(FrameKind::Anon, self.family, index);
                first
            }
        };
        self.publish_collapsed(detached, first, &survey);
        Ok(())
    }

    /// Whether the stretch still lies in a mapping like the one that it was
    /// detached from. The generation tells whether there is anything to look up.
    fn recheck(&self, detached: &mut Detached<'_, M>) -> Result<(), CollapseRefusal> {
        let generation = self.data.generation.load(Ordering::Acquire);
        if generation == detached.generation {
            return Ok(());
        }
        let (old, base) = (detached.vma, detached.pmd.base);
        let _section = self.section();
        let now = self.tree().lookup(base).map(|f| f.vma).filter(|vma| Self::has_stretch(vma, base));
        let is_same = |vma: &Vma| vma.flags == old.flags && vma.index_of(base) == old.index_of(base);
        detached.vma = now.filter(is_same).ok_or(CollapseRefusal::Changed)?;
        detached.generation = generation;
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

    /// A twin for the table of level 1, if it has none. Under the writer lock,
    /// which keeps the table.
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

    /// Copies the pages together and gives the first frame. No translation and no
    /// section knows the old frames.
    fn copy_together(&self, detached: &mut Detached<'_, M>) -> Result<Pfn, CollapseRefusal> {
        let vm = self.vm;
        // The pages were in order at first, and are not now.
        let new = detached.new.frame.as_mut().ok_or(CollapseRefusal::Changed)?;
        let was_zero = core::mem::replace(&mut new.is_zero, false);
        let first = new.first;
        for (i, slot) in self.entries_of(detached.table) {
            let to = Pfn(first.0 + i);
            match slot.read().entry {
                Entry::Leaf(leaf) if leaf.pfn != vm.frames.zero => mem::copy_frame(&vm.machine, to, leaf.pfn),
                _ if !was_zero => mem::zero_frames(&vm.machine, to, 1),
                _ => {}
            }
            vm.machine.relax();
            self.recheck(detached)?;
        }
        Ok(first)
    }

    /// Counts the old frames down. From here on nothing can fail.
    fn count_down_pages(&self, table: Pfn) {
        let vm = self.vm;
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
        crate::pace::answer(&vm.machine);
        self.charge(Rss::Anon, Vm::<M>::NR_SUB_FRAMES as i64 - nr_old);
        vm.count(Event::ThpCollapseAlloc, 1);
    }

    /// The pages lie in their block in order, and are nobody else's: their
    /// descriptors fall silent, and the block has a folio again.
    fn rejoin(&self, detached: &Detached<'_, M>, first: Pfn) -> Result<Pfn, CollapseRefusal> {
        let folio = self.vm.frames.folio(first);
        if !folio.reserve(first) {
            return Err(CollapseRefusal::Busy);
        }
        for (_, slot) in self.entries_of(detached.table) {
            if let Entry::Leaf(leaf) = slot.read().entry {
                self.vm.frames.desc(leaf.pfn).clear();
            }
        }
        crate::pace::answer(&self.vm.machine);
        folio.assign(FrameKind::Anon, self.family, detached.vma.index_of(detached.pmd.base));
        Ok(first)
    }

    /// The entry, with the leaf table in deposit. Once it is there an operation may
    /// take it, and the table of level 1 with it.
    fn publish_collapsed(&self, detached: &Detached<'_, M>, first: Pfn, survey: &Survey) {
        let Detached { pmd, table, vma, .. } = detached;
        mem::zero_frames(&self.vm.machine, *table, 1);
        pmd::deposit::<M>(&self.vm.machine, &self.vm.frames, pmd.table, pmd.base, *table);
        let allowed = vma.flags.rights();
        let rights = if allowed.is_empty() { allowed } else { allowed | Rights::READ };
        let leaf = Leaf { pfn: first, rights, accessed: survey.accessed, dirty: survey.dirty };
        self.charge(Rss::Huge, Vm::<M>::NR_SUB_FRAMES as i64);
        pmd.slot.resolve(Entry::Leaf(leaf));
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
            CollapseRefusal::Changed => Event::CollapseChanged,
            CollapseRefusal::NotReferenced => Event::CollapseNotReferenced,
            CollapseRefusal::NoHugeFrame => Event::ThpCollapseAllocFailed,
            CollapseRefusal::NoFrame => Event::CollapseNoFrame,
        }
    }
}
