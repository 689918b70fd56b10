//! I44 at rest: each VMA of an object has a member, which counts its pages, shows them, and is
//! in the trees of its space and of its object.

use super::Broken;
use crate::addr::{ObjectPages, Pfn};
use crate::machine::Machine;
use crate::pace;
use crate::source::members::MembersCursor;
use crate::space::AddressSpace;
use crate::space::Vm;
use crate::space::vma::ObjectId;
use crate::sync::Ordering;
use core::ops::ControlFlow;

impl<M: Machine> AddressSpace<'_, M> {
    /// Checks that the space's tree has a member for each VMA and none else, with its pages, and
    /// that no walk visits the space.
    pub(super) fn check_members(&self) -> Result<(), Broken> {
        let writer = &self.sole_writer();
        let mut nr_members = 0;
        self.for_each_member_of_objects(&mut |_, member| {
            member.counted.set(0);
            nr_members += 1;
        });
        let mut is_right = nr_members == self.nr_members(writer) && self.nr_visits() == 0;
        let _ = self.tree(writer).for_each(Self::user_range(), &mut |vma| {
            if vma.object != ObjectId::NONE {
                let (first, end) = (vma.pgoff, vma.pgoff + vma.range.nr_pages());
                is_right &= self.member_of(writer, &vma).is_some_and(|member| {
                    member.counted.add_owned(vma.range.nr_pages());
                    member.space.get() == u64::from(self.frame.0)
                        && member.first.get() <= first
                        && end <= member.end.get()
                });
            }
            ControlFlow::Continue(())
        });
        self.for_each_member_of_objects(&mut |id, member| {
            pace::answer(&self.vm.machine);
            is_right &= self.vm.is_in_shard(id);
            is_right &= member.counted.get() == member.nr_pages.get() && member.nr_pages.get() != 0;
        });
        if is_right { Ok(()) } else { Err(Broken::WrongMembers(self.frame)) }
    }
}

impl<M: Machine> Vm<M> {
    /// The object's shards have the members of these spaces, each once, in trees that find
    /// them. After the same for the spaces.
    pub(crate) fn check_members_of(&self, spaces: &[&AddressSpace<'_, M>], object: ObjectId) -> Result<(), Broken> {
        let (mut nr_there, mut is_right, mut at) = (0, self.are_members_sound(object), MembersCursor::default());
        while let Some(space) = self.next_member(object, ObjectPages::ALL, &mut at, |space, _| space) {
            pace::answer(&self.machine);
            nr_there += 1;
            is_right &= spaces.iter().any(|s| s.frame == space);
        }
        let mut nr_asked_for = 0;
        for space in spaces {
            space.for_each_member_of_objects(&mut |_, m| nr_asked_for += u64::from(m.object.get() == object.0));
        }
        let nr_told = self.object(object).nr_members.load(Ordering::Relaxed);
        let is_right = is_right && nr_there == nr_asked_for && nr_told == nr_there;
        if is_right { Ok(()) } else { Err(Broken::WrongMembers(Pfn(object.0 as u32))) }
    }
}
