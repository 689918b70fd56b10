//! A file without its names: kind, number, mode, owner, times, links.
//! The metadata have a spin lock of their own, held for a copy.
//!
//! `access` counts writers of a file and programs in it, `generated` is what a file whose content is made as it is read stands for, `names` finds
//! a file by the object that it is mapped as.

pub mod access;
pub mod generated;
pub mod names;

use super::content::Content;
use super::mount::{Mount, Place};
use crate::linux::errno::{self, Errno};
use crate::linux::file::pipe::Pipe;
use crate::port::arch::time::wall_ns;
use crate::port::console::Channel;
use crate::port::heap;
use crate::port::mm;
use crate::port::sync::SpinLock;
use access::Access;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use generated::Generated;
use linux_raw_sys::general::{S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG, S_IFSOCK};

/// Heap that an inode costs, with what hangs on it.
const HEAP_BYTES: usize = 320;

/// Device numbers of the file systems, as stat(2) gives them.
const DEVICE_OF_TREE: u64 = 0x02;
const DEVICE_OF_PROC: u64 = 0x15;
/// Device number of files that have no name anywhere: pipes, event counters.
const DEVICE_OF_NAMELESS: u64 = 0x0d;

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// Kind and content of a file.
pub enum Body {
    /// Bytes.
    File(Content),
    /// Names; they are in [`crate::linux::fs::tree`], under the inode's number.
    Dir,
    /// A path to go on with.
    Symlink(Box<[u8]>),
    /// A pipe, with a name or without.
    Pipe(Arc<Pipe>),
    /// A device, by its number.
    Device(u64),
    /// The program's output or error output.
    Console(Channel),
    /// A socket's name, which nobody listens at.
    Socket,
    /// A file without a name, made by a call: "eventfd" and the like.
    Nameless(&'static str),
    /// Generated.
    Generated(Generated),
}

/// Properties of a file that can change, apart from its content.
#[derive(Clone, Copy)]
pub struct Meta {
    /// Mode, without the file's type.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Names that it has.
    pub nr_links: u32,
    /// When it was read.
    pub accessed_ns: i64,
    /// When its content was changed.
    pub modified_ns: i64,
    /// When anything about it was changed.
    pub changed_ns: i64,
}

/// Where an open file was found.
#[derive(Clone)]
pub struct Spot {
    /// The directory.
    pub dir: Arc<Inode>,
    /// The name in it.
    pub name: Box<[u8]>,
}

/// A name as it is listed.
pub struct Listed {
    /// Asks for the names after it.
    pub cookie: u64,
    /// The name.
    pub name: Arc<[u8]>,
    /// The file of that name.
    pub inode: Arc<Inode>,
}

/// A file.
pub struct Inode {
    /// Its number, never used again.
    pub number: u64,
    /// Its kind and content.
    pub body: Body,
    /// Its place in a mounted file system, if it is in one.
    place: Option<Place>,
    meta: SpinLock<Meta>,
    access: Access,
    _charge: heap::Charge,
}

impl Inode {
    /// A new one that has no name yet.
    pub fn new(body: Body, mode: u32) -> errno::Result<Arc<Inode>> {
        Inode::numbered(Inode::new_number(), body, mode)
    }
    /// A new one in the same file system as `dir`.
    pub fn beside(dir: &Inode, body: Body, mode: u32) -> errno::Result<Arc<Inode>> {
        Inode::placed(Inode::new_number(), body, mode, dir.mount().map(Place::in_mount).transpose()?)
    }
    /// A number that none has.
    pub fn new_number() -> u64 {
        NEXT_NUMBER.fetch_add(1, Ordering::Relaxed)
    }
    /// One whose number follows from what it is.
    pub fn numbered(number: u64, body: Body, mode: u32) -> errno::Result<Arc<Inode>> {
        Inode::placed(number, body, mode, None)
    }
    /// The same in a mounted file system.
    pub fn placed(number: u64, body: Body, mode: u32, place: Option<Place>) -> errno::Result<Arc<Inode>> {
        let more = if let Body::Symlink(target) = &body { target.len() } else { 0 };
        let charge = heap::charge(HEAP_BYTES + more)?;
        let now = now();
        let nr_links = if matches!(body, Body::Dir) { 2 } else { 1 };
        let meta = Meta { mode, uid: 0, gid: 0, nr_links, accessed_ns: now, modified_ns: now, changed_ns: now };
        Ok(Arc::new(Inode {
            number,
            body,
            place,
            meta: SpinLock::new(meta),
            access: Access::default(),
            _charge: charge,
        }))
    }
    /// A copy of the metadata.
    pub fn meta(&self) -> Meta {
        *self.meta.lock()
    }
    /// Changes the metadata.
    pub fn change(&self, f: impl FnOnce(&mut Meta)) {
        f(&mut self.meta.lock());
    }
    /// Its content has just been changed.
    pub fn touch(&self) {
        let now = now();
        self.change(|meta| (meta.modified_ns, meta.changed_ns) = (now, now));
    }
    /// Its content was read: noted where it tells something new, and once a day
    /// (as Linux with `relatime`).
    pub fn touch_read(&self) {
        const DAY_NS: i64 = 86_400_000_000_000;
        let now = now();
        self.change(|meta| {
            let before = meta.accessed_ns;
            if before <= meta.modified_ns || before <= meta.changed_ns || now - before > DAY_NS {
                meta.accessed_ns = now;
            }
        });
    }
    /// Something about it has just been changed.
    pub fn touch_meta(&self) {
        let now = now();
        self.change(|meta| meta.changed_ns = now);
    }
    /// Its type, as in a mode.
    pub fn kind(&self) -> u32 {
        match &self.body {
            Body::File(_) => S_IFREG,
            Body::Dir => S_IFDIR,
            Body::Symlink(_) => S_IFLNK,
            Body::Pipe(_) => S_IFIFO,
            Body::Device(_) | Body::Console(_) => S_IFCHR,
            Body::Socket => S_IFSOCK,
            Body::Nameless(_) => 0,
            Body::Generated(generated) => generated.node.about().kind,
        }
    }
    /// Whether it holds names.
    pub fn is_dir(&self) -> bool {
        self.kind() == S_IFDIR
    }
    /// The mounted file system that it is in.
    pub fn mount(&self) -> Option<&Arc<Mount>> {
        self.place.as_ref().map(Place::mount)
    }
    /// Whether something is mounted here.
    pub fn is_mount(&self) -> bool {
        matches!(self.body, Body::Generated(_)) || self.mount().is_some_and(|mount| mount.is_root(self.number))
    }
    /// Number of the file system that it is in.
    pub fn device(&self) -> u64 {
        match &self.body {
            Body::Generated(_) => DEVICE_OF_PROC,
            Body::Nameless(_) | Body::Console(_) => DEVICE_OF_NAMELESS,
            _ => self.mount().map_or(DEVICE_OF_TREE, |mount| mount.device),
        }
    }
    /// Its size, as stat(2) gives it.
    pub fn size_bytes(&self) -> u64 {
        match &self.body {
            Body::File(content) => content.size_bytes(),
            Body::Symlink(target) => target.len() as u64,
            _ => 0,
        }
    }
    /// The content of a plain file; EISDIR or EINVAL for what has none.
    pub fn content(&self) -> errno::Result<&Content> {
        match &self.body {
            Body::File(content) => Ok(content),
            _ if self.is_dir() => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }
    /// The shared object that holds the content, for mapping it.
    pub fn object(&self) -> errno::Result<Arc<mm::Object>> {
        self.content()?.object()
    }
    /// Reads from `offset` on, up to the end.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> errno::Result<usize> {
        Ok(self.content()?.read_at(offset, into))
    }
    /// The bytes of the archive, while nobody has changed the file.
    pub fn archive_bytes(&self) -> Option<&'static [u8]> {
        self.content().ok()?.archive_bytes()
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        if let Body::File(content) = &self.body
            && let Some(object) = content.object_id()
        {
            names::forget(object);
        }
    }
}

/// The time, as files have it.
pub fn now() -> i64 {
    wall_ns() as i64
}
