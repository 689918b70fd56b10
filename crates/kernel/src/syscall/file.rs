//! Calls about files. There are three: an empty input, the output, the error
//! output; and the program itself, as a name only.

use super::{Call, time};
use crate::arch::time::now_ns;
use crate::console::{self, Channel};
use crate::errno::{self, Errno};
use crate::mm;
use linux_raw_sys::general::{AT_EMPTY_PATH, POLLIN, POLLNVAL, POLLOUT, S_IFCHR};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes that are copied at a time.
const CHUNK_BYTES: usize = 1024;
/// Most parts of a writev(2).
const MAX_PARTS: u64 = 1024;
const MAX_PATH: usize = 4096;

fn channel(fd: u32) -> errno::Result<Channel> {
    match fd {
        1 => Ok(Channel::Output),
        2 => Ok(Channel::Error),
        _ => Err(Errno::EBADF),
    }
}

/// Sends the program's bytes; an error only if none of them could be read.
fn send(call: &Call, channel: Channel, addr: u64, len: u64) -> errno::Result {
    let mut done = 0;
    while done < len {
        let mut chunk = [0u8; CHUNK_BYTES];
        let part = (len - done).min(CHUNK_BYTES as u64) as usize;
        match mm::copy_in(call.space(), addr.wrapping_add(done), &mut chunk[..part]) {
            Ok(()) => console::send(channel, &chunk[..part]),
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
        done += part as u64;
    }
    Ok(done)
}

pub fn write(call: &mut Call) -> errno::Result {
    let len = call.args[2].min(0x7fff_f000);
    send(call, channel(call.int(0))?, call.args[1], len)
}

pub fn writev(call: &mut Call) -> errno::Result {
    let [_, list, nr, ..] = call.args;
    let channel = channel(call.int(0))?;
    if nr > MAX_PARTS {
        return Err(Errno::EINVAL);
    }
    let mut done = 0;
    for i in 0..nr {
        let part = mm::get::<[u64; 2]>(call.space(), list.wrapping_add(i * 16)).and_then(|[addr, len]| {
            if len as i64 >= 0 { Ok((addr, len)) } else { Err(Errno::EINVAL) }
        });
        match part.and_then(|(addr, len)| Ok((len, send(call, channel, addr, len)?))) {
            Ok((len, sent)) => {
                done += sent;
                if sent < len {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

/// The input is at its end.
pub fn read(call: &mut Call) -> errno::Result {
    if call.int(0) == 0 { Ok(0) } else { Err(Errno::EBADF) }
}

fn is_open(fd: u32) -> bool {
    fd <= 2
}

pub fn close(call: &mut Call) -> errno::Result {
    if is_open(call.int(0)) { Ok(0) } else { Err(Errno::EBADF) }
}

pub fn lseek(call: &mut Call) -> errno::Result {
    Err(if is_open(call.int(0)) { Errno::ESPIPE } else { Errno::EBADF })
}

/// None of them is a terminal.
pub fn ioctl(call: &mut Call) -> errno::Result {
    Err(if is_open(call.int(0)) { Errno::ENOTTY } else { Errno::EBADF })
}

/// `struct stat` of a character device; all else is zero.
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

fn stat(call: &Call, fd: u32, out: u64) -> errno::Result {
    if !is_open(fd) {
        return Err(Errno::EBADF);
    }
    let stat = RawStat {
        dev: 1,
        ino: u64::from(fd) + 1,
        nr_links: 1,
        mode: S_IFCHR | 0o620,
        uid: 0,
        gid: 0,
        pad: 0,
        rdev: 5 << 8 | 1,
        size: 0,
        block_bytes: CHUNK_BYTES as u64,
        blocks: 0,
        times: [0; 6],
        reserved: [0; 3],
    };
    mm::put(call.space(), out, &stat)?;
    Ok(0)
}

pub fn fstat(call: &mut Call) -> errno::Result {
    stat(call, call.int(0), call.args[1])
}

pub fn newfstatat(call: &mut Call) -> errno::Result {
    let [_, path_at, out, flags, ..] = call.args;
    let path = read_path(call, path_at)?;
    if path.is_empty() && flags as u32 & AT_EMPTY_PATH != 0 {
        return stat(call, call.int(0), out);
    }
    Err(Errno::ENOENT)
}

/// The path at `addr`, if it is one that anybody could mean here: longer ones
/// are cut.
fn read_path(call: &Call, addr: u64) -> errno::Result<alloc::vec::Vec<u8>> {
    let mut path = alloc::vec::Vec::new();
    while path.len() < MAX_PATH {
        match mm::get::<u8>(call.space(), addr.wrapping_add(path.len() as u64))? {
            0 => break,
            byte => path.push(byte),
        }
    }
    Ok(path)
}

pub fn readlink(call: &mut Call) -> errno::Result {
    let [path_at, out, bytes, ..] = call.args;
    if read_path(call, path_at)? != b"/proc/self/exe" {
        return Err(Errno::ENOENT);
    }
    if bytes as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    let path = call.process.path.as_bytes();
    let len = path.len().min(bytes as usize);
    mm::copy_out(call.space(), out, &path[..len])?;
    Ok(len as u64)
}

/// For calls whose argument `n` is a path: the file is not there.
pub fn no_such_file(call: &mut Call, n: usize) -> errno::Result {
    read_path(call, call.args[n])?;
    Err(Errno::ENOENT)
}

/// Input and outputs are always ready; what else is asked for is not there.
pub fn poll(call: &mut Call) -> errno::Result {
    let [list, nr, timeout_ms, ..] = call.args;
    if nr > MAX_PARTS {
        return Err(Errno::EINVAL);
    }
    let mut ready = 0;
    for i in 0..nr {
        let at = list.wrapping_add(i * 8);
        let [fd_low, fd_high, events, _] = mm::get::<[u16; 4]>(call.space(), at)?;
        let fd = i32::from(fd_high as i16) << 16 | i32::from(fd_low);
        let answer = match fd {
            ..0 => 0,
            0 => events & POLLIN as u16,
            1 | 2 => events & POLLOUT as u16,
            _ => POLLNVAL as u16,
        };
        ready += u64::from(answer != 0);
        mm::put(call.space(), at.wrapping_add(6), &answer)?;
    }
    let timeout_ms = timeout_ms as i32;
    if ready == 0 && timeout_ms != 0 {
        let deadline = u64::try_from(timeout_ms).ok().map(|ms| now_ns() + ms * 1_000_000);
        time::sleep(call, deadline)?;
    }
    Ok(ready)
}

