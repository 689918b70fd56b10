//! Calls about files: opening, reading, writing, and what they are.

use super::Call;
use crate::console;
use crate::errno::{self, Errno};
use crate::file::{self, Event, Kind, Open};
use crate::mm;
use crate::signal::{self, Info};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, EFD_NONBLOCK, EFD_SEMAPHORE, F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_GETFL, F_SETFD, F_SETFL,
    O_ACCMODE, O_NONBLOCK, O_RDONLY, O_RDWR, O_WRONLY, S_IFCHR, S_IFIFO, S_IFREG, SIGPIPE,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes that are copied at a time.
const CHUNK_BYTES: u64 = 1024;
/// Most bytes of a read or write, as on Linux.
const MAX_BYTES: u64 = 0x7fff_f000;
/// Most parts of a readv(2) or writev(2).
const MAX_PARTS: u64 = 1024;
const MAX_PATH: usize = 4096;

fn open_file(call: &Call, n: usize) -> errno::Result<Arc<Open>> {
    call.process.files.lock().get(call.int(n))
}

/// Passes bytes of the program on, part by part; an error only if it comes
/// before the first.
fn send(call: &Call, open: &Open, addr: u64, len: u64) -> errno::Result {
    let mut done = 0;
    while done < len {
        let mut chunk = [0u8; CHUNK_BYTES as usize];
        let part = (len - done).min(CHUNK_BYTES);
        let bytes = &mut chunk[..part as usize];
        let sent =
            mm::copy_in(call.space(), addr.wrapping_add(done), bytes).and_then(|()| send_chunk(call, open, bytes));
        match sent {
            Ok(sent) => done += sent,
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

fn send_chunk(call: &Call, open: &Open, bytes: &[u8]) -> errno::Result {
    match &open.kind {
        Kind::Output(channel) => console::send(*channel, bytes),
        Kind::Null | Kind::Zero => {}
        Kind::Writer(pipe) => {
            let sent = open.retry(call.thread, || pipe.put(bytes));
            if sent == Err(Errno::EPIPE) {
                let info = Info::sent(SIGPIPE, 0, call.process.pid);
                signal::send_to_thread(&crate::sched::current(), info);
            }
            return sent;
        }
        Kind::Event(event) => {
            let Ok(n) = <[u8; 8]>::try_from(bytes) else { return Err(Errno::EINVAL) };
            open.retry(call.thread, || event.add(u64::from_le_bytes(n)))?;
        }
        Kind::Plain(_) | Kind::Reader(_) | Kind::Epoll(_) => return Err(Errno::EBADF),
    }
    Ok(bytes.len() as u64)
}

/// Reads up to `len` bytes for the program.
fn receive(call: &Call, open: &Open, addr: u64, len: u64) -> errno::Result {
    let mut done = 0;
    while done < len {
        let part = (len - done).min(CHUNK_BYTES);
        // Only the first part is waited for.
        let bytes = match receive_chunk(call, open, part, done == 0) {
            Ok(bytes) => bytes,
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        };
        let copied = mm::copy_out(call.space(), addr.wrapping_add(done), &bytes);
        match copied {
            Ok(()) => {}
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
        if let Kind::Plain(plain) = &open.kind {
            plain.seek(bytes.len() as i64, 1)?;
        }
        done += bytes.len() as u64;
        if (bytes.len() as u64) < part || matches!(open.kind, Kind::Event(_)) {
            break;
        }
    }
    Ok(done)
}

fn receive_chunk(call: &Call, open: &Open, max: u64, waits: bool) -> errno::Result<Vec<u8>> {
    match &open.kind {
        Kind::Null => Ok(Vec::new()),
        Kind::Zero => Ok(alloc::vec![0; max as usize]),
        Kind::Plain(plain) => Ok(plain.part(plain.position(), max).to_vec()),
        Kind::Reader(pipe) if waits => open.retry(call.thread, || pipe.take(max as usize)),
        Kind::Reader(pipe) => pipe.take(max as usize),
        Kind::Event(_) if max < 8 => Err(Errno::EINVAL),
        Kind::Event(event) => open.retry(call.thread, || event.take()).map(|n| n.to_le_bytes().to_vec()),
        Kind::Output(_) | Kind::Writer(_) | Kind::Epoll(_) => Err(Errno::EBADF),
    }
}

pub fn write(call: &mut Call) -> errno::Result {
    let open = open_file(call, 0)?;
    send(call, &open, call.args[1], call.args[2].min(MAX_BYTES))
}

pub fn read(call: &mut Call) -> errno::Result {
    let open = open_file(call, 0)?;
    receive(call, &open, call.args[1], call.args[2].min(MAX_BYTES))
}

pub fn pread64(call: &mut Call) -> errno::Result {
    let [_, addr, len, offset, ..] = call.args;
    let open = open_file(call, 0)?;
    if (offset as i64) < 0 {
        return Err(Errno::EINVAL);
    }
    let Kind::Plain(plain) = &open.kind else { return Err(Errno::ESPIPE) };
    let bytes = plain.part(offset, len.min(MAX_BYTES));
    mm::copy_out(call.space(), addr, bytes)?;
    Ok(bytes.len() as u64)
}

type Transfer = fn(&Call, &Open, u64, u64) -> errno::Result;

/// The parts of a list one by one, until one is not done wholly.
fn each_part(call: &Call, transfer: Transfer) -> errno::Result {
    let [_, list, nr, ..] = call.args;
    let open = open_file(call, 0)?;
    if nr > MAX_PARTS {
        return Err(Errno::EINVAL);
    }
    let mut done = 0;
    for i in 0..nr {
        let part = mm::get::<[u64; 2]>(call.space(), list.wrapping_add(i * 16));
        let moved = part.and_then(|[addr, len]| {
            if (len as i64) < 0 {
                return Err(Errno::EINVAL);
            }
            Ok((len, transfer(call, &open, addr, len.min(MAX_BYTES))?))
        });
        match moved {
            Ok((len, moved)) => {
                done += moved;
                if moved < len {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

pub fn writev(call: &mut Call) -> errno::Result {
    each_part(call, send)
}

pub fn readv(call: &mut Call) -> errno::Result {
    each_part(call, receive)
}

pub fn close(call: &mut Call) -> errno::Result {
    let gone = call.process.files.lock().remove(call.int(0))?;
    drop(gone);
    Ok(0)
}

pub fn lseek(call: &mut Call) -> errno::Result {
    let open = open_file(call, 0)?;
    match &open.kind {
        Kind::Plain(plain) => plain.seek(call.args[1] as i64, call.int(2)),
        Kind::Null | Kind::Zero => Ok(0),
        _ => Err(Errno::ESPIPE),
    }
}

/// None of them is a terminal.
pub fn ioctl(call: &mut Call) -> errno::Result {
    open_file(call, 0)?;
    Err(Errno::ENOTTY)
}

/// The path at `addr`, if it is one that anybody could mean here: longer ones
/// are cut.
fn read_path(call: &Call, addr: u64) -> errno::Result<Vec<u8>> {
    let mut path = Vec::new();
    while path.len() < MAX_PATH {
        match mm::get::<u8>(call.space(), addr.wrapping_add(path.len() as u64))? {
            0 => break,
            byte => path.push(byte),
        }
    }
    Ok(path)
}

fn open_at(call: &mut Call, n: usize) -> errno::Result {
    let path = read_path(call, call.args[n])?;
    let flags = call.int(n + 1);
    let kind = file::find(&path)?;
    if matches!(kind, Kind::Plain(_)) && flags & O_ACCMODE != O_RDONLY {
        return Err(Errno::EROFS);
    }
    call.process.files.lock().add(kind, flags & O_NONBLOCK != 0).map(u64::from)
}

pub fn open(call: &mut Call) -> errno::Result {
    open_at(call, 0)
}

pub fn openat(call: &mut Call) -> errno::Result {
    open_at(call, 1)
}

/// access(2) and its kin: argument `n` is the path, the next what for.
pub fn access(call: &mut Call, n: usize) -> errno::Result {
    let path = read_path(call, call.args[n])?;
    let kind = file::find(&path)?;
    // Write permission is bit 1.
    if call.int(n + 1) & 2 != 0 && matches!(kind, Kind::Plain(_)) { Err(Errno::EROFS) } else { Ok(0) }
}

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
    times: [u64; 6],
    reserved: [u64; 3],
}

const _: () = assert!(size_of::<RawStat>() == 144);

fn put_stat(call: &Call, kind: &Kind, out: u64) -> errno::Result {
    let (mode, size) = match kind {
        Kind::Plain(plain) => (S_IFREG | 0o555, plain.len()),
        Kind::Reader(_) | Kind::Writer(_) => (S_IFIFO | 0o600, 0),
        _ => (S_IFCHR | 0o620, 0),
    };
    let stat = RawStat {
        dev: 1,
        ino: 1,
        nr_links: 1,
        mode,
        uid: 0,
        gid: 0,
        pad: 0,
        rdev: 0,
        size,
        block_bytes: 4096,
        blocks: size.div_ceil(512),
        times: [0; 6],
        reserved: [0; 3],
    };
    mm::put(call.space(), out, &stat)?;
    Ok(0)
}

pub fn fstat(call: &mut Call) -> errno::Result {
    let open = open_file(call, 0)?;
    put_stat(call, &open.kind, call.args[1])
}

pub fn stat(call: &mut Call) -> errno::Result {
    let path = read_path(call, call.args[0])?;
    put_stat(call, &file::find(&path)?, call.args[1])
}

pub fn newfstatat(call: &mut Call) -> errno::Result {
    let [_, path_at, out, flags, ..] = call.args;
    let path = read_path(call, path_at)?;
    if path.is_empty() && flags as u32 & AT_EMPTY_PATH != 0 {
        let open = open_file(call, 0)?;
        return put_stat(call, &open.kind, out);
    }
    put_stat(call, &file::find(&path)?, out)
}

fn read_link(call: &Call, path_at: u64, out: u64, bytes: u64) -> errno::Result {
    let path = read_path(call, path_at)?;
    if path != b"/proc/self/exe" {
        return Err(if file::find(&path).is_ok() { Errno::EINVAL } else { Errno::ENOENT });
    }
    if bytes as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    let path = call.thread.mm().path.as_bytes();
    let len = path.len().min(bytes as usize);
    mm::copy_out(call.space(), out, &path[..len])?;
    Ok(len as u64)
}

pub fn readlink(call: &mut Call) -> errno::Result {
    let [path, out, bytes, ..] = call.args;
    read_link(call, path, out, bytes)
}

pub fn readlinkat(call: &mut Call) -> errno::Result {
    let [_, path, out, bytes, ..] = call.args;
    read_link(call, path, out, bytes)
}

pub fn fcntl(call: &mut Call) -> errno::Result {
    let open = open_file(call, 0)?;
    match call.int(1) {
        F_GETFL => {
            let mode = match open.kind {
                Kind::Output(_) | Kind::Writer(_) => O_WRONLY,
                Kind::Event(_) => O_RDWR,
                _ => O_RDONLY,
            };
            let nonblocking = if open.nonblocking.load(Ordering::Relaxed) { O_NONBLOCK } else { 0 };
            Ok(u64::from(mode | nonblocking))
        }
        F_SETFL => {
            open.nonblocking.store(call.int(2) & O_NONBLOCK != 0, Ordering::Relaxed);
            Ok(0)
        }
        // Nothing is ever executed: the flag to close then has no effect.
        F_GETFD | F_SETFD => Ok(0),
        F_DUPFD | F_DUPFD_CLOEXEC => call.process.files.lock().put(open, call.int(2)).map(u64::from),
        _ => Err(Errno::EINVAL),
    }
}

pub fn dup(call: &mut Call) -> errno::Result {
    let open = open_file(call, 0)?;
    call.process.files.lock().put(open, 0).map(u64::from)
}

/// dup2(2), and dup3(2) if `strict`: that refuses equal numbers.
pub fn dup2(call: &mut Call, strict: bool) -> errno::Result {
    let (from, to) = (call.int(0), call.int(1));
    let open = open_file(call, 0)?;
    if from == to {
        return if strict { Err(Errno::EINVAL) } else { Ok(to.into()) };
    }
    let before = call.process.files.lock().replace(open, to)?;
    drop(before);
    Ok(to.into())
}

/// pipe(2) and pipe2(2).
pub fn pipe(call: &mut Call, flags: u32) -> errno::Result {
    let nonblocking = flags & O_NONBLOCK != 0;
    let (reader, writer) = file::pipe();
    let numbers = {
        let mut files = call.process.files.lock();
        let first = files.add(Kind::Reader(reader), nonblocking)?;
        (first, files.add(Kind::Writer(writer), nonblocking))
    };
    let put = match numbers {
        (first, Ok(second)) => mm::put(call.space(), call.args[0], &[first, second]),
        (_, Err(errno)) => Err(errno),
    };
    if put.is_err() {
        let gone = [Ok(numbers.0), numbers.1].map(|n| n.and_then(|n| call.process.files.lock().remove(n)));
        drop(gone);
    }
    put.map(|()| 0)
}

pub fn eventfd2(call: &mut Call) -> errno::Result {
    let flags = call.int(1);
    let event = Event::new(call.int(0).into(), flags & EFD_SEMAPHORE != 0);
    call.process.files.lock().add(Kind::Event(event), flags & EFD_NONBLOCK != 0).map(u64::from)
}
