//! Calls that change the attributes of a file: mode, owner, times, size.

use super::call::Call;
use super::path::{From, follow, open_file, resolve, resolve_inode};
use crate::linux::errno::{self, Errno};
use crate::linux::file::Kind;
use crate::linux::fs::inode::access::Writing;
use crate::linux::fs::inode::{self, Inode};
use crate::linux::fs::seals::Seals;
use crate::linux::fs::walk::Follow;
use crate::linux::fs::{Body, content};
use crate::port::mm;
use alloc::sync::Arc;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, UTIME_NOW, UTIME_OMIT,
};

const NS_PER_S: i64 = 1_000_000_000;
const SET_ID_BITS: u32 = 0o6000;

/// Refuses changes of generated files.
fn check_mutable(inode: &Inode) -> errno::Result<()> {
    if matches!(inode.body, Body::Generated(_)) { Err(Errno::EPERM) } else { Ok(()) }
}

fn set_mode(inode: &Inode, mode: u32) -> errno::Result {
    check_mutable(inode)?;
    // Held, so that no seal comes in between.
    let writer = if let Body::File(content) = &inode.body { Some(content.writer()) } else { None };
    if (inode.meta().mode ^ mode) & 0o111 != 0 {
        writer.as_ref().map_or(Ok(()), |writer| writer.seals().check(Seals::EXEC))?;
    }
    inode.change(|meta| meta.mode = mode & 0o7777);
    drop(writer);
    inode.touch_meta();
    Ok(0)
}

pub fn chmod(call: &mut Call) -> errno::Result {
    set_mode(&*resolve(call, From::Cwd, 0, Follow::Last)?.found()?, call.int(1))
}

pub fn fchmod(call: &mut Call) -> errno::Result {
    let open = open_file(call, 0)?;
    if matches!(open.kind, Kind::Path) {
        return Err(Errno::EBADF);
    }
    set_mode(&open.inode, call.int(1))
}

/// fchmodat(2), and fchmodat2(2) with its flags.
pub fn fchmodat(call: &mut Call, flags: u32) -> errno::Result {
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let inode = resolve_inode(call, From::Argument(0), 1, follow(flags), flags)?;
    if matches!(inode.body, Body::Symlink(_)) {
        return Err(Errno::EOPNOTSUPP);
    }
    set_mode(&inode, call.int(2))
}

fn set_owner(inode: &Inode, uid: u32, gid: u32) -> errno::Result {
    check_mutable(inode)?;
    inode.change(|meta| {
        meta.uid = if uid == u32::MAX { meta.uid } else { uid };
        meta.gid = if gid == u32::MAX { meta.gid } else { gid };
        if matches!(inode.body, Body::File(_)) && meta.mode & 0o111 != 0 {
            meta.mode &= !SET_ID_BITS;
        }
    });
    inode.touch_meta();
    Ok(0)
}

/// chown(2) and lchown(2).
pub fn chown(call: &mut Call, follow: Follow) -> errno::Result {
    set_owner(&*resolve(call, From::Cwd, 0, follow)?.found()?, call.int(1), call.int(2))
}

pub fn fchown(call: &mut Call) -> errno::Result {
    let open = open_file(call, 0)?;
    if matches!(open.kind, Kind::Path) {
        return Err(Errno::EBADF);
    }
    set_owner(&open.inode, call.int(1), call.int(2))
}

pub fn fchownat(call: &mut Call) -> errno::Result {
    let flags = call.int(4);
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let inode = resolve_inode(call, From::Argument(0), 1, follow(flags), flags)?;
    set_owner(&inode, call.int(2), call.int(3))
}

/// A time that is to be set: none leaves it.
fn time_of([seconds, ns]: [i64; 2]) -> errno::Result<Option<i64>> {
    match ns as u64 {
        n if n == u64::from(UTIME_OMIT) => Ok(None),
        n if n == u64::from(UTIME_NOW) => Ok(Some(inode::now())),
        n if n < NS_PER_S as u64 => Ok(Some(seconds.saturating_mul(NS_PER_S).saturating_add(ns))),
        _ => Err(Errno::EINVAL),
    }
}

fn set_times(inode: &Inode, accessed: Option<i64>, modified: Option<i64>) -> errno::Result {
    check_mutable(inode)?;
    if accessed.is_none() && modified.is_none() {
        return Ok(0);
    }
    inode.change(|meta| {
        meta.accessed_ns = accessed.unwrap_or(meta.accessed_ns);
        meta.modified_ns = modified.unwrap_or(meta.modified_ns);
    });
    inode.touch_meta();
    Ok(0)
}

pub fn utimensat(call: &mut Call) -> errno::Result {
    let [_, path, times_at, flags, ..] = call.args;
    let times = match times_at {
        0 => [Some(inode::now()); 2],
        _ => {
            let [a, b, c, d] = mm::get::<[i64; 4]>(call.space(), times_at)?;
            [time_of([a, b])?, time_of([c, d])?]
        }
    };
    let flags = flags as u32;
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let inode = match path {
        0 => open_file(call, 0)?.inode.clone(),
        _ => resolve_inode(call, From::Argument(0), 1, follow(flags), flags)?,
    };
    set_times(&inode, times[0], times[1])
}

/// utimes(2) and futimesat(2): microseconds.
pub fn utimes(call: &mut Call, from: From, n: usize) -> errno::Result {
    let times = match call.args[n + 1] {
        0 => [Some(inode::now()); 2],
        at => {
            let [a, b, c, d] = mm::get::<[i64; 4]>(call.space(), at)?;
            if [b, d].iter().any(|us| !(0..1_000_000).contains(us)) {
                return Err(Errno::EINVAL);
            }
            [time_of([a, b * 1000])?, time_of([c, d * 1000])?]
        }
    };
    set_times(&*resolve(call, from, n, Follow::Last)?.found()?, times[0], times[1])
}

/// utime(2): seconds.
pub fn utime(call: &mut Call) -> errno::Result {
    let times = match call.args[1] {
        0 => [Some(inode::now()); 2],
        at => mm::get::<[i64; 2]>(call.space(), at)?.map(|s| Some(s.saturating_mul(NS_PER_S))),
    };
    set_times(&*resolve(call, From::Cwd, 0, Follow::Last)?.found()?, times[0], times[1])
}

/// Makes a file that long for a caller who does not write it otherwise; ETXTBSY of a program that runs.
pub fn set_size_by_name(inode: &Arc<Inode>, size: u64) -> errno::Result {
    inode.content()?;
    let _writing = Writing::of(inode)?;
    set_size(inode, size)
}

/// truncate(2) and ftruncate(2): growing has a limit.
fn truncate_to(call: &Call, inode: &Arc<Inode>, size: u64) -> errno::Result {
    if size > inode.size_bytes() {
        super::transfer::room_below_limit(call, size - 1, 1)?;
    }
    set_size(inode, size)
}

/// Cuts or extends a plain file.
pub fn set_size(inode: &Arc<Inode>, size: u64) -> errno::Result {
    let content = inode.content()?;
    content.writer().set_size_bytes(size)?;
    inode.touch();
    Ok(0)
}

pub fn truncate(call: &mut Call) -> errno::Result {
    if (call.args[1] as i64) < 0 {
        return Err(Errno::EINVAL);
    }
    let inode = resolve(call, From::Cwd, 0, Follow::Last)?.found()?;
    inode.content()?;
    let _writing = Writing::of(&inode)?;
    truncate_to(call, &inode, call.args[1])
}

pub fn ftruncate(call: &mut Call) -> errno::Result {
    if (call.args[1] as i64) < 0 {
        return Err(Errno::EINVAL);
    }
    let open = open_file(call, 0)?;
    match open.kind {
        Kind::Path => Err(Errno::EBADF),
        Kind::File if open.may_write() => truncate_to(call, &open.inode, call.args[1]),
        _ => Err(Errno::EINVAL),
    }
}

pub fn fallocate(call: &mut Call) -> errno::Result {
    let (mode, offset, len) = (call.int(1), call.args[2] as i64, call.args[3] as i64);
    let open = open_file(call, 0)?;
    if !open.may_write() {
        return Err(Errno::EBADF);
    }
    if offset < 0 || len <= 0 {
        return Err(Errno::EINVAL);
    }
    match open.kind {
        Kind::File => {}
        Kind::Pipe { .. } => return Err(Errno::ESPIPE),
        _ => return Err(Errno::ENODEV),
    }
    let (start, end) = (offset as u64, (offset as u64).saturating_add(len as u64));
    if end > content::MAX_SIZE_BYTES {
        return Err(Errno::EFBIG);
    }
    let content = open.inode.content()?;
    let writer = content.writer();
    let size = content.size_bytes();
    const PUNCH: u32 = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    // As Linux: whether the size would change or not.
    if end > size && matches!(mode, 0 | FALLOC_FL_KEEP_SIZE) {
        super::transfer::room_below_limit(call, end - 1, 1)?;
    }
    match mode {
        // As Linux: whether the size would change or not.
        0 | FALLOC_FL_KEEP_SIZE if end > size && writer.seals().contains(Seals::GROW) => return Err(Errno::EPERM),
        0 | FALLOC_FL_KEEP_SIZE if content.huge_order().is_some() => {
            writer.allocate(start, end, mode & FALLOC_FL_KEEP_SIZE != 0)?;
        }
        // Pages come when they are written; nothing sets them aside.
        0 if end > size => writer.set_size_bytes(end)?,
        0 | FALLOC_FL_KEEP_SIZE => {}
        PUNCH => writer.clear(start, end)?,
        // As tmpfs.
        _ => return Err(Errno::EOPNOTSUPP),
    }
    drop(writer);
    open.inode.touch();
    Ok(0)
}
