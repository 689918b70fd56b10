//! The tree as programs find it: what the archive has, and the names that are
//! always there.

use super::archive::{self, Item};
use super::change::{self, New};
use super::content::Content;
use super::inode::generated::Node;
use super::inode::{Body, Inode, Meta};
use super::inode::{generated, names};
use super::tree::{self, Entry};
use super::walk::{self, Follow};
use crate::linux::errno::{self, Errno};
use crate::port::console::log;
use alloc::sync::Arc;
use linux_raw_sys::general::{S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG};
use softfault::ObjectId;

/// Devices by their numbers, as Linux has them.
pub mod device {
    /// Reads nothing, takes everything.
    pub const NULL: u64 = number(1, 3);
    /// Reads zeroes.
    pub const ZERO: u64 = number(1, 5);
    /// Reads zeroes, is always full.
    pub const FULL: u64 = number(1, 7);
    /// Random bytes.
    pub const RANDOM: u64 = number(1, 8);
    /// The same.
    pub const URANDOM: u64 = number(1, 9);
    /// The terminal of the process.
    pub const TTY: u64 = number(5, 0);
    /// The machine's.
    pub const CONSOLE: u64 = number(5, 1);

    /// The number of a device.
    pub const fn number(major: u64, minor: u64) -> u64 {
        major << 8 | minor & 0xff | (minor & !0xff) << 12
    }
}

const NS_PER_S: i64 = 1_000_000_000;

const DEVICES: [(&str, u64); 7] = [
    ("null", device::NULL),
    ("zero", device::ZERO),
    ("full", device::FULL),
    ("random", device::RANDOM),
    ("urandom", device::URANDOM),
    ("tty", device::TTY),
    ("console", device::CONSOLE),
];

const LINKS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// Makes the tree, before the first program. `trees` are those of generated files, each with
/// its name in the root.
pub fn init(trees: [(&str, Node); 2]) {
    let made = tree::init().and_then(|()| fixed(trees)).and_then(|()| from_archive()).and_then(|()| usual());
    if let Err(errno) = made {
        log!("the file system is incomplete: {errno}");
    }
}

/// The directory at `path`, made with its parents if need be.
fn dir(path: &[u8], mode: u32) -> errno::Result<Arc<Inode>> {
    let mut at = tree::root();
    for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty() && *n != b".") {
        let found = walk::walk(&at, name, Follow::Last)?;
        at = match found.inode {
            Some(inode) if inode.is_dir() => inode,
            Some(_) => return Err(Errno::ENOTDIR),
            None => change::create(&found, New::Dir, mode)?,
        };
    }
    Ok(at)
}

/// Directory and last name of a path.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

fn put(path: &[u8], body: Body, mode: u32) -> errno::Result<Arc<Inode>> {
    let (parent, name) = split(path);
    let parent = dir(parent, 0o755)?;
    let inode = Inode::new(body, mode)?;
    tree::insert(&parent, Entry::new(name, &inode)?)?;
    Ok(inode)
}

/// Adds the entries that are there whatever the archive has.
fn fixed(trees: [(&str, Node); 2]) -> errno::Result<()> {
    for (path, mode) in [("/tmp", 0o1777), ("/dev", 0o755), ("/dev/shm", 0o1777), ("/var/tmp", 0o1777)] {
        dir(path.as_bytes(), 0o755)?.change(|meta| meta.mode = mode);
    }
    let root = tree::root();
    for (name, node) in trees {
        let mount = generated::inode(&root, name.as_bytes(), node)?;
        tree::insert(&root, Entry::new(name.as_bytes(), &mount)?)?;
    }
    let dev = dir(b"/dev", 0o755)?;
    for (name, number) in DEVICES {
        let inode = Inode::new(Body::Device(number), 0o666)?;
        tree::insert(&dev, Entry::new(name.as_bytes(), &inode)?)?;
        if number == device::ZERO {
            names::set(ObjectId::NONE, &inode, b"/dev/zero")?;
        }
    }
    for (path, target) in LINKS {
        put(path.as_bytes(), Body::Symlink(target.as_bytes().into()), 0o777)?;
    }
    Ok(())
}

/// Makes the names that many programs expect and the archive may have brought.
fn usual() -> errno::Result<()> {
    let has = |path: &[u8]| walk::walk(&tree::root(), path, Follow::Last).is_ok_and(|w| w.inode.is_some());
    if !has(b"/etc/passwd") {
        put(
            b"/etc/passwd",
            Body::File(Content::new(b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")),
            0o644,
        )?;
    }
    if !has(b"/etc/group") {
        put(b"/etc/group", Body::File(Content::new(b"root:x:0:\nnogroup:x:65534:\n")), 0o644)?;
    }
    Ok(())
}

fn from_archive() -> errno::Result<()> {
    for item in entries() {
        match add(&item) {
            Ok(inode) => inode.change(|meta| describe(meta, &item)),
            Err(Errno::ENOMEM) => return Err(Errno::ENOMEM),
            Err(errno) => log!("/{}: left out: {errno}", item.name.escape_ascii()),
        }
    }
    // Each name that was put into a directory has changed its time.
    for item in entries().filter(|item| item.mode & S_IFMT == S_IFDIR) {
        if let Ok(inode) = dir(item.name, 0o755) {
            inode.change(|meta| set_times(meta, &item));
        }
    }
    Ok(())
}

/// The entries of the archive that are files of the tree.
fn entries() -> impl Iterator<Item = Item> {
    archive::items().filter(|item| !item.name.starts_with(b".softfault/"))
}

/// Gives a file the rights, owner and times of its entry.
fn describe(meta: &mut Meta, item: &Item) {
    meta.mode = item.mode & 0o7777;
    // As chown(2): these numbers are nobody's.
    meta.uid = if item.uid == u32::MAX { meta.uid } else { item.uid };
    meta.gid = if item.gid == u32::MAX { meta.gid } else { item.gid };
    set_times(meta, item);
}

/// An archive has one time of each entry, in seconds. The time of the last change of anything is that of the boot.
fn set_times(meta: &mut Meta, item: &Item) {
    let ns = (item.modified_s as i64).saturating_mul(NS_PER_S);
    (meta.accessed_ns, meta.modified_ns) = (ns, ns);
}

fn add(item: &Item) -> errno::Result<Arc<Inode>> {
    let mode = item.mode & 0o7777;
    let body = match item.mode & S_IFMT {
        S_IFDIR => return dir(item.name, 0o755),
        S_IFREG => Body::File(Content::new(item.bytes)),
        S_IFLNK => Body::Symlink(item.bytes.into()),
        S_IFIFO => Body::Pipe(crate::linux::file::pipe::Pipe::fifo()?),
        _ => return Err(Errno::EINVAL),
    };
    put(item.name, body, mode)
}
