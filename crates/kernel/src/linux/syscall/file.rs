//! Calls about open files and their numbers: opening, closing, duplicating,
//! seeking, flags.

use super::call::Call;
use super::path::{From, open_file, read_path, resolve};
use crate::linux::errno::{self, Errno};
use crate::linux::file::locks::{self, Owner};
use crate::linux::file::{self, Event, Kind, Open};
use crate::linux::fs::change::{self, New};
use crate::linux::fs::content::Content;
use crate::linux::fs::seals::Seals;
use crate::linux::fs::walk::{Follow, Walked};
use crate::linux::fs::{Body, Inode, Spot};
use crate::port::mm;
use alloc::sync::Arc;
use linux_raw_sys::general::{
    EFD_NONBLOCK, EFD_SEMAPHORE, F_ADD_SEALS, F_DUPFD, F_DUPFD_CLOEXEC, F_GET_SEALS, F_GETFD, F_GETFL, F_GETLK,
    F_GETOWN, F_GETPIPE_SZ, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_SETFD, F_SETFL, F_SETLK, F_SETLKW, F_SETOWN,
    F_SETPIPE_SZ, FD_CLOEXEC, O_ACCMODE, O_APPEND, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_LARGEFILE, O_NOCTTY,
    O_NOFOLLOW, O_NONBLOCK, O_PATH, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY, RLIMIT_NOFILE, S_IFLNK,
};

/// Without O_DIRECTORY, which is part of O_TMPFILE.
const TMPFILE: u32 = linux_raw_sys::general::O_TMPFILE & !O_DIRECTORY;
/// `O_LARGEFILE` as F_GETFL shows it; the generic value is 0 here.
const LARGE: u32 = 0o100_000;
/// Flags that only matter while the file is opened.
const OPENING: u32 = O_CREAT | O_EXCL | O_TRUNC | O_CLOEXEC | O_NOCTTY | TMPFILE;
/// Flags that F_SETFL changes: those two, O_ASYNC, O_DIRECT, O_NOATIME.
const SETTABLE: u32 = O_APPEND | O_NONBLOCK | 0o20_000 | 0o40_000 | 0o1_000_000;

const MFD_CLOEXEC: u32 = 1;
const MFD_ALLOW_SEALING: u32 = 2;
const MFD_HUGETLB: u32 = 4;
const MFD_NOEXEC_SEAL: u32 = 8;
const MFD_EXEC: u32 = 16;
const MFD_KNOWN: u32 = 0x1f;
/// With `MFD_HUGETLB`: the size.
const MFD_HUGE_BITS: u32 = 0x3f << 26;
const HUGE_SHIFT: u32 = 26;

/// RLIMIT_NOFILE.
pub fn limit(call: &Call) -> u64 {
    call.process.limits.lock().now(RLIMIT_NOFILE)
}

/// Gives an opened file the lowest free descriptor.
pub fn add(call: &Call, open: Arc<Open>, flags: u32) -> errno::Result {
    let limit = limit(call);
    let number = call.process.files.lock().put(open.clone(), 0, flags & O_CLOEXEC != 0, limit);
    drop(open);
    // Even the lowest number may be beyond the limit.
    number.map(u64::from).map_err(|e| if e == Errno::EINVAL { Errno::EMFILE } else { e })
}

/// Returns the file that open(2) found or made at a path, and whether it was made.
fn find_or_create(call: &Call, from: From, n: usize, flags: u32, mode: u32) -> errno::Result<(Walked, bool)> {
    let exclusive = flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL;
    let follow = match () {
        () if exclusive => Follow::Never,
        () if flags & O_NOFOLLOW != 0 => Follow::Slash,
        () => Follow::Last,
    };
    let mut found = resolve(call, from, n, follow)?;
    if found.inode.is_some() || flags & O_CREAT == 0 {
        if found.inode.is_some() && exclusive {
            return Err(Errno::EEXIST);
        }
        return Ok((found, false));
    }
    if found.wants_dir {
        return Err(Errno::EISDIR);
    }
    let mode = mode & !call.process.place.lock().umask;
    match change::create(&found, New::File, mode) {
        Ok(inode) => {
            found.inode = Some(inode);
            Ok((found, true))
        }
        // Somebody else made it meanwhile.
        Err(Errno::EEXIST) if !exclusive => Ok((resolve(call, from, n, follow)?, false)),
        Err(errno) => Err(errno),
    }
}

fn check_kind(inode: &Inode, flags: u32) -> errno::Result<()> {
    if inode.kind() == S_IFLNK && flags & O_PATH == 0 {
        return Err(if flags & O_DIRECTORY != 0 { Errno::ENOTDIR } else { Errno::ELOOP });
    }
    if flags & O_DIRECTORY != 0 && !inode.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    if inode.is_dir() && flags & O_PATH == 0 && (flags & O_ACCMODE != O_RDONLY || flags & O_CREAT != 0) {
        return Err(Errno::EISDIR);
    }
    Ok(())
}

fn open_path(call: &mut Call, from: From, n: usize, flags: u32, mode: u32) -> errno::Result {
    let flags = if flags & O_PATH != 0 { flags & (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) } else { flags };
    if flags & O_ACCMODE == O_ACCMODE {
        return Err(Errno::EINVAL);
    }
    if flags & TMPFILE != 0 {
        return open_unnamed(call, from, n, flags, mode);
    }
    let (found, is_new) = find_or_create(call, from, n, flags, mode)?;
    let inode = found.inode.clone().ok_or(Errno::ENOENT)?;
    check_kind(&inode, flags)?;
    let kind = match &found.open {
        _ if flags & O_PATH != 0 => Kind::Path,
        // A file without a name can be opened again only if it is a pipe.
        Some(open) if matches!(open.inode.body, Body::Nameless(_)) => return Err(Errno::ENXIO),
        _ => file::open(&inode, flags, || call.thread.is_interrupted())?,
    };
    let truncates = flags & O_TRUNC != 0 && !is_new && flags & O_PATH == 0 && matches!(kind, Kind::File);
    let spot = match found.open {
        Some(open) => open.spot,
        None => Some(Spot { dir: found.dir, name: found.name }),
    };
    let kept = flags & !OPENING | if flags & O_PATH == 0 { LARGE | O_LARGEFILE } else { 0 };
    let open = Open::named(kind, inode, kept, spot)?;
    if truncates {
        super::attributes::set_size_by_name(&open.inode, 0)?;
    }
    add(call, open, flags)
}

/// O_TMPFILE: a file without a name.
fn open_unnamed(call: &Call, from: From, n: usize, flags: u32, mode: u32) -> errno::Result {
    if flags & O_ACCMODE == O_RDONLY || flags & O_DIRECTORY == 0 {
        return Err(Errno::EINVAL);
    }
    let dir = resolve(call, from, n, Follow::Last)?.found()?;
    if !dir.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    if !matches!(dir.body, Body::Dir) {
        return Err(Errno::EOPNOTSUPP);
    }
    let inode = change::inode(&dir, New::File, mode & !call.process.place.lock().umask)?;
    inode.change(|meta| meta.nr_links = 0);
    let name = alloc::format!("#{}", inode.number).into_bytes().into();
    add(call, Open::named(Kind::File, inode, flags & !OPENING | LARGE, Some(Spot { dir, name }))?, flags)
}

pub fn open(call: &mut Call) -> errno::Result {
    let (flags, mode) = (call.int(1), call.int(2));
    open_path(call, From::Cwd, 0, flags, mode)
}

pub fn openat(call: &mut Call) -> errno::Result {
    let (flags, mode) = (call.int(2), call.int(3));
    open_path(call, From::Argument(0), 1, flags, mode)
}

pub fn creat(call: &mut Call) -> errno::Result {
    let mode = call.int(1);
    open_path(call, From::Cwd, 0, O_CREAT | O_WRONLY | O_TRUNC, mode)
}

pub fn memfd_create(call: &mut Call) -> errno::Result {
    let flags = call.int(1);
    let is_huge = flags & MFD_HUGETLB != 0;
    let known = MFD_KNOWN | if is_huge { MFD_HUGE_BITS } else { 0 };
    if flags & !known != 0 || flags & (MFD_EXEC | MFD_NOEXEC_SEAL) == MFD_EXEC | MFD_NOEXEC_SEAL {
        return Err(Errno::EINVAL);
    }
    let name = read_path(call, call.args[0]).map_err(|e| if e == Errno::ENAMETOOLONG { Errno::EINVAL } else { e })?;
    if name.len() > 249 {
        return Err(Errno::EINVAL);
    }
    let order = is_huge.then(|| mm::huge_order(flags >> HUGE_SHIFT).ok_or(Errno::ENODEV)).transpose()?;
    let (seals, mode) = match flags & (MFD_NOEXEC_SEAL | MFD_ALLOW_SEALING) {
        0 => (Seals::SEAL, 0o777),
        MFD_ALLOW_SEALING => (Seals::empty(), 0o777),
        _ => (Seals::EXEC, 0o666),
    };
    let content = order.map_or_else(|| Ok(Content::sealed(&[], seals)), |order| Content::huge(order, seals))?;
    let inode = Inode::new(Body::File(content), mode)?;
    inode.change(|meta| meta.nr_links = 0);
    let name = [b"memfd:", &name[..]].concat().into();
    let spot = Spot { dir: crate::linux::fs::tree::root(), name };
    let open = Open::made(Kind::File, inode, O_RDWR | LARGE, spot)?;
    add(call, open, if flags & MFD_CLOEXEC != 0 { O_CLOEXEC } else { 0 })
}

pub fn close(call: &mut Call) -> errno::Result {
    let gone = call.process.files.lock().remove(call.int(0))?;
    release_locks(call, &gone);
    Ok(0)
}

/// A process has closed one of its numbers for a file, and with it lost its locks
/// on the file.
fn release_locks(call: &Call, closed: &Open) {
    locks::release(Owner::Process(call.process.pid), Some(closed.inode.number));
}

/// close_range(2).
pub fn close_range(call: &mut Call) -> errno::Result {
    const UNSHARE: u32 = 2;
    const CLOEXEC: u32 = 4;
    let (first, last, flags) = (call.int(0), call.int(1), call.int(2));
    if first > last || flags & !(UNSHARE | CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    let mut at = first;
    loop {
        let mut files = call.process.files.lock();
        let Some(number) = files.numbers(at).next().filter(|n| *n <= last) else { return Ok(0) };
        let gone = match flags & CLOEXEC {
            0 => Some(files.remove(number)),
            _ => {
                files.set_closes_on_exec(number, true)?;
                None
            }
        };
        drop(files);
        gone.iter().flatten().for_each(|open| release_locks(call, open));
        drop(gone);
        match number.checked_add(1) {
            Some(next) => at = next,
            None => return Ok(0),
        }
    }
}

pub fn lseek(call: &mut Call) -> errno::Result {
    const DATA: u32 = 3;
    const HOLE: u32 = 4;
    let open = open_file(call, 0)?;
    let (offset, whence) = (call.args[1] as i64, call.int(2));
    let size = match &open.kind {
        Kind::File => open.inode.size_bytes(),
        Kind::Dir | Kind::Text(_) => 0,
        Kind::Null | Kind::Zero | Kind::Full | Kind::Random => return Ok(0),
        Kind::Path => return Err(Errno::EBADF),
        _ => return Err(Errno::ESPIPE),
    };
    let is_file = matches!(open.kind, Kind::File);
    let mut position = open.position.lock();
    let base = match whence {
        0 => 0,
        1 => *position,
        2 if is_file => size,
        DATA | HOLE if is_file => {
            let from = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
            *position = open.inode.content()?.seek(from, whence == DATA).ok_or(Errno::ENXIO)?;
            return Ok(*position);
        }
        _ => return Err(Errno::EINVAL),
    };
    let at = base.checked_add_signed(offset).filter(|at| *at <= i64::MAX as u64).ok_or(Errno::EINVAL)?;
    *position = at;
    Ok(at)
}

fn pipe_of(open: &Open) -> errno::Result<&Arc<file::pipe::Pipe>> {
    match &open.inode.body {
        Body::Pipe(pipe) => Ok(pipe),
        _ => Err(Errno::EBADF),
    }
}

/// The content of a file that may have seals: a plain one.
fn sealable(open: &Open) -> errno::Result<&Content> {
    if matches!(open.kind, Kind::File) { open.inode.content() } else { Err(Errno::EINVAL) }
}

pub fn fcntl(call: &mut Call) -> errno::Result {
    let open = open_file(call, 0)?;
    let (number, argument) = (call.int(0), call.int(2));
    let command = call.int(1);
    let files = &call.process.files;
    match command {
        F_DUPFD | F_DUPFD_CLOEXEC => {
            let limit = limit(call);
            files.lock().put(open.clone(), argument, command == F_DUPFD_CLOEXEC, limit).map(u64::from)
        }
        F_GETFD => Ok(u64::from(files.lock().closes_on_exec(number)?)),
        F_SETFD => files.lock().set_closes_on_exec(number, argument & FD_CLOEXEC != 0).map(|()| 0),
        F_GETFL => Ok(open.flags().into()),
        _ if matches!(open.kind, Kind::Path) => Err(Errno::EBADF),
        F_SETFL => {
            open.set_flags(argument, SETTABLE);
            Ok(0)
        }
        F_GETLK | F_SETLK | F_SETLKW | F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW => {
            super::file_lock::fcntl(call, &open, command)
        }
        F_GETOWN | F_SETOWN => Ok(0),
        F_GETPIPE_SZ => Ok(pipe_of(&open)?.capacity() as u64),
        F_GET_SEALS => Ok(sealable(&open)?.writer().seals().bits().into()),
        F_ADD_SEALS if !open.may_write() => Err(Errno::EPERM),
        F_ADD_SEALS => sealable(&open)?.add_seals(|| open.inode.meta().mode, argument).map(|()| 0),
        F_SETPIPE_SZ => pipe_of(&open)?.set_capacity(call.args[2] as usize),
        _ => Err(Errno::EINVAL),
    }
}

pub fn dup(call: &mut Call) -> errno::Result {
    let open = open_file(call, 0)?;
    add(call, open, 0)
}

/// dup2(2).
pub fn dup2(call: &mut Call) -> errno::Result {
    if call.int(0) == call.int(1) {
        open_file(call, 0)?;
        return Ok(call.int(0).into());
    }
    put_at(call, 0)
}

/// dup3(2).
pub fn dup3(call: &mut Call) -> errno::Result {
    if call.int(0) == call.int(1) || call.int(2) & !O_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    let flags = call.int(2);
    put_at(call, flags)
}

fn put_at(call: &Call, flags: u32) -> errno::Result {
    let open = open_file(call, 0)?;
    let limit = limit(call);
    let before = call.process.files.lock().replace(open, call.int(1), flags & O_CLOEXEC != 0, limit)?;
    before.iter().for_each(|open| release_locks(call, open));
    drop(before);
    Ok(call.int(1).into())
}

/// Two numbers at once, stored at `addr`; none if anything fails.
pub fn add_both(call: &Call, ends: (Arc<Open>, Arc<Open>), flags: u32, addr: u64) -> errno::Result {
    let first = add(call, ends.0, flags)? as u32;
    let second = add(call, ends.1, flags).map(|n| n as u32);
    let put = second.and_then(|second| mm::put(call.space(), addr, &[first, second]));
    if put.is_err() {
        let numbers = [Ok(first), second];
        let gone = numbers.map(|n| n.and_then(|n| call.process.files.lock().remove(n)));
        drop(gone);
    }
    put.map(|()| 0)
}

/// pipe(2) and pipe2(2).
pub fn pipe(call: &mut Call, flags: u32) -> errno::Result {
    // O_DIRECT asks for packets, which there are not.
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    add_both(call, file::new_pipe(flags & O_NONBLOCK)?, flags, call.args[0])
}

pub fn eventfd2(call: &mut Call, flags: u32) -> errno::Result {
    if flags & !(EFD_SEMAPHORE | EFD_NONBLOCK | O_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    let event = Event::new(call.int(0).into(), flags & EFD_SEMAPHORE != 0);
    add(call, Open::nameless(Kind::Event(event), "[eventfd]", O_RDWR | flags & O_NONBLOCK)?, flags)
}

/// Everything is where it will stay.
pub fn sync_file(call: &mut Call) -> errno::Result {
    let open = open_file(call, 0)?;
    if matches!(open.kind, Kind::File | Kind::Dir) { Ok(0) } else { Err(Errno::EINVAL) }
}

/// Everything is in memory already.
pub fn fadvise64(call: &mut Call) -> errno::Result {
    const MOST: u32 = 5;
    let open = open_file(call, 0)?;
    match open.kind {
        Kind::Path => Err(Errno::EBADF),
        Kind::Pipe { .. } => Err(Errno::ESPIPE),
        _ if call.int(3) > MOST || (call.args[2] as i64) < 0 => Err(Errno::EINVAL),
        _ => Ok(0),
    }
}
