//! The part of each mapping that a child gets.

use crate::space::vma::{ObjectId, Vma, VmaFlags};

/// The entries of a mapping that the child gets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    All,
    /// Everything of a private mapping of an object except entries of the object's pages.
    Copies,
    /// Guards only: the child faults pages of an object in again.
    Guards,
}

/// Returns the entries of this mapping that the child gets.
pub(super) fn wanted(vma: &Vma) -> Option<Wanted> {
    let skip = VmaFlags::DONTFORK | VmaFlags::WIPEONFORK | VmaFlags::SHARED;
    if vma.flags.intersects(skip) && !vma.flags.contains(VmaFlags::MAYGUARD) {
        return None;
    }
    if vma.flags.intersects(VmaFlags::DONTFORK | VmaFlags::WIPEONFORK) {
        return None;
    }
    Some(match vma.object {
        _ if vma.flags.contains(VmaFlags::SHARED) => Wanted::Guards,
        ObjectId::NONE => Wanted::All,
        _ => Wanted::Copies,
    })
}
