//! The names: which directory has which under what name, all behind one spin
//! lock, so that a move from one directory to another is one step. Nothing is
//! dropped under the lock: what comes out is handed to the caller.

use super::inode::{Body, Inode, Listed};
use crate::linux::errno::{self, Errno};
use crate::port::heap;
use crate::port::sync::SpinLock;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use spin::Once;

/// Heap that a name costs, besides its bytes: what both maps have for it when
/// they are half full.
const HEAP_PER_NAME: usize = 240;
/// Heap that a directory costs, besides its inode: mostly the two maps, which are
/// large from their first entry on.
const HEAP_PER_DIRECTORY: usize = 1600;

/// A name that is to be put into a directory.
pub struct Entry {
    pub(super) inode: Arc<Inode>,
    name: Arc<[u8]>,
    cookie: u64,
    _charge: heap::Charge,
}

impl Entry {
    /// Allocates what the name needs.
    pub fn new(name: &[u8], inode: &Arc<Inode>) -> errno::Result<Entry> {
        let charge = heap::charge(HEAP_PER_NAME + name.len())?;
        Ok(Entry { inode: inode.clone(), name: name.into(), cookie: 0, _charge: charge })
    }
}

pub(super) struct Directory {
    /// The directory that it is in, and its name there; the root is in itself.
    pub(super) parent: Arc<Inode>,
    pub(super) name: Arc<[u8]>,
    pub(super) entries: BTreeMap<Arc<[u8]>, Entry>,
    /// The same names in the order of their making, for a caller that reads it in
    /// parts.
    order: BTreeMap<u64, Arc<[u8]>>,
    next_cookie: u64,
    _charge: heap::Charge,
}

impl Directory {
    fn put(&mut self, mut entry: Entry) {
        entry.cookie = self.next_cookie;
        self.next_cookie += 1;
        self.order.insert(entry.cookie, entry.name.clone());
        self.entries.insert(entry.name.clone(), entry);
    }
    fn take(&mut self, name: &[u8]) -> Option<Entry> {
        let entry = self.entries.remove(name)?;
        self.order.remove(&entry.cookie);
        Some(entry)
    }
}

/// Directories by their inode's number.
pub(super) static TREE: SpinLock<BTreeMap<u64, Directory>> = SpinLock::new(BTreeMap::new());
static ROOT: Once<Arc<Inode>> = Once::new();

pub(super) type Dirs = BTreeMap<u64, Directory>;

/// The root directory.
pub fn root() -> Arc<Inode> {
    ROOT.get().expect("made before the first process").clone()
}

/// Takes all names away, and with them the files that nobody has open.
pub fn clear() {
    let gone = core::mem::take(&mut *TREE.lock());
    drop(gone);
}

/// Makes the root; once.
pub fn init() -> errno::Result<()> {
    let root = Inode::new(Body::Dir, 0o755)?;
    let directory = new_directory(&root, &[][..].into())?;
    TREE.lock().insert(root.number, directory);
    ROOT.call_once(|| root);
    Ok(())
}

pub(super) fn new_directory(parent: &Arc<Inode>, name: &Arc<[u8]>) -> errno::Result<Directory> {
    Ok(Directory {
        parent: parent.clone(),
        name: name.clone(),
        entries: BTreeMap::new(),
        order: BTreeMap::new(),
        next_cookie: 3,
        _charge: heap::charge(HEAP_PER_DIRECTORY)?,
    })
}

/// Returns the file of this name in a directory of the tree.
pub fn lookup(dir: &Inode, name: &[u8]) -> Option<Arc<Inode>> {
    TREE.lock().get(&dir.number)?.entries.get(name).map(|entry| entry.inode.clone())
}

/// The directory above, and the name of this one in it; nothing once it was
/// removed.
pub fn parent(dir: &Inode) -> Option<(Arc<Inode>, Arc<[u8]>)> {
    TREE.lock().get(&dir.number).map(|d| (d.parent.clone(), d.name.clone()))
}

/// Puts a name into `dir`.
pub fn insert(dir: &Arc<Inode>, entry: Entry) -> errno::Result<()> {
    let (inode, name) = (entry.inode.clone(), entry.name.clone());
    let fresh = matches!(inode.body, Body::Dir).then(|| new_directory(dir, &name)).transpose()?;
    let refused = {
        let mut tree = TREE.lock();
        match tree.get_mut(&dir.number) {
            None => Err((Errno::ENOENT, entry, fresh)),
            Some(directory) if directory.entries.contains_key(&name) => Err((Errno::EEXIST, entry, fresh)),
            Some(directory) => {
                directory.put(entry);
                fresh.map(|fresh| tree.insert(inode.number, fresh));
                Ok(())
            }
        }
    };
    refused.map_err(|(errno, ..)| errno)?;
    if matches!(inode.body, Body::Dir) {
        dir.change(|meta| meta.nr_links += 1);
    }
    dir.touch();
    Ok(())
}

pub(super) fn is_dir(inode: &Inode) -> bool {
    matches!(inode.body, Body::Dir)
}

/// Takes the name of `inode` away, which has to be what has it still.
pub fn remove(dir: &Arc<Inode>, name: &[u8], inode: &Inode) -> errno::Result<()> {
    let gone = {
        let mut tree = TREE.lock();
        let found = tree.get(&dir.number).and_then(|d| d.entries.get(name));
        if found.is_none_or(|entry| entry.inode.number != inode.number) {
            return Err(Errno::ENOENT);
        }
        if inode.is_mount() {
            return Err(Errno::EBUSY);
        }
        if is_dir(inode) && !is_empty(&tree, inode) {
            return Err(Errno::ENOTEMPTY);
        }
        (tree.get_mut(&dir.number).and_then(|d| d.take(name)), tree.remove(&inode.number))
    };
    drop(gone);
    forget_link(dir, inode);
    dir.touch();
    Ok(())
}

fn is_empty(tree: &Dirs, dir: &Inode) -> bool {
    tree.get(&dir.number).is_none_or(|d| d.entries.is_empty())
}

/// An inode has lost a name in `dir`.
fn forget_link(dir: &Inode, inode: &Inode) {
    inode.touch_meta();
    if is_dir(inode) {
        inode.change(|meta| meta.nr_links = 0);
        dir.change(|meta| meta.nr_links -= 1);
    } else {
        inode.change(|meta| meta.nr_links = meta.nr_links.saturating_sub(1));
    }
}

/// Whether `dir` is `above` or lies somewhere in it.
fn is_inside(tree: &Dirs, dir: &Inode, above: &Inode) -> bool {
    let mut number = dir.number;
    loop {
        if number == above.number {
            return true;
        }
        match tree.get(&number) {
            Some(d) if d.parent.number != number => number = d.parent.number,
            _ => return false,
        }
    }
}

/// Whether what a move would replace may be replaced by `inode`.
fn check_replaced(tree: &Dirs, inode: &Inode, replaced: &Inode) -> errno::Result<()> {
    if replaced.is_mount() {
        return Err(Errno::EBUSY);
    }
    match (is_dir(inode), is_dir(replaced)) {
        (true, false) => Err(Errno::ENOTDIR),
        (false, true) => Err(Errno::EISDIR),
        (true, true) if !is_empty(tree, replaced) => Err(Errno::ENOTEMPTY),
        _ => Ok(()),
    }
}

/// The things that a move takes out of the tree, to be dropped after the lock.
struct Gone {
    _entries: [Option<Entry>; 2],
    _directory: Option<Directory>,
    _before: Option<(Arc<Inode>, Arc<[u8]>)>,
}

/// Whether the move may be made; what it would replace. Nothing to do if both
/// names stand for the same.
fn check_rename(
    tree: &Dirs,
    (dir, name): (&Inode, &[u8]),
    (to, new_name): (&Inode, &[u8]),
    inode: &Inode,
    exclusive: bool,
) -> errno::Result<Option<Arc<Inode>>> {
    let found = tree.get(&dir.number).and_then(|d| d.entries.get(name));
    if found.is_none_or(|e| e.inode.number != inode.number) || !tree.contains_key(&to.number) {
        return Err(Errno::ENOENT);
    }
    if inode.is_mount() {
        return Err(Errno::EBUSY);
    }
    if is_dir(inode) && is_inside(tree, to, inode) {
        return Err(Errno::EINVAL);
    }
    let replaced = tree.get(&to.number).and_then(|d| d.entries.get(new_name)).map(|e| e.inode.clone());
    if let Some(replaced) = &replaced {
        if exclusive {
            return Err(Errno::EEXIST);
        }
        if replaced.number != inode.number {
            check_replaced(tree, inode, replaced)?;
        }
    }
    Ok(replaced)
}

/// Moves, and takes out what was replaced.
fn move_entry(
    tree: &mut Dirs,
    dir: &Inode,
    name: &[u8],
    to: &Arc<Inode>,
    entry: Entry,
    replaced: Option<&Inode>,
) -> Gone {
    let (number, new_name) = (entry.inode.number, entry.name.clone());
    let directory = replaced.and_then(|r| tree.remove(&r.number));
    let old = tree.get_mut(&dir.number).and_then(|d| d.take(name));
    let over = tree.get_mut(&to.number).and_then(|d| {
        let over = d.take(&new_name);
        d.put(entry);
        over
    });
    let before = tree.get_mut(&number).map(|moved| {
        let parent = core::mem::replace(&mut moved.parent, to.clone());
        (parent, core::mem::replace(&mut moved.name, new_name))
    });
    Gone { _entries: [old, over], _directory: directory, _before: before }
}

/// Moves `name` of `dir` to what `entry` says in `to`, which it replaces unless
/// `exclusive`. The inode is `entry`'s.
pub fn rename(dir: &Arc<Inode>, name: &[u8], to: &Arc<Inode>, entry: Entry, exclusive: bool) -> errno::Result<()> {
    let inode = entry.inode.clone();
    // Both outlive the lock.
    let replaced;
    let gone;
    {
        let mut tree = TREE.lock();
        replaced = check_rename(&tree, (dir, name), (to, &entry.name), &inode, exclusive)?;
        if replaced.as_ref().is_some_and(|r| r.number == inode.number) {
            return Ok(());
        }
        gone = move_entry(&mut tree, dir, name, to, entry, replaced.as_deref());
    }
    drop(gone);
    if let Some(replaced) = &replaced {
        forget_link(to, replaced);
    }
    if is_dir(&inode) {
        dir.change(|meta| meta.nr_links -= 1);
        to.change(|meta| meta.nr_links += 1);
    }
    inode.touch_meta();
    dir.touch();
    to.touch();
    Ok(())
}

/// Exchanges what two names stand for.
pub fn exchange(dir: &Arc<Inode>, first: &Entry, to: &Arc<Inode>, second: &Entry) -> errno::Result<()> {
    {
        let mut tree = TREE.lock();
        let tree = &mut *tree;
        let has = |dir: &Inode, entry: &Entry| {
            let found = tree.get(&dir.number).and_then(|d| d.entries.get(&entry.name));
            found.is_some_and(|e| e.inode.number == entry.inode.number)
        };
        if !has(dir, first) || !has(to, second) {
            return Err(Errno::ENOENT);
        }
        if first.inode.is_mount() || second.inode.is_mount() {
            return Err(Errno::EBUSY);
        }
        let into_itself = |inode: &Inode, into: &Inode| is_dir(inode) && is_inside(tree, into, inode);
        if into_itself(&first.inode, to) || into_itself(&second.inode, dir) {
            return Err(Errno::EINVAL);
        }
        for (at, old, new) in [(dir, first, second), (to, second, first)] {
            // The old inode stays alive in the caller's entry.
            let slot = tree.get_mut(&at.number).and_then(|d| d.entries.get_mut(&old.name));
            slot.into_iter().for_each(|slot| slot.inode = new.inode.clone());
            if let Some(moved) = tree.get_mut(&new.inode.number) {
                moved.parent = at.clone();
                moved.name = old.name.clone();
            }
        }
    }
    for (at, old, new) in [(dir, first, second), (to, second, first)] {
        if is_dir(&old.inode) {
            at.change(|meta| meta.nr_links -= 1);
        }
        if is_dir(&new.inode) {
            at.change(|meta| meta.nr_links += 1);
        }
        at.touch();
    }
    Ok(())
}

/// Up to `max` names that follow `cookie`.
pub fn list(dir: &Inode, cookie: u64, max: usize) -> errno::Result<Vec<Listed>> {
    let mut listed = Vec::new();
    listed.try_reserve_exact(max).map_err(|_| Errno::ENOMEM)?;
    let tree = TREE.lock();
    let directory = tree.get(&dir.number).ok_or(Errno::ENOENT)?;
    for (cookie, name) in directory.order.range(cookie + 1..).take(max) {
        if let Some(entry) = directory.entries.get(name) {
            listed.push(Listed { cookie: *cookie, name: name.clone(), inode: entry.inode.clone() });
        }
    }
    Ok(listed)
}
