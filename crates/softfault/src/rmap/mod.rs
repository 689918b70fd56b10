//! Station `rmap`: from a frame to the entries that map it.
//!
//! Spaces that descend from one another by fork form a *family*, named by the
//! frame of its founder. A private frame's descriptor names the family and the
//! page index, which mremap(2) does not change; so the entries that may map it
//! are, in each member, those of VMAs in which the index falls. Most VMAs lie
//! where they were first mapped, and there the index is the page number.
//!
//! Against Linux's trees of `anon_vma`: no allocation on first write, nothing to
//! copy at fork but one list link; a walk visits all members of the family, also
//! those that never had the page. A family of thousands pays for that in reclaim.
//!
//! Locks: one walk at a time (`rmap_walks`), under it the family's lock, under
//! that nothing but sections. `take` makes the entries of a frame `Busy`, for who
//! wants to change what they map.

mod take;

pub(crate) use take::{TakeEnded, TakenEntry};

use crate::addr::{Pfn, Vpn};
use crate::frame::{Fill, FrameKind};
use crate::machine::Machine;
use crate::mem;
use crate::space::lock::Spin;
use crate::space::vma::Vma;
use crate::space::{AddressSpace, MetaUse, SpaceData};
use crate::sync::{Ordering, Word};
use crate::table::walk;
use crate::vm::Vm;
use core::ops::ControlFlow;

/// In every space: its place in its family. The last four are used in the
/// founder's only, whose frame stays until the last member is gone.
#[repr(C)]
pub(crate) struct FamilyData {
    /// Frame of the founder.
    pub(crate) founder: Word,
    /// Next and previous member, frame + 1.
    pub(crate) next: Word,
    pub(crate) prev: Word,
    /// Whether the founder itself has gone.
    pub(crate) dead: Word,
    pub(crate) lock: Word,
    /// First member, frame + 1.
    pub(crate) first: Word,
    pub(crate) nr_members: Word,
    pub(crate) pad: Word,
}

fn link(word: &Word) -> Option<Pfn> {
    word.get().checked_sub(1).map(|p| Pfn(p as u32))
}

impl<M: Machine> Vm<M> {
    fn space_data(&self, frame: Pfn) -> &SpaceData {
        mem::view(&self.machine, frame, 0)
    }
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    fn founder(&self) -> &'vm FamilyData {
        &self.vm.space_data(Pfn(self.family as u32)).family
    }

    /// Becomes a member of its family.
    pub(crate) fn enlist(&self) {
        let head = self.founder();
        let _lock = Spin::lock(&head.lock, &self.vm.machine);
        let me = u64::from(self.frame.0) + 1;
        let first = head.first.get();
        self.data.family.next.set(first);
        if let Some(first) = link(&head.first) {
            self.vm.space_data(first).family.prev.set(me);
        }
        head.first.set(me);
        head.nr_members.add_owned(1);
    }

    /// The first act of the space's end: from now on no walk finds it. A walk
    /// under way is waited for.
    pub(crate) fn leave_family(&self) {
        let vm = self.vm;
        let mine = &self.data.family;
        let head = self.founder();
        let _lock = Spin::lock(&head.lock, &vm.machine);
        match link(&mine.prev) {
            Some(prev) => vm.space_data(prev).family.next.set(mine.next.get()),
            None => head.first.set(mine.next.get()),
        }
        if let Some(next) = link(&mine.next) {
            vm.space_data(next).family.prev.set(mine.prev.get());
        }
    }

    /// The last act: gives up the space's own frame, which goes back unless
    /// others still know the family by it.
    pub(crate) fn give_up_frame(&self) {
        let vm = self.vm;
        let founder_frame = Pfn(self.family as u32);
        let head = self.founder();
        // Against walks that are about to look at a founder: `rmap_anon`.
        let _walks = Spin::lock(&vm.rmap_walks, &vm.machine);
        let lock = Spin::lock(&head.lock, &vm.machine);
        head.nr_members.add_owned(1u64.wrapping_neg());
        if founder_frame == self.frame {
            head.dead.set(1);
        }
        let last = head.nr_members.get() == 0 && head.dead.get() == 1;
        drop(lock);
        if founder_frame != self.frame {
            vm.give_back(self.frame, Fill::Raw);
        }
        if last {
            vm.give_back(founder_frame, Fill::Raw);
        }
    }
}

/// One entry that maps a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// Id of the address space.
    pub space: u64,
    /// The page.
    pub vpn: Vpn,
}

/// A space, as a walk meets it: in place as long as the family's lock is held.
#[derive(Clone, Copy)]
struct Member<'vm> {
    frame: Pfn,
    data: &'vm SpaceData,
}

/// Where a VMA has the page of that index.
fn place_in(vma: &Vma, index: u64) -> Option<Vpn> {
    let offset = index.wrapping_sub(vma.pgoff);
    (offset < vma.range.nr_pages()).then(|| Vpn(vma.range.start.0 + offset))
}

impl<M: Machine> Vm<M> {
    /// Calls `f` with each entry that maps the private frame `pfn`. Complete at
    /// rest; under races an entry that comes or goes may be missed or named.
    ///
    /// Locks: takes the family's; `f` runs under it and must not call back.
    pub fn rmap_anon(&self, pfn: Pfn, f: &mut dyn FnMut(Mapping) -> ControlFlow<()>) -> ControlFlow<()> {
        self.for_each_member(pfn, &mut |member, index| self.rmap_in(member.data, pfn, index, f))
    }

    /// Calls `f(member, page index)` with each space that may map the private frame
    /// `pfn`, and the index that the frame has in all of them.
    ///
    /// Locks: takes the family's; `f` runs under it and must not call back.
    fn for_each_member<'vm>(
        &'vm self,
        pfn: Pfn,
        f: &mut dyn FnMut(Member<'vm>, u64) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        // Keeps founders' frames in place for the time of the walk. One lock for
        // all is coarse; nothing but reclaim and migration will walk.
        let _walks = Spin::lock(&self.rmap_walks, &self.machine);
        let Some((head, index)) = self.family_of(pfn) else { return ControlFlow::Continue(()) };
        let _lock = Spin::lock(&head.lock, &self.machine);
        let mut at = link(&head.first);
        while let Some(frame) = at {
            let data = self.space_data(frame);
            f(Member { frame, data }, index)?;
            at = link(&data.family.next);
        }
        ControlFlow::Continue(())
    }

    /// The family that a private frame names, if it is one: the frame may find
    /// another use while its descriptor is read.
    fn family_of(&self, pfn: Pfn) -> Option<(&FamilyData, u64)> {
        if u64::from(pfn.0) >= self.nr_frames() {
            return None;
        }
        let (owner, index) = self.anon_owner(pfn).filter(|(owner, _)| *owner < self.nr_frames())?;
        let founder = Pfn(owner as u32);
        let home = self.frames.desc(founder);
        let is_space = home.state().kind() == FrameKind::Meta && home.index.get() == MetaUse::Space as u64;
        let head = &self.space_data(founder).family;
        (is_space && head.founder.get() == owner).then_some((head, index))
    }

    /// Owner and index of a private frame, from its own descriptor or from that of
    /// the folio that it is a part of.
    fn anon_owner(&self, pfn: Pfn) -> Option<(u64, u64)> {
        let desc = self.frames.desc(pfn);
        if desc.state().kind() == FrameKind::Anon {
            return Some((desc.owner.load(Ordering::Acquire), desc.index.load(Ordering::Acquire)));
        }
        let folio = self.frames.folio(pfn);
        let part = u64::from(pfn.0) % Self::NR_SUB_FRAMES;
        (folio.state().kind() == FrameKind::Anon && self.is_part(pfn))
            .then(|| (folio.owner.load(Ordering::Acquire), folio.index.load(Ordering::Acquire) + part))
    }

    fn rmap_in(
        &self,
        data: &SpaceData,
        pfn: Pfn,
        index: u64,
        f: &mut dyn FnMut(Mapping) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let root = Pfn(data.root.get() as u32);
        let tree = crate::space::tree::Tree::new(&self.machine, &data.tree);
        let mut at = Vpn(0);
        loop {
            // One section per VMA: a family may be large, and a section short.
            let found = {
                let _section = self.space_section(data, data.id.get());
                let Some(found) = tree.next(at) else { return ControlFlow::Continue(()) };
                let vma = found.vma;
                at = vma.range.end;
                place_in(&vma, index).filter(|vpn| self.maps_frame(root, *vpn, pfn))
            };
            if let Some(vpn) = found {
                f(Mapping { space: data.id.get(), vpn })?;
            }
        }
    }

    fn maps_frame(&self, root: Pfn, vpn: Vpn, pfn: Pfn) -> bool {
        walk::mapped(&self.machine, root, vpn).is_some_and(|mapped| mapped.leaf.pfn == pfn)
    }
}
