//! Collapse: 512 small pages become a huge one.
//!
//! ```text
//! detach    under the writer lock: checks; a twin, a free huge frame;
//!           table ─▶ Busy; generation. If no huge frame is free, the lock is
//!           dropped, compaction makes one, and this step starts over
//! wait      no lock: shootdown, grace. Nobody reaches the leaf table any more,
//!           and no pin is in progress
//! check     again; if it fails, the table is put back as it was
//! copy      page by page, as long as the mapping is the same; pages that were
//!           never touched are zero
//! settle    map counts of old frames lowered, the leaf table emptied and deposited
//! publish   Busy ─▶ huge mapping
//! ```
//! Faults during a collapse find `Busy` and wait outside their sections. So do operations, under
//! the writer lock: after publishing a tree they read the entry and find `Busy`, the table or the
//! huge mapping, and handle each. The collapse takes no lock after the table is detached, so there
//! is no circular wait (I31). It checks the generation before each page and once more before it
//! settles: an operation on the mapping gets the table back, and waits for one page at most.
//!
//! If the pages are in one block in order, as after a split, nothing is copied: the block becomes a
//! folio again.
//!
//! If there is no frame for a twin, `MADV_COLLAPSE` reclaims memory and starts over; khugepaged
//! skips the range.
//!
//! `scan` decides what may be collapsed, `fill` makes the huge page, `range` iterates over the PMD
//! ranges of a range.
//!
//! Locks on entry: none, no section. Takes the writer lock to check and detach.

mod fill;
mod range;
mod scan;

use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{Pfn, Vpn};
use crate::frame::{Fill, Held, HugeFrame, OutOfFrames};
use crate::machine::{Flush, Machine};
use crate::notify::notice::Why;
use crate::notify::tell::Invalidation;
use crate::policy::collapse::{CollapseLimits, CollapseRefusal};
use crate::space::AddressSpace;
use crate::space::Vm;
use crate::space::lock::Writer;
use crate::space::reclaim::FrameRefusal;
use crate::space::vma::Vma;
use crate::sync::Ordering;
use crate::table::format::Entry;
use crate::table::place::PmdSlot;
use scan::Scan;

/// A leaf table whose entry is `Busy` and owned by the caller. Fields are dropped in this order.
struct Detached<'a, M: Machine> {
    pmd: PmdSlot<'a, M::Format>,
    table: Pfn,
    /// Its mapping, as of this generation.
    vma: Vma,
    generation: u64,
    new: NewHuge<'a, M>,
    _told: Invalidation<'a, M>,
    _held: Option<Held<'a>>,
}

/// A huge frame to fill, if one is needed. Freed on drop unless it was used.
struct NewHuge<'a, M: Machine> {
    vm: &'a Vm<M>,
    frame: Option<HugeFrame>,
}

impl<M: Machine> Drop for NewHuge<'_, M> {
    fn drop(&mut self) {
        if let Some(huge) = self.frame.take() {
            self.vm.give_back_huge(huge.first, huge.content);
        }
    }
}

/// Attempts to get a huge frame: another CPU may allocate the one that compaction made before the
/// lock is taken again.
const TRIES_MAX: u32 = 3;

impl FrameRefusal for CollapseRefusal {
    fn of(_: OutOfFrames) -> CollapseRefusal {
        CollapseRefusal::NoFrame
    }

    /// Memory is reclaimed for the twin, which is one frame. It is not for a huge frame: compaction
    /// has tried to make one, and reclaim would split huge pages to make another.
    fn refused_frames(&self) -> Option<OutOfFrames> {
        (*self == CollapseRefusal::NoFrame).then_some(OutOfFrames::Frame)
    }
}

impl<M: Machine> AddressSpace<'_, M> {
    /// Collapses the 2 MiB at `base`, which is aligned, into one huge page. The limits of khugepaged
    /// do not apply. `MADV_COLLAPSE` does this for each PMD range. Memory is reclaimed for the table
    /// that it may need, because a program asked for it.
    ///
    /// # Errors
    ///
    /// [`CollapseRefusal`]; nothing has changed then.
    ///
    /// Source: madvise(2).
    pub fn collapse(&self, base: u64) -> Result<(), CollapseRefusal> {
        self.vm.assert_outside();
        let allowed = |vma: &Vma| !self.collapse_orders(vma.flags).is_empty();
        let attempt = &mut || self.try_collapse(Vpn::of(base), &allowed, &CollapseLimits::NONE);
        self.count_refusal(self.vm.with_reclaim(attempt))
    }

    /// Collapses within limits, and only in VMAs that `allowed` accepts. For khugepaged. It reclaims
    /// no memory: nobody waits for it, it will try again, and reclaim would split huge pages to make
    /// others.
    pub(crate) fn collapse_at(
        &self,
        base: Vpn,
        allowed: &dyn Fn(&Vma) -> bool,
        limits: &CollapseLimits,
    ) -> Result<(), CollapseRefusal> {
        self.count_refusal(self.try_collapse(base, allowed, limits))
    }

    fn count_refusal(&self, result: Result<(), CollapseRefusal>) -> Result<(), CollapseRefusal> {
        result.inspect_err(|refusal| self.vm.count(event_of(*refusal), 1))
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

    /// Takes the table out of its entry, under the writer lock: no removal that keeps numbers in
    /// entries of this table is in progress.
    fn detach(
        &self,
        base: Vpn,
        allowed: &dyn Fn(&Vma) -> bool,
        limits: &CollapseLimits,
    ) -> Result<Detached<'_, M>, CollapseRefusal> {
        let writer = &self.write_lock();
        let Scan { vma, pmd, table, survey } = self.scan(writer, base, allowed, limits)?;
        self.twin_for(writer, pmd.table)?;
        // Nothing is allocated after this (I28).
        let (held, frame) = match survey.in_place {
            Some(_) => (None, None),
            None => {
                let held = self.vm.hold_unless_last_resort().ok_or(CollapseRefusal::NoHugeFrame)?;
                let free = self.vm.obtain_huge_if_free().map_err(|_| CollapseRefusal::NoFrame)?;
                (Some(held), Some(free.ok_or(CollapseRefusal::NoHugeFrame)?))
            }
        };
        let new = NewHuge { vm: self.vm, frame };
        let told = self.invalidate(pmd.span(), Why::Collapse);
        if pmd.slot.detach_table(table).is_err() {
            return Err(CollapseRefusal::Busy);
        }
        self.announce(writer);
        let generation = self.data.generation.get();
        Ok(Detached { pmd, table, vma, generation, new, _told: told, _held: held })
    }

    /// Checks that the PMD range is still in a mapping like the one at the time of `detach`. The tree
    /// is looked up only if the generation has changed.
    fn recheck(&self, detached: &mut Detached<'_, M>) -> Result<(), CollapseRefusal> {
        let generation = self.data.generation.load(Ordering::Acquire);
        if generation == detached.generation {
            return Ok(());
        }
        let (old, base) = (detached.vma, detached.pmd.base);
        let section = self.section();
        let now = self.tree_in(section.inside()).lookup(base).map(|f| f.vma).filter(|vma| Self::has_stretch(vma, base));
        let is_same = |vma: &Vma| vma.flags == old.flags && vma.index_of(base) == old.index_of(base);
        detached.vma = now.filter(is_same).ok_or(CollapseRefusal::Changed)?;
        detached.generation = generation;
        Ok(())
    }

    /// Allocates a twin for the table of level 1, if it has none. The writer lock keeps the table.
    fn twin_for(&self, writer: &Writer<'_, M>, table: Pfn) -> Result<(), CollapseRefusal> {
        self.assert_writer(writer);
        if self.vm.frames.twin(table).is_some() {
            return Ok(());
        }
        // Given back if a fault has put one there first.
        let (twin, _held) = self.vm.obtain_held(Fill::Fixed).map_err(CollapseRefusal::of)?;
        if self.vm.frames.put_twin(table, twin) {
            self.charge(Rss::Tables, 1);
            self.vm.count(Event::TableInstall, 1);
        } else {
            self.vm.give_back(twin, Fill::Fixed);
        }
        Ok(())
    }
}

/// The counter of a refusal.
fn event_of(refusal: CollapseRefusal) -> Event {
    match refusal {
        CollapseRefusal::NotAllowed => Event::CollapseNotAllowed,
        CollapseRefusal::OutsideVma => Event::CollapseOutsideVma,
        CollapseRefusal::AlreadyHuge => Event::CollapseAlreadyHuge,
        CollapseRefusal::Empty => Event::CollapseEmpty,
        CollapseRefusal::ExceedNone => Event::ThpScanExceedNonePte,
        CollapseRefusal::ExceedShared => Event::ThpScanExceedSharePte,
        CollapseRefusal::Pinned => Event::CollapsePinned,
        CollapseRefusal::Guard => Event::CollapseGuard,
        CollapseRefusal::Poisoned => Event::CollapsePoisoned,
        CollapseRefusal::Swapped => Event::CollapseSwapped,
        CollapseRefusal::Busy => Event::CollapseBusy,
        CollapseRefusal::Changed => Event::CollapseChanged,
        CollapseRefusal::NotReferenced => Event::CollapseNotReferenced,
        CollapseRefusal::NoHugeFrame => Event::ThpCollapseAllocFailed,
        CollapseRefusal::NoFrame => Event::CollapseNoFrame,
        CollapseRefusal::SourceFailed => Event::CollapseSourceFailed,
    }
}
