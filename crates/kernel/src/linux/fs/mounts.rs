//! The file systems that are mounted, and mounting. The root of a mount takes the
//! place of a directory in the tree (cover.rs), which it covers. Each of its inodes says which mount it is in.
//!
//! A mount stays while one of its files is open or a process is in it, unless it is detached: then its directories go at
//! once, and files that are open stay. A mapping alone keeps no mount: the memory that it maps stays.
//!
//! One spin lock for the list, under which nothing is dropped and no other is taken but the heap's.

use super::inode::{Body, Inode};
use super::mount::{Mount, Place};
use super::options::Options;
use super::{cover, walk};
use crate::linux::errno::{self, Errno};
use crate::port::sync::SpinLock;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};

static MOUNTS: SpinLock<Vec<Mounted>> = SpinLock::new(Vec::new());

/// A mount in the tree.
#[derive(Clone)]
struct Mounted {
    mount: Arc<Mount>,
    root: Arc<Inode>,
    covered: Arc<Inode>,
}

/// Mounts a new hugetlbfs where `covered` is; `text` has the options, `owner` is who mounts it: user and group.
pub fn mount(covered: &Arc<Inode>, source: &[u8], text: &[u8], owner: [u32; 2]) -> errno::Result<()> {
    let options = Options::parse(text, owner)?;
    let number = Inode::new_number();
    let mount = Mount::new(number, options, source)?;
    // As Linux.
    let place = Place::in_mount(&mount).map_err(|_| Errno::ENOMEM)?;
    let root = Inode::placed(number, Body::Dir, options.mode, Some(place))?;
    root.change(|meta| [meta.uid, meta.gid] = options.owner);
    cover::cover(covered, &root)?;
    MOUNTS.lock().push(Mounted { mount, root, covered: covered.clone() });
    Ok(())
}

/// Ends the mount whose root is `root`. It is there no more for programs that open something; see above for `detach`.
/// `cwds` gives the directories that processes are in.
pub fn unmount(root: &Arc<Inode>, detach: bool, cwds: impl FnOnce() -> Vec<Arc<Inode>>) -> errno::Result<()> {
    let mount = root.mount().filter(|mount| mount.is_root(root.number)).ok_or(Errno::EINVAL)?;
    let is_in = |inode: &Inode| inode.mount().is_some_and(|of| Arc::ptr_eq(of, mount));
    let mounts = all();
    let mounted = mounts.iter().find(|mounted| Arc::ptr_eq(&mounted.mount, mount)).ok_or(Errno::EINVAL)?;
    let has_users = || mount.is_in_use() || cwds().iter().any(|cwd| is_in(cwd));
    // File systems that are mounted in it would be nowhere.
    if mounts.iter().any(|other| is_in(&other.covered)) || !detach && has_users() {
        return Err(Errno::EBUSY);
    }
    cover::uncover(root, &mounted.covered)?;
    let gone = {
        let mut mounts = MOUNTS.lock();
        let at = mounts.iter().position(|mounted| Arc::ptr_eq(&mounted.mount, mount));
        at.map(|at| mounts.remove(at))
    };
    drop(gone);
    cover::forget(root);
    Ok(())
}

fn all() -> Vec<Mounted> {
    MOUNTS.lock().clone()
}

/// Text in a field of `/proc/mounts`: what would end it is written as a number.
struct Field<'a>(&'a [u8]);

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| match byte {
            b' ' | b'\t' | b'\n' | b'\\' | b'#' => write!(f, "\\{byte:03o}"),
            _ => f.write_char(char::from(*byte)),
        })
    }
}

/// The lines of `/proc/PID/mounts`.
pub fn write_mounts(out: &mut dyn Write) -> fmt::Result {
    all().iter().try_for_each(|Mounted { mount, root, .. }| {
        let path = walk::path_of_dir(root).unwrap_or_default();
        writeln!(out, "{} {} hugetlbfs rw,relatime{} 0 0", Field(&mount.source), Field(&path), mount.options)
    })
}

/// The lines of `/proc/PID/mountinfo`; the first is numbered `first`.
pub fn write_mountinfo(first: u64, out: &mut dyn Write) -> fmt::Result {
    (first..).zip(all()).try_for_each(|(number, Mounted { mount, root, .. })| {
        let path = walk::path_of_dir(&root).unwrap_or_default();
        write!(out, "{number} 1 0:{} / {} rw,relatime - ", mount.device, Field(&path))?;
        writeln!(out, "hugetlbfs {} rw{}", Field(&mount.source), mount.options)
    })
}
