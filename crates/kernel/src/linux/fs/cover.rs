//! Directories of the tree that the root of a mount covers. Locks as for the tree (tree.rs).

use super::inode::Inode;
use super::tree::{Dirs, Entry, TREE, is_dir, new_directory};
use crate::linux::errno::{self, Errno};
use alloc::sync::Arc;

/// The entry by which a directory is reached.
fn entry_of<'a>(tree: &'a mut Dirs, dir: &Inode) -> Option<&'a mut Entry> {
    let directory = tree.get(&dir.number)?;
    let (parent, name) = (directory.parent.number, directory.name.clone());
    tree.get_mut(&parent)?.entries.get_mut(&name).filter(|entry| entry.inode.number == dir.number)
}

/// The root of another file system takes the place of a directory. That keeps its names, which no path leads to.
pub fn cover(covered: &Arc<Inode>, root: &Arc<Inode>) -> errno::Result<()> {
    let mut directory = new_directory(root, &[][..].into())?;
    let mut tree = TREE.lock();
    let at = tree.get(&covered.number).map(|d| (d.parent.clone(), d.name.clone()));
    let (Some((parent, name)), Some(entry)) = (at, entry_of(&mut tree, covered)) else {
        // Of the root itself there is no entry; another has gone, or is covered.
        drop(tree);
        return Err(Errno::EBUSY);
    };
    entry.inode = root.clone();
    let unused = (core::mem::replace(&mut directory.parent, parent), core::mem::replace(&mut directory.name, name));
    tree.insert(root.number, directory);
    drop(tree);
    drop(unused);
    Ok(())
}

/// Uncovers the directory that `root` covered. The files in `root` stay until it is forgotten.
pub fn uncover(root: &Inode, covered: &Arc<Inode>) -> errno::Result<()> {
    let mut tree = TREE.lock();
    let entry = entry_of(&mut tree, root).ok_or(Errno::EINVAL)?;
    // The caller has the root still.
    entry.inode = covered.clone();
    Ok(())
}

/// Takes the names away that are in a directory and below, which no path leads to.
pub fn forget(dir: &Inode) {
    let mut numbers = alloc::vec![dir.number];
    while let Some(number) = numbers.pop() {
        let gone = TREE.lock().remove(&number);
        let inside = gone.iter().flat_map(|d| d.entries.values()).filter(|entry| is_dir(&entry.inode));
        numbers.extend(inside.map(|entry| entry.inode.number));
    }
}
