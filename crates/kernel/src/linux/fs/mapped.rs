//! Files that are mapped, for `/proc/PID/maps` and for holes that a program makes in its
//! mappings: the memory subsystem knows a mapping's object by its number only. A name goes
//! when the file's content does; a mapping that is still there then has none, and its seals
//! no longer count.
//!
//! One spin lock, under which nothing is dropped. Without memory for a name
//! there is none.

use super::seals::Seals;
use super::{Inode, tree, walk};
use crate::linux::errno::{self, Errno};
use crate::port::heap;
use crate::port::sync::SpinLock;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use softfault::{HoleRefused, ObjectHole, ObjectId};

/// Heap that a name costs, besides its bytes.
const HEAP_PER_NAME: usize = 128;

/// The state of a mapped file.
#[derive(Clone)]
pub struct Name {
    /// The file's number.
    pub inode_number: u64,
    /// The file system's.
    pub device: u64,
    path: Arc<[u8]>,
    inode: Weak<Inode>,
    _charge: Arc<heap::Charge>,
}

static NAMES: SpinLock<BTreeMap<u64, Name>> = SpinLock::new(BTreeMap::new());

/// The object is the content of `inode`, found at `path`.
pub fn set(object: ObjectId, inode: &Arc<Inode>, path: &[u8]) -> errno::Result<()> {
    let _charge = Arc::new(heap::charge(HEAP_PER_NAME + path.len())?);
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path).into();
    let file = Arc::downgrade(inode);
    let name = Name { inode_number: inode.number, device: inode.device(), path, inode: file, _charge };
    let before = NAMES.lock().insert(object.0, name);
    drop(before);
    Ok(())
}

/// Forgets it.
pub fn forget(object: ObjectId) {
    let gone = NAMES.lock().remove(&object.0);
    drop(gone);
}

/// Returns the file of the object, if it has one. Private mappings of `/dev/zero` have none: that file's name is
/// kept under [`ObjectId::NONE`].
pub fn find(object: ObjectId) -> Option<Name> {
    NAMES.lock().get(&object.0).cloned()
}

/// Makes a hole that a program asks for (`MADV_REMOVE`), unless a seal forbids it. Writers of the file wait
/// meanwhile, so that nobody seals it. An object without a file gets its hole.
pub fn punch(hole: ObjectHole<'_>) -> Result<(), HoleRefused> {
    let inode = find(hole.object()).and_then(|name| name.inode.upgrade());
    let writer = inode.as_ref().and_then(|inode| inode.content().ok()).map(|content| content.writer());
    if writer.as_ref().is_some_and(|writer| writer.seals().intersects(Seals::NO_WRITES)) {
        return Err(HoleRefused::Sealed);
    }
    hole.discard();
    drop(writer);
    inode.iter().for_each(|inode| inode.touch());
    Ok(())
}

impl Name {
    /// The path, with a note if the file is there no more.
    pub fn path(&self) -> errno::Result<Vec<u8>> {
        let found = walk::walk(&tree::root(), &self.path, walk::Follow::Slash).ok().and_then(|found| found.inode);
        let is_there = found.is_some_and(|inode| inode.number == self.inode_number);
        let note: &[u8] = if is_there { b"" } else { b" (deleted)" };
        let mut path = Vec::new();
        path.try_reserve_exact(self.path.len() + note.len()).map_err(|_| Errno::ENOMEM)?;
        path.extend_from_slice(&self.path);
        path.extend_from_slice(note);
        Ok(path)
    }
}
