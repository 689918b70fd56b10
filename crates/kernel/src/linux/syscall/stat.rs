//! Calls that tell about files and file systems.

use super::call::Call;
use super::path::{From, follow, open_file, resolve, resolve_inode};
use crate::linux::errno::{self, Errno};
use crate::linux::fs::inode::{Body, Inode};
use crate::linux::fs::walk::Follow;
use crate::port::mm;
use linux_raw_sys::general::{
    AT_EACCESS, AT_EMPTY_PATH, AT_NO_AUTOMOUNT, AT_STATX_SYNC_TYPE, AT_SYMLINK_NOFOLLOW, STATX__RESERVED,
    STATX_BASIC_STATS,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const NS_PER_S: i64 = 1_000_000_000;
const PAGE_BYTES: u64 = 4096;
const CONSOLE: u64 = crate::linux::fs::initial::device::CONSOLE;
const TMPFS_MAGIC: u64 = 0x0102_1994;
const PROC_MAGIC: u64 = 0x9fa0;
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// `struct stat`.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawStat {
    dev: u64,
    ino: u64,
    nr_links: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    pad: u32,
    rdev: u64,
    size: u64,
    block_bytes: u64,
    blocks: u64,
    times: [i64; 6],
    reserved: [u64; 3],
}

const _: () = assert!(size_of::<RawStat>() == 144);

/// `struct statx`.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawStatx {
    mask: u32,
    block_bytes: u32,
    attributes: u64,
    nr_links: u32,
    uid: u32,
    gid: u32,
    mode: u16,
    pad: u16,
    ino: u64,
    size: u64,
    blocks: u64,
    attributes_mask: u64,
    /// Accessed, made, changed, modified: seconds, nanoseconds.
    times: [[i64; 2]; 4],
    rdev: [u32; 2],
    dev: [u32; 2],
    reserved: [u64; 14],
}

const _: () = assert!(size_of::<RawStatx>() == 256);

fn device_of(inode: &Inode) -> u64 {
    match inode.body {
        Body::Device(number) => number,
        Body::Console(_) => CONSOLE,
        _ => 0,
    }
}

/// Blocks of 512 bytes that hold the content.
fn blocks(inode: &Inode) -> u64 {
    match &inode.body {
        Body::File(content) => content.resident_bytes().div_ceil(PAGE_BYTES) * 8,
        _ => 0,
    }
}

/// The size of a file's pages.
fn page_bytes(inode: &Inode) -> u64 {
    match &inode.body {
        Body::File(content) => content.page_bytes(),
        _ => PAGE_BYTES,
    }
}

fn put_stat(call: &Call, inode: &Inode, out: u64) -> errno::Result {
    let meta = inode.meta();
    let split = |ns: i64| [ns.div_euclid(NS_PER_S), ns.rem_euclid(NS_PER_S)];
    let [accessed, modified, changed] = [meta.accessed_ns, meta.modified_ns, meta.changed_ns].map(split);
    let stat = RawStat {
        dev: inode.device(),
        ino: inode.number,
        nr_links: meta.nr_links.into(),
        mode: inode.kind() | meta.mode,
        uid: meta.uid,
        gid: meta.gid,
        pad: 0,
        rdev: device_of(inode),
        size: inode.size_bytes(),
        block_bytes: page_bytes(inode),
        blocks: blocks(inode),
        times: [accessed[0], accessed[1], modified[0], modified[1], changed[0], changed[1]],
        reserved: [0; 3],
    };
    mm::put(call.space(), out, &stat)?;
    Ok(0)
}

pub fn stat(call: &mut Call, follow: Follow) -> errno::Result {
    let inode = resolve(call, From::Cwd, 0, follow)?.found()?;
    put_stat(call, &inode, call.args[1])
}

pub fn fstat(call: &mut Call) -> errno::Result {
    let open = open_file(call, 0)?;
    put_stat(call, &open.inode, call.args[1])
}

pub fn newfstatat(call: &mut Call) -> errno::Result {
    let flags = call.int(3);
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT) != 0 {
        return Err(Errno::EINVAL);
    }
    let inode = resolve_inode(call, From::Argument(0), 1, follow(flags), flags)?;
    put_stat(call, &inode, call.args[2])
}

fn halves(device: u64) -> [u32; 2] {
    [(device >> 8 & 0xfff) as u32, (device & 0xff | device >> 12 & 0xfff00) as u32]
}

pub fn statx(call: &mut Call) -> errno::Result {
    let (flags, mask) = (call.int(2), call.int(3));
    let known = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT | AT_STATX_SYNC_TYPE;
    if flags & !known != 0 || mask & STATX__RESERVED != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & AT_STATX_SYNC_TYPE == AT_STATX_SYNC_TYPE {
        return Err(Errno::EINVAL);
    }
    let inode = resolve_inode(call, From::Argument(0), 1, follow(flags), flags)?;
    let meta = inode.meta();
    let split = |ns: i64| [ns.div_euclid(NS_PER_S), ns.rem_euclid(NS_PER_S)];
    let statx = RawStatx {
        mask: STATX_BASIC_STATS,
        block_bytes: page_bytes(&inode) as u32,
        attributes: 0,
        nr_links: meta.nr_links,
        uid: meta.uid,
        gid: meta.gid,
        mode: (inode.kind() | meta.mode) as u16,
        pad: 0,
        ino: inode.number,
        size: inode.size_bytes(),
        blocks: blocks(&inode),
        attributes_mask: 0,
        times: [split(meta.accessed_ns), [0; 2], split(meta.changed_ns), split(meta.modified_ns)],
        rdev: halves(device_of(&inode)),
        dev: halves(inode.device()),
        reserved: [0; 14],
    };
    mm::put(call.space(), call.args[4], &statx)?;
    Ok(0)
}

/// Whether root may: it may all but execute what nobody may.
fn check_access(inode: &Inode, mode: u32) -> errno::Result {
    const EXECUTE: u32 = 1;
    if mode & !7 != 0 {
        return Err(Errno::EINVAL);
    }
    let executable = inode.is_dir() || inode.meta().mode & 0o111 != 0;
    if mode & EXECUTE != 0 && !executable { Err(Errno::EACCES) } else { Ok(0) }
}

pub fn access(call: &mut Call) -> errno::Result {
    if call.int(1) & !7 != 0 {
        return Err(Errno::EINVAL);
    }
    check_access(&*resolve(call, From::Cwd, 0, Follow::Last)?.found()?, call.int(1))
}

/// faccessat(2), and faccessat2(2) with its flags.
pub fn faccessat(call: &mut Call, flags: u32) -> errno::Result {
    if flags & !(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 || call.int(2) & !7 != 0 {
        return Err(Errno::EINVAL);
    }
    let inode = resolve_inode(call, From::Argument(0), 1, follow(flags), flags)?;
    check_access(&inode, call.int(2))
}

/// `struct statfs`, 15 words.
fn put_statfs(call: &Call, inode: &Inode, out: u64) -> errno::Result {
    let stat = mm::vm().vmstat();
    let (magic, [total, free], files) = match &inode.body {
        Body::Generated(_) => (PROC_MAGIC, [0; 2], [0; 2]),
        _ if let Some(mount) = inode.mount() => {
            (HUGETLBFS_MAGIC, mount.page_limit().unwrap_or_default(), mount.inode_limit().unwrap_or_default())
        }
        // As hugetlbfs without a limit.
        Body::File(content) if content.huge_order().is_some() => (HUGETLBFS_MAGIC, [0; 2], [0; 2]),
        _ => (TMPFS_MAGIC, [stat.nr_total_pages, stat.nr_free_pages], [stat.nr_total_pages, stat.nr_free_pages]),
    };
    let page = inode.mount().map_or_else(|| page_bytes(inode), |mount| mount.order().nr_pages() * PAGE_BYTES);
    let [nr_files, free_files] = files;
    let words = [magic, page, total, free, free, nr_files, free_files, 0, 255, page, 0x20, 0, 0, 0, 0];
    mm::put(call.space(), out, &words)?;
    Ok(0)
}

pub fn statfs(call: &mut Call) -> errno::Result {
    let inode = resolve(call, From::Cwd, 0, Follow::Last)?.found()?;
    put_statfs(call, &inode, call.args[1])
}

pub fn fstatfs(call: &mut Call) -> errno::Result {
    let open = open_file(call, 0)?;
    put_statfs(call, &open.inode, call.args[1])
}
