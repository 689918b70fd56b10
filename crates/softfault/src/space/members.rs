//! The members of a space, one for each object and displacement that it maps, and visits to them.
//!
//! ```text
//! mmap, mremap, fork   reserve (may fail) ... join, before the VMA is published
//! munmap, ...          the entries go ... leave, before the object loses the reference
//! exit                 all entries go; all leave; wait until visits is 0; free
//! ```
//! A visitor finds a member under the lock of its shard, and raises the space's `visits` before it
//! drops the lock. A visitor that comes from a private page does so under the family's lock. The
//! end of the space leaves the family, removes all members under these locks, and then waits for
//! visitors. So the space and its tables exist while they are visited. Only a subscriber can make a
//! visitor sleep. Without the writer lock a visitor may do what `rmap` does: take entries and
//! notify subscribers.
//!
//! Locks on entry: the writer lock; for visits none.

use super::borrow::BorrowedSpace;
use super::edit::Nodes;
use super::lock::Writer;
use super::{AddressSpace, SpaceData, Vm};
use crate::addr::{ObjectPages, OptPfn, PageRange, Pfn, Vpn};
use crate::frame::{Fill, FrameKind, MetaUse, OutOfFrames};
use crate::machine::Machine;
use crate::mem;
use crate::pace::Pace;
use crate::source::members::{ByIdentity, Identity, MemberData, MemberId, MembersCursor, SLOTS_PER_FRAME, Treap};
use crate::space::vma::{ObjectId, Vma};
use crate::sync::{Ordering, Word};

/// A space's members. Under the writer lock, save `visits`.
#[repr(C, align(64))]
pub(crate) struct MembersLine {
    /// The member on top of the tree by identity.
    root: Word,
    nr: Word,
    /// Members that are free, the first one.
    free: Word,
    nr_free: Word,
    /// The frame that was added last, an [`OptPfn`].
    frames: Word,
    /// Visitors. Raised under the lock of the family, or of a shard that has a member of the space.
    visits: Word,
    pad: [Word; 2],
}

/// The value of `visits` of a space that has ended.
const ENDED: u64 = 1 << 63;

/// The last frame of members before a step that may be undone.
#[derive(Clone, Copy)]
pub(crate) struct MembersMark(OptPfn);

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    fn members(&self) -> Treap<'_, M, ByIdentity> {
        Treap::new(&self.vm.machine, &self.data.members.root)
    }

    /// Reserves members for `nr` more mappings.
    ///
    /// # Errors
    ///
    /// [`OutOfFrames`]; frames that were added stay, up to the caller's mark.
    pub(crate) fn reserve_members(
        &self,
        writer: &Writer<'_, M>,
        nr: u64,
        nodes: Nodes<'_, M>,
    ) -> Result<(), OutOfFrames> {
        self.assert_writer(writer);
        let line = &self.data.members;
        while line.nr_free.get() < nr {
            let frame = nodes.ok_or(OutOfFrames::Frame)?.frame(Fill::Fixed)?;
            self.vm.frames.desc(frame).assign(FrameKind::Meta, 0, u64::from(self.frame.0), MetaUse::Members as u64);
            MemberId::new(frame, 0).data(&self.vm.machine).next.set(line.frames.get());
            line.frames.set(OptPfn::some(frame).to_word());
            (1..SLOTS_PER_FRAME).for_each(|slot| self.give_member(MemberId::new(frame, slot)));
        }
        Ok(())
    }

    /// Reserves a member for one mapping, unless one with its object and displacement exists.
    pub(crate) fn reserve_member_for(
        &self,
        writer: &Writer<'_, M>,
        vma: &Vma,
        nodes: Nodes<'_, M>,
    ) -> Result<(), OutOfFrames> {
        let is_known = vma.object == ObjectId::NONE || self.members().member_at(Identity::of(vma)).is_some();
        if is_known { Ok(()) } else { self.reserve_members(writer, 1, nodes) }
    }

    fn give_member(&self, id: MemberId) {
        let line = &self.data.members;
        id.data(&self.vm.machine).next.set(line.free.get());
        line.free.set(id.0);
        line.nr_free.add_owned(1);
    }

    fn take_member(&self) -> MemberId {
        let line = &self.data.members;
        let id = MemberId(line.free.get());
        assert!(id != MemberId::NONE, "I44: members are reserved before a call commits");
        line.free.set(id.data(&self.vm.machine).next.get());
        line.nr_free.add_owned(1u64.wrapping_neg());
        id
    }

    /// Joins with all pages of a VMA that is about to be published. A member is reserved.
    pub(crate) fn join_members(&self, writer: &Writer<'_, M>, vma: &Vma) {
        self.assert_writer(writer);
        if vma.object == ObjectId::NONE {
            return;
        }
        let machine = &self.vm.machine;
        let nr_pages = vma.range.nr_pages();
        let pages = ObjectPages { start: vma.pgoff, end: vma.pgoff.saturating_add(nr_pages) };
        if let Some(id) = self.members().member_at(Identity::of(vma)) {
            let member = id.data(machine);
            member.nr_pages.add_owned(nr_pages);
            let known = member.pages();
            if pages.start < known.start || pages.end > known.end {
                self.vm.widen_member(id, pages);
            }
            return;
        }
        let id = self.take_member();
        let member = id.data(machine);
        member.space.set(u64::from(self.frame.0));
        member.object.set(vma.object.0);
        member.displacement.set(Identity::of(vma).displacement);
        member.nr_pages.set(nr_pages);
        member.draw(id, machine.random());
        self.members().insert(id);
        self.data.members.nr.add_owned(1);
        self.vm.join_object(id, pages);
    }

    /// Leaves with `nr_pages` pages of such a VMA; all their entries were removed.
    fn leave_members(&self, writer: &Writer<'_, M>, vma: &Vma, nr_pages: u64) {
        self.assert_writer(writer);
        if vma.object == ObjectId::NONE || nr_pages == 0 {
            return;
        }
        let found = self.members().member_at(Identity::of(vma));
        debug_assert!(found.is_some(), "I44: a VMA of an object has a member");
        let Some(id) = found else { return };
        let member = id.data(&self.vm.machine);
        member.nr_pages.add_owned(nr_pages.wrapping_neg());
        if member.nr_pages.get() == 0 {
            self.vm.leave_object(id);
            self.members().remove(id);
            self.data.members.nr.add_owned(1u64.wrapping_neg());
            self.give_member(id);
        }
    }

    /// Leaves with these pages, then drops their references to the object.
    pub(crate) fn put_object_pages(&self, writer: &Writer<'_, M>, vma: &Vma, nr_pages: u64) {
        self.leave_members(writer, vma, nr_pages);
        self.vm.object_put(vma, nr_pages);
    }

    /// Members that a child with the same mappings needs.
    pub(crate) fn nr_members(&self, writer: &Writer<'_, M>) -> u64 {
        self.assert_writer(writer);
        self.data.members.nr.get()
    }

    pub(crate) fn members_mark(&self, writer: &Writer<'_, M>) -> MembersMark {
        self.assert_writer(writer);
        MembersMark(OptPfn::from_word(self.data.members.frames.get()))
    }

    /// Frees the frames that were added since: no member has joined meanwhile.
    pub(crate) fn shrink_members(&self, writer: &Writer<'_, M>, mark: MembersMark) {
        self.assert_writer(writer);
        let line = &self.data.members;
        while let Some(frame) = OptPfn::from_word(line.frames.get()).get().filter(|f| OptPfn::some(*f) != mark.0) {
            // The free members added last are those of the frame.
            (1..SLOTS_PER_FRAME).for_each(|_| {
                let id = self.take_member();
                debug_assert!(id.frame() == frame, "mark: members that are free come back in order");
            });
            line.frames.set(MemberId::new(frame, 0).data(&self.vm.machine).next.get());
            self.vm.give_back(frame, Fill::Raw);
        }
    }

    /// All entries are gone.
    pub(crate) fn leave_all_members(&self, writer: &Writer<'_, M>) {
        self.assert_writer(writer);
        let mut pace = Pace::new(&self.vm.machine);
        while let Some(id) = MemberId(self.data.members.root.get()).some() {
            // Two trees.
            pace.search();
            self.vm.leave_object(id);
            self.members().remove(id);
        }
    }

    /// Waits for visitors. No new one can come, because the space has left its family and all
    /// objects.
    pub(crate) fn wait_for_visitors(&self) {
        while self.nr_visits() != 0 {
            self.vm.machine.relax();
        }
    }

    /// The member of a VMA.
    pub(crate) fn member_of(&self, writer: &Writer<'_, M>, vma: &Vma) -> Option<&'vm MemberData> {
        self.assert_writer(writer);
        self.members().member_at(Identity::of(vma)).map(|id| id.data(&self.vm.machine))
    }

    /// Calls `f` with each member. At rest.
    pub(crate) fn for_each_member_of_objects(&self, f: &mut dyn FnMut(MemberId, &MemberData)) {
        self.members().for_each(&mut |id| f(id, id.data(&self.vm.machine)));
    }

    pub(crate) fn nr_visits(&self) -> u64 {
        self.data.members.visits.load(Ordering::Acquire)
    }

    /// Frees the frames of members, at the end.
    pub(crate) fn free_members(&self, writer: &Writer<'_, M>) {
        self.assert_writer(writer);
        self.data.members.visits.fetch_or(ENDED, Ordering::Relaxed);
        let mut at = OptPfn::from_word(self.data.members.frames.get());
        while let Some(frame) = at.get() {
            at = OptPfn::from_word(MemberId::new(frame, 0).data(&self.vm.machine).next.get());
            self.vm.give_back(frame, Fill::Raw);
        }
    }
}

/// A visited space. It exists until this is dropped.
pub(crate) struct SpaceVisit<'vm, M: Machine> {
    vm: &'vm Vm<M>,
    frame: Pfn,
}

impl<'vm, M: Machine> SpaceVisit<'vm, M> {
    pub(crate) fn space(&self) -> BorrowedSpace<'vm, M> {
        self.vm.borrow_space(self.frame)
    }

    /// Whether it is the space whose own frame this is.
    pub(crate) fn is_to(&self, frame: Pfn) -> bool {
        self.frame == frame
    }

    pub(crate) fn is_to_same(&self, other: &SpaceVisit<'vm, M>) -> bool {
        self.frame == other.frame
    }
}

/// A visited member and its space.
pub(crate) struct Visit<'vm, M: Machine> {
    to: SpaceVisit<'vm, M>,
    pub(crate) identity: Identity,
    pages: ObjectPages,
}

impl<'vm, M: Machine> Visit<'vm, M> {
    pub(crate) fn space(&self) -> BorrowedSpace<'vm, M> {
        self.to.space()
    }

    /// Where it maps its part of some pages.
    pub(crate) fn places_of(&self, pages: ObjectPages) -> PageRange {
        let pages = self.pages_of(pages);
        let place = |page: u64| Vpn(page.wrapping_add(self.identity.displacement));
        PageRange::new(place(pages.start), place(pages.end))
    }

    /// The part of some pages that the member maps.
    pub(crate) fn pages_of(&self, pages: ObjectPages) -> ObjectPages {
        ObjectPages { start: self.pages.start.max(pages.start), end: self.pages.end.min(pages.end) }
    }
}

impl<M: Machine> Drop for SpaceVisit<'_, M> {
    fn drop(&mut self) {
        let data: &SpaceData = mem::view(&self.vm.machine, self.frame, 0);
        // Release: what was done here comes before the end of the space.
        let before = data.members.visits.fetch_sub(1, Ordering::Release);
        assert!(before & ENDED == 0, "I44: a space that is visited stays");
    }
}

impl<M: Machine> Vm<M> {
    /// Begins a visit to the next member that maps any of these pages.
    pub(crate) fn visit_next(
        &self,
        object: ObjectId,
        pages: ObjectPages,
        at: &mut MembersCursor,
    ) -> Option<Visit<'_, M>> {
        self.next_member(object, pages, at, |frame, member| Visit {
            to: self.visit_space(frame),
            identity: member.identity(),
            pages: member.pages(),
        })
    }

    /// Begins a visit to a space whose own frame this is. The caller holds the lock of a shard that
    /// has a member of it, or of its family: the end of the space removes it there first, and waits
    /// for visitors afterwards.
    pub(crate) fn visit_space(&self, frame: Pfn) -> SpaceVisit<'_, M> {
        let data: &SpaceData = mem::view(&self.machine, frame, 0);
        data.members.visits.fetch_add(1, Ordering::Relaxed);
        SpaceVisit { vm: self, frame }
    }
}
