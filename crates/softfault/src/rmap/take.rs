//! Takes the entries of a frame, for migration and for the split of a whole folio.
//!
//! Each entry is made `Busy` in a section of its space, and returned by value. From then on the
//! entry keeps the space alive: a space with a foreign `Busy` entry cannot end (its tables are
//! emptied before its own frame is freed, and that pass waits), and the table that contains the
//! entry stays, too. So the caller may shoot down and resolve with no lock held. After it has
//! resolved the last entry of a space it must not access the space.
//!
//! The walk never waits: it skips entries that others own, and the caller sees that from the number
//! of entries found.
//!
//! Subscribers are told before an entry is taken, with nothing owned and no lock held. So the walk
//! ends at a space whose subscribers were not told. Another walk finds such spaces and raises their
//! visits, which keep them alive without an entry (I44).
//!
//! Locks on entry: none, no section. Takes the family's.

use super::{Cursor, Member};
use crate::account::Event;
use crate::addr::{PageRange, Pfn, Vpn};
use crate::machine::{CpuSet, Flush, Machine};
use crate::pace::{OutOfSteps, Steps};
use crate::section::InSection;
use crate::source::slot::PageFrame;
use crate::space::SpaceData;
use crate::space::SpaceVisit;
use crate::space::Vm;
use crate::space::vma::Vma;
use crate::table::entry::{Seen, Slot};
use crate::table::format::{Entry, Leaf, span_of};
use crate::table::place::PmdSlot;
use crate::table::walk::{self, Walk};
use core::ops::ControlFlow;

/// An entry that is `Busy` and the taker's. Has to be resolved.
pub(crate) struct TakenEntry<'vm, M: Machine> {
    /// Frame of the space that it is in.
    pub(crate) space: Pfn,
    pub(crate) vpn: Vpn,
    pub(crate) slot: Slot<'vm, M::Format>,
    /// The mapping that was taken.
    pub(crate) old: Leaf,
}

impl<M: Machine> Clone for TakenEntry<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M: Machine> Copy for TakenEntry<'_, M> {}

impl<M: Machine> TakenEntry<'_, M> {
    /// All pages that it maps: more than one of a pool's page.
    pub(crate) fn pages(&self) -> PageRange {
        PageRange::new(self.vpn, Vpn(self.vpn.0 + span_of::<M::Format>(self.slot.level)))
    }

    /// As it was.
    pub(crate) fn put_back(&self) {
        self.slot.resolve(Entry::Leaf(self.old));
    }
}

/// A huge one.
pub(crate) struct TakenHuge<'vm, M: Machine> {
    pub(crate) space: Pfn,
    pub(crate) pmd: PmdSlot<'vm, M::Format>,
    pub(crate) old: Leaf,
}

impl<M: Machine> Clone for TakenHuge<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M: Machine> Copy for TakenHuge<'_, M> {}

/// A walk ended before it had seen everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TakeEnded {
    /// The steps that the caller had for it are spent.
    OutOfSteps,
    /// Subscribers of a space that maps the page were not told. Looked at in the section in
    /// which the entry would be taken: a later subscriber waits for that section, and
    /// finds `Busy`.
    Subscribed,
}

/// An entry that maps the frame, as a walk found it.
struct Found<'vm, M: Machine> {
    member: Member<'vm>,
    vpn: Vpn,
    slot: Slot<'vm, M::Format>,
    seen: Seen,
}

/// The function that a walk calls with each entry, in the section in which it was found.
type VisitEntry<'a, 'vm, M> = dyn FnMut(Found<'vm, M>) -> ControlFlow<Result<(), TakeEnded>> + 'a;

impl<M: Machine> Vm<M> {
    /// Takes the entries that map the private frame alone, or all of a pool's private page, `wanted`
    /// of them at most, and gives each to `taken`. Fewer are found where others
    /// are at work, or where the frame has more than entries. Spends one of the `steps` for each place that may map the frame, and
    /// for each step that others make during the wait for the lock.
    ///
    /// An entry of a space with subscribers is taken if `is_told` says so of the space's
    /// frame and the page: they have been told the start then, and not the end.
    ///
    /// `is_told` and `taken` run under the family's lock.
    ///
    /// # Errors
    ///
    /// [`TakeEnded`]; what was taken until then is the caller's all the same.
    pub(crate) fn rmap_take<'vm>(
        &'vm self,
        page: PageFrame,
        wanted: u64,
        steps: &mut Steps,
        is_told: &dyn Fn(Pfn, Vpn) -> bool,
        taken: &mut dyn FnMut(TakenEntry<'vm, M>),
    ) -> Result<(), TakeEnded> {
        let mut left = wanted;
        self.for_each_entry(page, steps, &mut |found| {
            let Found { member, vpn, slot, seen } = found;
            if member.data.notify.has_any() && !is_told(member.frame, vpn) {
                return ControlFlow::Break(Err(TakeEnded::Subscribed));
            }
            if let Ok(old) = slot.take(seen) {
                taken(TakenEntry { space: member.frame, vpn, slot, old });
                left -= 1;
            }
            if left == 0 { ControlFlow::Break(Ok(())) } else { ControlFlow::Continue(()) }
        })
    }

    /// Gives a visit of each space with subscribers that maps the private frame, and the pages
    /// at which it does, until `found` does not want more. Takes nothing.
    ///
    /// `found` runs under the family's lock.
    ///
    /// # Errors
    ///
    /// [`TakeEnded::OutOfSteps`]; what was found until then is the caller's all the same.
    pub(crate) fn rmap_find_subscribed<'vm>(
        &'vm self,
        page: PageFrame,
        steps: &mut Steps,
        found: &mut dyn FnMut(SpaceVisit<'vm, M>, PageRange) -> bool,
    ) -> Result<(), TakeEnded> {
        self.for_each_entry(page, steps, &mut |entry| {
            let Found { member, vpn, slot, .. } = entry;
            let pages = PageRange::new(vpn, Vpn(vpn.0 + span_of::<M::Format>(slot.level)));
            let goes_on = !member.data.notify.has_any() || found(self.visit_space(member.frame), pages);
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(Ok(())) }
        })
    }

    /// Calls `f` with each entry of the private frame, or of the private page of a pool that begins there, in a section of its
    /// space and under the family's lock.
    fn for_each_entry<'vm>(
        &'vm self,
        page: PageFrame,
        steps: &mut Steps,
        f: &mut VisitEntry<'_, 'vm, M>,
    ) -> Result<(), TakeEnded> {
        let mut ended = Ok(());
        let walked = self.for_each_member(page.pfn, None, steps, &mut |frame, index, walk| {
            let member = self.member(frame);
            let mut at = Cursor::Home;
            while at != Cursor::End {
                walk.step()?;
                let section = self.space_section(&member.data.cpus, member.data.id.get());
                let inside = section.inside();
                let Some((_, vpn)) = self.next_place(inside, member, index, &mut at) else { continue };
                let Some((slot, seen)) = self.entry_of(inside, member, vpn, page) else { continue };
                if let ControlFlow::Break(how) = f(Found { member, vpn, slot, seen }) {
                    ended = how;
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        walked.map_err(|OutOfSteps| TakeEnded::OutOfSteps).and(ended)
    }

    /// Takes huge entries that map the folio at `first`, in spaces and VMAs that
    /// please `fits`, until `taken` is full, and gives their number. Passes over
    /// entries that are somebody else's, and members up to the space `after`, in
    /// which the caller has an entry still.
    pub(crate) fn rmap_take_huge<'vm>(
        &'vm self,
        first: Pfn,
        after: Option<Pfn>,
        fits: &mut dyn FnMut(&SpaceData, &Vma) -> bool,
        taken: &mut [Option<TakenHuge<'vm, M>>],
    ) -> usize {
        let mut nr_taken = 0;
        let _ = self.for_each_member(first, after, &mut Steps::unbounded(), &mut |frame, index, walk| {
            let member = self.member(frame);
            let mut at = Cursor::Home;
            while at != Cursor::End {
                if nr_taken == taken.len() {
                    return ControlFlow::Break(());
                }
                walk.step()?;
                let section = self.space_section(&member.data.cpus, member.data.id.get());
                let inside = section.inside();
                if let Some((vma, vpn)) = self.next_place(inside, member, index, &mut at)
                    && fits(member.data, &vma)
                    && let Some(huge) = self.take_huge_entry(inside, member, vpn, first)
                {
                    taken[nr_taken] = Some(huge);
                    nr_taken += 1;
                }
            }
            ControlFlow::Continue(())
        });
        nr_taken
    }

    /// The entry of a page, if it maps the frame and is nobody's.
    fn entry_of<'vm>(
        &'vm self,
        inside: InSection<'_>,
        member: Member<'vm>,
        vpn: Vpn,
        page: PageFrame,
    ) -> Option<(Slot<'vm, M::Format>, Seen)> {
        let root = member.data.root_in(inside);
        let slot = match walk::walk(&self.machine, root, vpn, inside) {
            Walk::Leaf(slot) => slot,
            Walk::Huge(pmd) => pmd.slot,
            _ => return None,
        };
        let seen = slot.observe();
        let Entry::Leaf(leaf) = seen.entry else { return None };
        let is_its = leaf.pfn == page.pfn && span_of::<M::Format>(slot.level) == page.order.nr_pages();
        // Other huge entries have a deposit: they are split, and not taken here.
        let is_its = is_its && (slot.level == 0 || self.frames.is_of_pool(leaf.pfn));
        is_its.then_some((slot, seen))
    }

    fn take_huge_entry<'vm>(
        &'vm self,
        inside: InSection<'_>,
        member: Member<'vm>,
        vpn: Vpn,
        first: Pfn,
    ) -> Option<TakenHuge<'vm, M>> {
        let root = member.data.root_in(inside);
        let Walk::Huge(pmd) = walk::walk(&self.machine, root, vpn, inside) else { return None };
        let seen = pmd.slot.observe();
        let Entry::Leaf(leaf) = seen.entry else { return None };
        // The folio may have gone since, and a page of a pool have come: that has no deposit, and is never split (I58).
        if leaf.pfn != first || self.frames.is_of_pool(first) {
            return None;
        }
        let old = pmd.slot.take(seen).ok()?;
        Some(TakenHuge { space: member.frame, pmd, old })
    }
}

impl<M: Machine> Vm<M> {
    /// Shoots down the translations of entries that were taken, once for each space, and waits for the
    /// sections that may have seen them.
    pub(crate) fn shoot_down_taken<'e, 'vm: 'e>(
        &'vm self,
        nr: usize,
        entry_at: &dyn Fn(usize) -> Option<&'e TakenEntry<'vm, M>>,
    ) {
        let mut all_cpus = CpuSet::EMPTY;
        for i in 0..nr {
            let Some(entry) = entry_at(i) else { continue };
            let is_same = |j: usize| entry_at(j).is_some_and(|other| other.space == entry.space);
            if (0..i).any(is_same) {
                continue;
            }
            let pages = (i..nr).filter(|j| is_same(*j)).filter_map(entry_at).map(TakenEntry::pages);
            let (first, end) = pages.fold((entry.vpn, entry.vpn), |(lo, hi), of| (lo.min(of.start), hi.max(of.end)));
            let space = self.borrow_space(entry.space);
            space.shootdown(Flush::Pages(PageRange::new(first, end)));
            space.cpus().iter().for_each(|cpu| all_cpus.insert(cpu));
        }
        if !self.machine.shootdown_is_grace() && !all_cpus.is_only(self.machine.this_cpu()) {
            self.count(Event::Grace, 1);
            self.grace(&all_cpus);
        }
    }
}
