//! Files that are mapped, for `/proc/PID/maps` and for holes that a program makes in its
//! mappings. `inode::names` has the files; they are found by the objects.
//!
//! No lock is held on entry.

use super::inode::names::{Name, find};
use super::seals::Seals;
use super::{tree, walk};
use crate::linux::errno::{self, Errno};
use alloc::vec::Vec;
use softfault::{HoleRefused, ObjectHole};

/// Makes a hole that a program asks for (`MADV_REMOVE`), unless a seal forbids it. Writers of the file wait
/// meanwhile, so that nobody seals it. What is no file gets its hole.
pub fn punch(hole: ObjectHole<'_>) -> Result<(), HoleRefused> {
    let inode = find(hole.object()).and_then(|name| name.inode());
    let writer = inode.as_ref().and_then(|inode| inode.content().ok()).map(|content| content.writer());
    if writer.as_ref().is_some_and(|writer| writer.seals().intersects(Seals::NO_WRITES)) {
        return Err(HoleRefused::Sealed);
    }
    hole.discard();
    drop(writer);
    inode.iter().for_each(|inode| inode.touch());
    Ok(())
}

/// The path of a mapped file, with a note if it is there no more.
pub fn path(name: &Name) -> errno::Result<Vec<u8>> {
    let found = walk::walk(&tree::root(), &name.path, walk::Follow::Slash).ok().and_then(|found| found.inode);
    let is_there = found.is_some_and(|inode| inode.number == name.inode_number);
    let note: &[u8] = if is_there { b"" } else { b" (deleted)" };
    let mut path = Vec::new();
    path.try_reserve_exact(name.path.len() + note.len()).map_err(|_| Errno::ENOMEM)?;
    path.extend_from_slice(&name.path);
    path.extend_from_slice(note);
    Ok(path)
}
