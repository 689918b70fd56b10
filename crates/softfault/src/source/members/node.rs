//! One member: a space that maps pages of an object.
//!
//! Page `i` of the object lies at the virtual page `i + displacement` of the space.
//!
//! Locks: the links, `first`, `end` and the spans of subtrees are guarded by the lock of the shard or,
//! for the space's own tree, by the space's writer lock. The identity never changes while the member is
//! in a tree.

use crate::addr::{ObjectPages, PAGE_SIZE, Pfn};
use crate::hash::mix;
use crate::machine::Machine;
use crate::mem;
use crate::space::vma::{ObjectId, Vma};
use crate::sync::Word;

/// Bytes of a member.
const MEMBER_BYTES: usize = 128;
/// Members of a frame; the place of the first one links the frames of a space.
pub(crate) const SLOTS_PER_FRAME: u64 = PAGE_SIZE / MEMBER_BYTES as u64;

/// Names a member by its place; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct MemberId(pub(crate) u64);

impl MemberId {
    pub(crate) const NONE: MemberId = MemberId(0);

    pub(crate) fn new(frame: Pfn, slot: u64) -> MemberId {
        MemberId(u64::from(frame.0) * SLOTS_PER_FRAME + slot)
    }
    pub(crate) fn some(self) -> Option<MemberId> {
        (self != MemberId::NONE).then_some(self)
    }
    pub(crate) fn frame(self) -> Pfn {
        Pfn((self.0 / SLOTS_PER_FRAME) as u32)
    }
    #[inline]
    pub(crate) fn data<M: Machine>(self, machine: &M) -> &MemberData {
        mem::view(machine, self.frame(), (self.0 % SLOTS_PER_FRAME) as usize * MEMBER_BYTES)
    }
}

/// Children in a tree.
#[repr(C)]
pub(crate) struct Children {
    pub(super) left: Word,
    pub(super) right: Word,
}

/// A member. In the first place of a frame, `next` names the space's next frame.
#[repr(C, align(64))]
pub(crate) struct MemberData {
    /// Frame of the space.
    pub(crate) space: Word,
    pub(crate) object: Word,
    /// Virtual page less page of the object, wrapping.
    pub(crate) displacement: Word,
    /// `first` when the member joined: the order in the shard.
    pub(crate) joined_at: Word,
    /// Pages of the object that VMAs of the member map or have mapped.
    pub(crate) first: Word,
    pub(crate) end: Word,
    /// Pages of its VMAs. Under the writer lock.
    pub(crate) nr_pages: Word,
    /// Free members of the space, or frames of members: see above.
    pub(crate) next: Word,
    /// The smallest `first` and the largest `end` of the subtree in the shard.
    pub(super) min_first: Word,
    pub(super) max_end: Word,
    pub(super) in_shard: Children,
    pub(super) in_space: Children,
    /// Pages that the checker counted.
    pub(crate) counted: Word,
    /// Orders both trees from the top down. Random, drawn when the member joins, so that programs cannot
    /// choose the depth.
    pub(super) priority: Word,
}

const _: () = assert!(size_of::<MemberData>() == MEMBER_BYTES);

/// Identifies a member within its space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Identity {
    pub(crate) object: ObjectId,
    pub(crate) displacement: u64,
}

impl Identity {
    pub(crate) fn of(vma: &Vma) -> Identity {
        Identity { object: vma.object, displacement: vma.range.start.0.wrapping_sub(vma.pgoff) }
    }
}

impl MemberData {
    /// Draws its priority.
    pub(crate) fn draw(&self, id: MemberId, random: u64) {
        self.priority.set(mix(random ^ mix(id.0)));
    }
    pub(crate) fn identity(&self) -> Identity {
        Identity { object: ObjectId(self.object.get()), displacement: self.displacement.get() }
    }
    pub(crate) fn pages(&self) -> ObjectPages {
        ObjectPages { start: self.first.get(), end: self.end.get() }
    }
}
