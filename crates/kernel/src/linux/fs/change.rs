//! Making, moving and removing names, with the checks that the calls have in
//! common. The tree does each as one step; what is checked before is checked
//! there again, where it matters.

use super::content::Content;
use super::inode::{Body, Inode};
use super::tree::{self, Entry};
use super::walk::{Last, Walked};
use crate::linux::errno::{self, Errno};
use crate::linux::file::pipe::Pipe;
use alloc::sync::Arc;

/// The kind of inode to make.
pub enum New<'a> {
    /// An empty file.
    File,
    /// A directory.
    Dir,
    /// A link to a path.
    Symlink(&'a [u8]),
    /// A pipe with a name.
    Fifo,
    /// A device.
    Device(u64),
    /// A name for a socket.
    Socket,
}

/// An inode that has no name yet, in the file system of `dir`.
pub fn inode(dir: &Inode, new: New, mode: u32) -> errno::Result<Arc<Inode>> {
    let body = match new {
        // As hugetlbfs, of which a link's path would need bytes that are written.
        New::Symlink(_) if dir.mount().is_some() => return Err(Errno::EINVAL),
        New::File => Body::File(dir.mount().map_or_else(|| Ok(Content::new(&[])), |mount| mount.new_content())?),
        New::Dir => Body::Dir,
        New::Symlink(target) => Body::Symlink(target.into()),
        New::Fifo => Body::Pipe(Pipe::fifo()?),
        New::Device(number) => Body::Device(number),
        New::Socket => Body::Socket,
    };
    Inode::beside(dir, body, mode & 0o7777)
}

/// Nothing can be made in generated directories.
fn check_tree(dir: &Inode) -> errno::Result<()> {
    if matches!(dir.body, Body::Generated(_)) { Err(Errno::EPERM) } else { Ok(()) }
}

/// Makes something where the path leads, which has to be free.
pub fn create(at: &Walked, new: New, mode: u32) -> errno::Result<Arc<Inode>> {
    if at.inode.is_some() {
        return Err(Errno::EEXIST);
    }
    if at.wants_dir && !matches!(new, New::Dir) {
        return Err(Errno::ENOENT);
    }
    check_tree(&at.dir).map_err(|_| Errno::ENOENT)?;
    let inode = inode(&at.dir, new, mode)?;
    tree::insert(&at.dir, Entry::new(&at.name, &inode)?)?;
    Ok(inode)
}

/// One more name for `inode`.
pub fn link(inode: &Arc<Inode>, at: &Walked) -> errno::Result<()> {
    if at.inode.is_some() {
        return Err(Errno::EEXIST);
    }
    if at.wants_dir {
        return Err(Errno::ENOENT);
    }
    if inode.is_dir() {
        return Err(Errno::EPERM);
    }
    if inode.device() != at.dir.device() {
        return Err(Errno::EXDEV);
    }
    check_tree(&at.dir)?;
    tree::insert(&at.dir, Entry::new(&at.name, inode)?)?;
    inode.change(|meta| meta.nr_links += 1);
    inode.touch_meta();
    Ok(())
}

/// unlink(2).
pub fn unlink(at: &Walked) -> errno::Result<()> {
    if at.last != Last::Name {
        return Err(if at.last == Last::None { Errno::EBUSY } else { Errno::EISDIR });
    }
    let inode = at.inode.as_ref().ok_or(Errno::ENOENT)?;
    if inode.is_dir() {
        return Err(Errno::EISDIR);
    }
    check_tree(&at.dir)?;
    tree::remove(&at.dir, &at.name, inode)
}

/// rmdir(2).
pub fn rmdir(at: &Walked) -> errno::Result<()> {
    match at.last {
        Last::Name => {}
        Last::Dot => return Err(Errno::EINVAL),
        Last::DotDot => return Err(Errno::ENOTEMPTY),
        Last::None => return Err(Errno::EBUSY),
    }
    let inode = at.inode.as_ref().ok_or(Errno::ENOENT)?;
    if !inode.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    check_tree(&at.dir)?;
    tree::remove(&at.dir, &at.name, inode)
}

/// renameat2(2).
pub fn rename(from: &Walked, to: &Walked, exclusive: bool, exchange: bool) -> errno::Result<()> {
    if from.last != Last::Name || to.last != Last::Name {
        return Err(Errno::EBUSY);
    }
    let inode = from.inode.as_ref().ok_or(Errno::ENOENT)?;
    if exclusive && to.inode.is_some() {
        return Err(Errno::EEXIST);
    }
    if from.dir.device() != to.dir.device() {
        return Err(Errno::EXDEV);
    }
    check_tree(&from.dir)?;
    if !inode.is_dir() && (from.wants_dir || to.wants_dir && !exchange) {
        return Err(Errno::ENOTDIR);
    }
    if exchange {
        let other = to.inode.as_ref().ok_or(Errno::ENOENT)?;
        return tree::exchange(&from.dir, &Entry::new(&from.name, inode)?, &to.dir, &Entry::new(&to.name, other)?);
    }
    tree::rename(&from.dir, &from.name, &to.dir, Entry::new(&to.name, inode)?, exclusive)
}
