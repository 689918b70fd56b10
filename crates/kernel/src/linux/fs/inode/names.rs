//! The names of files that are mapped: the memory subsystem knows a mapping's object by its
//! number only. A name goes when the file does; a mapping that is still there then has none,
//! and its seals no longer count.
//!
//! One spin lock, under which nothing is dropped. Without memory for a name
//! there is none.

use super::Inode;
use crate::linux::errno;
use crate::port::heap;
use crate::port::sync::SpinLock;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use softfault::ObjectId;

/// Heap that a name costs, besides its bytes.
const HEAP_PER_NAME: usize = 128;

/// The state of a mapped file.
#[derive(Clone)]
pub struct Name {
    /// The file's number.
    pub inode_number: u64,
    /// The file system's.
    pub device: u64,
    /// Where it was found.
    pub path: Arc<[u8]>,
    inode: Weak<Inode>,
    _charge: Arc<heap::Charge>,
}

impl Name {
    /// The file, if it is there still.
    pub fn inode(&self) -> Option<Arc<Inode>> {
        self.inode.upgrade()
    }
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
