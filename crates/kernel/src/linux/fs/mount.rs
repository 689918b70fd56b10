//! Mounted file systems. There is one kind: hugetlbfs, whose files have the pages of a pool. The root of a mount takes the
//! place of a directory in the tree (cover.rs), which it covers. Each of its inodes says which mount it is in.
//!
//! A mount stays while one of its files is open or a process is in it, unless it is detached: then its directories go at
//! once, and files that are open stay. A mapping alone keeps no mount: the memory that it maps stays.
//!
//! One spin lock for the list, under which nothing is dropped and no other is taken but the heap's.

use super::content::Content;
use super::inode::{Body, Inode};
use super::options::Options;
use super::seals::Seals;
use super::{cover, walk};
use crate::linux::errno::{self, Errno};
use crate::linux::process;
use crate::port::heap;
use crate::port::mm;
use crate::port::sync::SpinLock;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};
use softfault::Order;

/// Heap that a mount costs, besides its source.
const HEAP_BYTES: usize = 512;
/// Number of the first file system that is mounted.
const FIRST_DEVICE: u64 = 0x20;

static NEXT_DEVICE: AtomicU64 = AtomicU64::new(FIRST_DEVICE);
static MOUNTS: SpinLock<Vec<Mounted>> = SpinLock::new(Vec::new());

/// A mounted file system: a hugetlbfs.
pub struct Mount {
    /// Number of its file system.
    pub device: u64,
    root_number: u64,
    options: Options,
    subpool: Option<mm::Subpool>,
    nr_inodes: AtomicU64,
    /// Files of it that are open.
    nr_open: AtomicU64,
    source: Arc<[u8]>,
    _charge: heap::Charge,
}

/// A mount in the tree.
#[derive(Clone)]
struct Mounted {
    mount: Arc<Mount>,
    root: Arc<Inode>,
    covered: Arc<Inode>,
}

impl Mount {
    /// The size of its files' pages.
    pub fn order(&self) -> Order {
        self.options.order
    }
    /// The content of a new file, which is empty.
    pub fn new_content(&self) -> errno::Result<Content> {
        let Some(subpool) = &self.subpool else { return Content::huge(self.order(), Seals::SEAL) };
        let object = subpool.new_object(0).map_err(|error| error.errno())?;
        Ok(Content::of_huge(object, self.order(), Seals::SEAL))
    }
    /// How many pages there may be, and how many more; nothing without a limit.
    pub fn page_limit(&self) -> Option<[u64; 2]> {
        let subpool = self.subpool.as_ref()?;
        let most = subpool.limits().most?;
        Some([most, most.saturating_sub(subpool.nr_used())])
    }
    /// How many inodes there may be, and how many more; nothing without a limit.
    pub fn inode_limit(&self) -> Option<[u64; 2]> {
        let most = self.options.nr_inodes?;
        Some([most, most.saturating_sub(self.nr_inodes.load(Ordering::Relaxed))])
    }
    /// Whether its root has that number.
    pub fn is_root(&self, number: u64) -> bool {
        self.root_number == number
    }
}

/// The place of an inode in a mount, which is counted.
pub struct Place(Arc<Mount>);

impl Place {
    /// ENOSPC if there may be no more inodes.
    pub fn in_mount(mount: &Arc<Mount>) -> errno::Result<Place> {
        let place = Place(mount.clone());
        let before = mount.nr_inodes.fetch_add(1, Ordering::Relaxed);
        let is_full = mount.options.nr_inodes.is_some_and(|most| before >= most);
        if is_full { Err(Errno::ENOSPC) } else { Ok(place) }
    }
    /// The mount.
    pub fn mount(&self) -> &Arc<Mount> {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.nr_inodes.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Keeps the mount of a file that is open.
pub struct InUse(Arc<Mount>);

impl InUse {
    /// The mount that the inode is in, if it is in one.
    pub fn of(inode: &Inode) -> Option<InUse> {
        let mount = inode.mount()?.clone();
        mount.nr_open.fetch_add(1, Ordering::Relaxed);
        Some(InUse(mount))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.nr_open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Mounts a new hugetlbfs where `covered` is; `text` has the options, `owner` is who mounts it: user and group.
pub fn mount(covered: &Arc<Inode>, source: &[u8], text: &[u8], owner: [u32; 2]) -> errno::Result<()> {
    let options = Options::parse(text, owner)?;
    let subpool = options.sizes.map(|sizes| mm::new_subpool(options.order, sizes)).transpose();
    let subpool = subpool.map_err(|error| error.errno())?;
    let mount = Arc::new(Mount {
        device: NEXT_DEVICE.fetch_add(1, Ordering::Relaxed),
        root_number: Inode::new_number(),
        options,
        subpool,
        nr_inodes: AtomicU64::new(0),
        nr_open: AtomicU64::new(0),
        source: source.into(),
        _charge: heap::charge(HEAP_BYTES + source.len())?,
    });
    // As Linux.
    let place = Place::in_mount(&mount).map_err(|_| Errno::ENOMEM)?;
    let root = Inode::placed(mount.root_number, Body::Dir, options.mode, Some(place))?;
    root.change(|meta| [meta.uid, meta.gid] = options.owner);
    cover::cover(covered, &root)?;
    MOUNTS.lock().push(Mounted { mount, root, covered: covered.clone() });
    Ok(())
}

/// Ends the mount whose root is `root`. It is there no more for programs that open something; see above for `detach`.
pub fn unmount(root: &Arc<Inode>, detach: bool) -> errno::Result<()> {
    let mount = root.mount().filter(|mount| mount.is_root(root.number)).ok_or(Errno::EINVAL)?;
    let is_in = |inode: &Inode| inode.mount().is_some_and(|of| Arc::ptr_eq(of, mount));
    let mounts = all();
    let mounted = mounts.iter().find(|mounted| Arc::ptr_eq(&mounted.mount, mount)).ok_or(Errno::EINVAL)?;
    let has_users = || {
        let cwds = process::all();
        mount.nr_open.load(Ordering::Relaxed) > 0 || cwds.iter().any(|p| is_in(&p.place.lock().cwd))
    };
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
