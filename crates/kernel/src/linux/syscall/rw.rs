//! Reading and writing, in all their forms, and from file to file.

use super::buffer::{Memory, PAGE_BYTES};
use super::call::Call;
use super::path::open_file;
use super::transfer;
use crate::linux::errno::{self, Errno};
use crate::linux::file::{Kind, Open};
use crate::port::mm::{self, USER_END};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Most bytes of one call, as on Linux.
const MAX_BYTES: u64 = 0x7fff_f000;
/// Most parts of readv(2) and writev(2).
const MAX_PARTS: u64 = 1024;

/// The direction of a transfer.
#[derive(Clone, Copy)]
enum Way {
    Read,
    Write,
}

impl Way {
    /// The open file of argument 0, if it may be used so. As on Linux that comes before any address.
    fn file(self, call: &Call) -> errno::Result<Arc<Open>> {
        let open = open_file(call, 0)?;
        let may = match self {
            Way::Read => open.may_read(),
            Way::Write => open.may_write(),
        };
        if may { Ok(open) } else { Err(Errno::EBADF) }
    }
    fn transfer(self, call: &Call, open: &Open, parts: &[[u64; 2]], at: Option<u64>) -> errno::Result {
        let memory = &mut Memory::of_program(call.space(), parts);
        match self {
            Way::Read => transfer::read(call, open, memory, at),
            Way::Write => transfer::write(call, open, memory, at),
        }
    }
}

/// An address range that a program could have, if only an empty one.
fn check_range(addr: u64, len: u64) -> errno::Result<()> {
    addr.checked_add(len).filter(|end| *end <= USER_END).map(|_| ()).ok_or(Errno::EFAULT)
}

/// A position that argument `n` gives.
fn offset(call: &Call, n: usize) -> errno::Result<Option<u64>> {
    if (call.args[n] as i64) < 0 { Err(Errno::EINVAL) } else { Ok(Some(call.args[n])) }
}

fn one_part(call: &Call, way: Way, at: Option<u64>) -> errno::Result {
    let [_, addr, len, ..] = call.args;
    let open = way.file(call)?;
    check_range(addr, len)?;
    way.transfer(call, &open, &[[addr, len.min(MAX_BYTES)]], at)
}

/// The list of `nr` parts at `list`. EINVAL if they are too many, or one of them is longer than any memory.
pub fn read_list(call: &Call, list: u64, nr: u64) -> errno::Result<Vec<[u64; 2]>> {
    let mut parts = Vec::new();
    if nr == 0 {
        return Ok(parts);
    }
    if nr > MAX_PARTS {
        return Err(Errno::EINVAL);
    }
    check_range(list, nr * 16)?;
    parts.try_reserve_exact(nr as usize).map_err(|_| Errno::ENOMEM)?;
    for i in 0..nr {
        let [addr, len] = mm::get::<[u64; 2]>(call.space(), list + i * 16)?;
        if (len as i64) < 0 {
            return Err(Errno::EINVAL);
        }
        parts.push([addr, len]);
    }
    Ok(parts)
}

/// Cuts the parts at so many bytes; those behind that are empty.
pub fn cut(parts: &mut [[u64; 2]], mut left: u64) {
    for [_, len] in parts {
        *len = (*len).min(left);
        left -= *len;
    }
}

/// The list of parts at argument 1, cut at the most that one call moves. As on Linux the errors come in this order: of the
/// list, of lengths, of addresses; a part that is alone is cut first.
pub fn read_parts(call: &Call) -> errno::Result<Vec<[u64; 2]>> {
    let mut parts = read_list(call, call.args[1], call.int(2).into())?;
    if let [part] = &mut parts[..] {
        cut(core::slice::from_mut(part), MAX_BYTES);
    }
    for [addr, len] in &parts {
        check_range(*addr, *len)?;
    }
    cut(&mut parts, MAX_BYTES);
    Ok(parts)
}

fn many_parts(call: &Call, way: Way, at: Option<u64>) -> errno::Result {
    let open = way.file(call)?;
    let mut parts = read_parts(call)?;
    parts.retain(|[_, len]| *len > 0);
    way.transfer(call, &open, &parts, at)
}

pub fn read(call: &mut Call) -> errno::Result {
    one_part(call, Way::Read, None)
}

pub fn write(call: &mut Call) -> errno::Result {
    one_part(call, Way::Write, None)
}

pub fn pread64(call: &mut Call) -> errno::Result {
    let at = offset(call, 3)?;
    one_part(call, Way::Read, at)
}

pub fn pwrite64(call: &mut Call) -> errno::Result {
    let at = offset(call, 3)?;
    one_part(call, Way::Write, at)
}

pub fn readv(call: &mut Call) -> errno::Result {
    many_parts(call, Way::Read, None)
}

pub fn writev(call: &mut Call) -> errno::Result {
    many_parts(call, Way::Write, None)
}

pub fn preadv(call: &mut Call) -> errno::Result {
    let at = offset(call, 3)?;
    many_parts(call, Way::Read, at)
}

pub fn pwritev(call: &mut Call) -> errno::Result {
    let at = offset(call, 3)?;
    many_parts(call, Way::Write, at)
}

/// preadv2(2) and pwritev2(2) without flags; -1 is the file's own position.
pub fn vector2(call: &mut Call, writes: bool) -> errno::Result {
    if call.int(5) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let at = if call.args[3] as i64 == -1 { None } else { offset(call, 3)? };
    many_parts(call, if writes { Way::Write } else { Way::Read }, at)
}

/// Copies up to `len` bytes of the plain file `from`, a page at a time.
fn copy(call: &Call, from: &Open, mut at: u64, to: &Open, mut to_at: Option<u64>, len: u64) -> errno::Result {
    let mut page = [0; PAGE_BYTES as usize];
    let mut done = 0;
    while done < len {
        let nr = (len - done).min(PAGE_BYTES) as usize;
        let nr = match transfer::read(call, from, &mut Memory::Target(&mut page[..nr]), Some(at)) {
            Ok(nr) => nr as usize,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        };
        if nr == 0 {
            break;
        }
        match transfer::write(call, to, &mut Memory::Source(&page[..nr]), to_at) {
            Ok(sent) => {
                done += sent;
                at += sent;
                to_at = to_at.map(|at| at + sent);
                if (sent as usize) < nr {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// A position in the program's memory, or the file's own.
fn position(call: &Call, open: &Open, pointer: u64) -> errno::Result<u64> {
    if pointer == 0 {
        return Ok(*open.position.lock());
    }
    let at = mm::get::<u64>(call.space(), pointer)?;
    if (at as i64) < 0 { Err(Errno::EINVAL) } else { Ok(at) }
}

fn set_position(call: &Call, open: &Open, pointer: u64, at: u64) -> errno::Result<()> {
    if pointer == 0 {
        *open.position.lock() = at;
        return Ok(());
    }
    mm::put(call.space(), pointer, &at)
}

pub fn sendfile(call: &mut Call) -> errno::Result {
    let [_, _, pointer, len, ..] = call.args;
    let (to, from) = (open_file(call, 0)?, open_file(call, 1)?);
    if !from.may_read() || !to.may_write() {
        return Err(Errno::EBADF);
    }
    if !matches!(from.kind, Kind::File | Kind::Text(_)) {
        return Err(Errno::EINVAL);
    }
    let at = position(call, &from, pointer)?;
    let done = copy(call, &from, at, &to, None, len.min(MAX_BYTES))?;
    set_position(call, &from, pointer, at + done)?;
    Ok(done)
}

pub fn copy_file_range(call: &mut Call) -> errno::Result {
    let [_, from_at, _, to_at, len, flags] = call.args;
    let (from, to) = (open_file(call, 0)?, open_file(call, 2)?);
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    if from.inode.is_dir() || to.inode.is_dir() {
        return Err(Errno::EISDIR);
    }
    if !matches!((&from.kind, &to.kind), (Kind::File, Kind::File)) {
        return Err(Errno::EINVAL);
    }
    if !from.may_read() || !to.may_write() || to.appends() {
        return Err(Errno::EBADF);
    }
    let (start, to_start) = (position(call, &from, from_at)?, position(call, &to, to_at)?);
    let len = len.min(MAX_BYTES);
    let same = from.inode.number == to.inode.number;
    if same && start < to_start.saturating_add(len) && to_start < start.saturating_add(len) {
        return Err(Errno::EINVAL);
    }
    let done = copy(call, &from, start, &to, Some(to_start), len)?;
    if done == 0 {
        return Ok(0);
    }
    // The second moves even if the first cannot be stored.
    let moved = set_position(call, &from, from_at, start + done);
    set_position(call, &to, to_at, to_start + done).and(moved)?;
    Ok(done)
}
