//! Fork families: which spaces may map a private frame, and the lifetime of a founder's frame.
//!
//! ```text
//! private frame ─▶ founder's frame: refs, lock, first ─▶ member ─▶ member ...
//! ```
//! A private frame names its family by the frame of the founder, and holds no reference to it. A
//! walk therefore takes a reference of its own, and only if the count is not zero (I30):
//!
//! 1. it enters a section and sets its CPU's bit as one that looks up a family;
//! 2. it reads the descriptor of the private frame, and sees that the frame that
//!    is named is a founder's;
//! 3. it raises `refs` by compare-and-swap, never from zero.
//!
//! Each member holds one reference until its very end. Dropping the last one first unmarks the
//! frame, then waits until every lookup has ended that may have seen the old mark, and only then
//! frees the frame. The wait costs nothing if no CPU looks up a family: an exit sends no interrupt.
//!
//! Locks: the family's lock guards the list of members. A member whose space ends leaves the list
//! first, so every member that a walk finds under the lock exists.

use crate::addr::{OptPfn, Pfn};
use crate::frame::{Fill, FrameKind, Memory, MetaUse};
use crate::links::{Links, LookupSection};
use crate::lock::Spin;
use crate::machine::{LockKind, Machine};
use crate::pace::{OutOfSteps, Pace, Steps};
use crate::sync::{Ordering, Word};
use core::ops::ControlFlow;

/// In every space: its place in its family. `refs`, `lock` and `first` are used
/// in the founder's only.
#[repr(C)]
pub(crate) struct FamilyData {
    /// Frame of the founder.
    pub(crate) founder: Word,
    /// Next and previous member, each an [`OptPfn`]; `next` is [`LEFT`] after the end.
    pub(crate) next: Word,
    pub(crate) prev: Word,
    /// Members, and walks in progress. The frame goes back when it reaches zero.
    pub(crate) refs: Word,
    pub(crate) lock: Word,
    /// First member, an [`OptPfn`].
    pub(crate) first: Word,
    /// Times that the lock was taken, and steps of walks under it: what others wait for. Its holder writes it.
    pub(crate) nr_steps: Word,
    pub(crate) pad: Word,
}

/// The space has left the list of its family.
const LEFT: u64 = u64::MAX;

fn link(word: &Word) -> Option<Pfn> {
    OptPfn::from_word(word.get()).get()
}

/// Where the line lies in a space's frame: see `SpaceData`.
pub(crate) const FAMILY_OFFSET: usize = 384;

/// The function that a walk calls with each member's frame, the page index, and itself.
type VisitMember<'a, M> = dyn FnMut(Pfn, u64, &mut FamilyWalk<'_, M>) -> ControlFlow<()> + 'a;

/// A walk over the members of a family, under its lock.
pub(crate) struct FamilyWalk<'a, M: Machine> {
    _lock: Spin<'a, M>,
    pace: Pace<'a, M>,
    head: &'a FamilyData,
    steps: &'a mut Steps,
    is_out: bool,
}

impl<M: Machine> FamilyWalk<'_, M> {
    /// One search in a section, which enters several nodes of a tree. Breaks if the walk may make no more.
    pub(crate) fn step(&mut self) -> ControlFlow<()> {
        self.pace.search();
        self.head.nr_steps.add_owned(1);
        self.is_out = self.steps.spend(1).is_err();
        if self.is_out { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl FamilyData {
    /// Takes the lock of the founder's line, or waits for as many steps that others make under it as `steps` allow: a holder whose CPU
    /// does not run costs none.
    fn lock<'a, M: Machine>(&'a self, machine: &'a M, steps: &mut Steps) -> Result<Spin<'a, M>, OutOfSteps> {
        let mut seen = self.nr_steps.get();
        let mut is_over = || {
            let now = self.nr_steps.get();
            steps.wait_for(now.wrapping_sub(core::mem::replace(&mut seen, now))).is_err()
        };
        let lock = Spin::lock_unless(LockKind::Family, &self.lock, machine, &mut is_over).ok_or(OutOfSteps)?;
        self.nr_steps.add_owned(1);
        Ok(lock)
    }
}

/// A reference: the founder's frame stays until this is dropped.
struct FamilyRef<'vm, M: Machine> {
    links: &'vm Links<M>,
    founder: Pfn,
}

impl<'vm, M: Machine> FamilyRef<'vm, M> {
    fn head(&self) -> &'vm FamilyData {
        self.links.family_data(self.founder)
    }
}

impl<M: Machine> Drop for FamilyRef<'_, M> {
    fn drop(&mut self) {
        self.links.family_put(self.founder);
    }
}

impl<M: Machine> Links<M> {
    /// The line in a space's own frame.
    fn family_data(&self, space: Pfn) -> &FamilyData {
        crate::mem::view(&self.machine, space, FAMILY_OFFSET)
    }

    /// Calls `f(member, page index, walk)` with each space that may map the private frame
    /// `pfn`, and the index that the frame has in all of them; only those behind
    /// `after` if it is still a member. The frame of `after` is in place.
    ///
    /// Locks on entry: no section. Takes the family's; `f` runs under it, must not
    /// call back, waits for nobody and tells the walk each step of its search.
    ///
    /// # Errors
    ///
    /// [`OutOfSteps`], if the `steps` are spent: by `f`, or by others during the wait for the lock. A walk of theirs is as long as
    /// the family and its VMAs.
    pub(crate) fn for_each_member(
        &self,
        pfn: Pfn,
        after: Option<Pfn>,
        steps: &mut Steps,
        f: &mut VisitMember<'_, M>,
    ) -> Result<(), OutOfSteps> {
        let Some((family, index)) = self.family_of(pfn) else { return Ok(()) };
        let head = family.head();
        let lock = head.lock(&self.machine, steps)?;
        let mut walk = FamilyWalk { _lock: lock, pace: Pace::new(&self.machine), head, steps, is_out: false };
        let behind = after.map(|frame| &self.family_data(frame).next).filter(|next| next.get() != LEFT);
        let mut at = link(behind.unwrap_or(&head.first));
        while let Some(frame) = at {
            if f(frame, index, &mut walk).is_break() {
                break;
            }
            at = link(&self.family_data(frame).next);
        }
        if walk.is_out { Err(OutOfSteps) } else { Ok(()) }
    }

    /// A reference to the family that a private frame names, and the frame's index.
    fn family_of(&self, pfn: Pfn) -> Option<(FamilyRef<'_, M>, u64)> {
        let lookup = &self.lookup_section();
        let (owner, index) = self.anon_owner(lookup, pfn).filter(|(owner, _)| *owner < self.nr_frames())?;
        let founder = Pfn(owner as u32);
        self.is_founder(lookup, founder).then(|| self.family_get(lookup, founder))?.map(|family| (family, index))
    }

    fn is_founder(&self, lookup: &LookupSection<'_>, frame: Pfn) -> bool {
        self.is_header(lookup, frame, MetaUse::Founder)
    }

    /// Takes a reference, if there is one. In the section in which the frame was seen to be
    /// a founder's.
    fn family_get(&self, lookup: &LookupSection<'_>, founder: Pfn) -> Option<FamilyRef<'_, M>> {
        let refs = &self.family_data(founder).refs;
        self.raise_from_one(lookup, founder, MetaUse::Founder, refs).then(|| FamilyRef { links: self, founder })
    }

    /// Drops a reference; the last one frees the frame.
    ///
    /// Locks on entry: none, no section.
    fn family_put(&self, founder: Pfn) {
        // Release: what was done in the founder's frame comes before its next use.
        let before = self.family_data(founder).refs.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "I30: members and walks are counted");
        if before == 1 {
            self.retire_header(founder);
        }
    }

    /// Owner and index of a private frame, from its own descriptor or from that of
    /// the folio that it is a part of.
    fn anon_owner(&self, lookup: &LookupSection<'_>, pfn: Pfn) -> Option<(u64, u64)> {
        let desc = self.frames.find_desc(lookup.inside(), pfn)?;
        if desc.state().kind() == FrameKind::Anon {
            return Some((desc.owner.load(Ordering::Acquire), desc.index.load(Ordering::Acquire)));
        }
        let folio = self.frames.folio(pfn);
        let part = u64::from(pfn.0) % Memory::<M>::NR_SUB_FRAMES;
        (folio.state().kind() == FrameKind::Anon && self.is_part(pfn))
            .then(|| (folio.owner.load(Ordering::Acquire), folio.index.load(Ordering::Acquire) + part))
    }
}

impl<M: Machine> Links<M> {
    /// Makes the space at `frame` a member of its family. The caller is its founder, or
    /// holds a member.
    pub(crate) fn enlist(&self, frame: Pfn, founder: Pfn) {
        let head = self.family_data(founder);
        head.refs.fetch_add(1, Ordering::AcqRel);
        let _lock = head.lock(&self.machine, &mut Steps::unbounded());
        let me = OptPfn::some(frame).to_word();
        self.family_data(frame).next.set(head.first.get());
        if let Some(first) = link(&head.first) {
            self.family_data(first).prev.set(me);
        }
        head.first.set(me);
    }

    /// Takes a space that ends out of its family: no walk finds it any more. Waits for a walk in
    /// progress.
    pub(crate) fn leave_family(&self, frame: Pfn, founder: Pfn) {
        let mine = self.family_data(frame);
        let head = self.family_data(founder);
        let _lock = head.lock(&self.machine, &mut Steps::unbounded());
        match link(&mine.prev) {
            Some(prev) => self.family_data(prev).next.set(mine.next.get()),
            None => head.first.set(mine.next.get()),
        }
        if let Some(next) = link(&mine.next) {
            self.family_data(next).prev.set(mine.prev.get());
        }
        mine.next.set(LEFT);
    }

    /// The last act: gives up the space's own frame, which goes back unless others still
    /// know the family by it.
    pub(crate) fn give_up_space(&self, frame: Pfn, founder: Pfn) {
        if founder != frame {
            self.give_back(frame, Fill::Raw);
        }
        self.family_put(founder);
    }

    /// Members and walks in progress, and the members that are listed: equal at rest.
    pub(crate) fn family_counts(&self, founder: Pfn) -> (u64, u64) {
        let head = self.family_data(founder);
        let mut nr_listed = 0;
        let mut at = link(&head.first);
        while let Some(frame) = at {
            nr_listed += 1;
            at = link(&self.family_data(frame).next);
        }
        (head.refs.get(), nr_listed)
    }
}

#[cfg(test)]
#[path = "family_tests.rs"]
mod tests;
