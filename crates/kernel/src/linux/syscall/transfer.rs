//! Moving bytes between open files and where they come from or go to: the
//! program's memory in one or several parts, or the kernel's own. By pages, so
//! that nothing large is on the kernel's stack or heap.

use super::buffer::{Memory, PAGE_BYTES, settle};
use super::call::Call;
use super::stream::{read_pipe, write_pipe};
use crate::linux::errno::{self, Errno, Restart};
use crate::linux::file::{Kind, Open, console};
use crate::linux::fs::content::MAX_SIZE_BYTES;
use crate::linux::process::table;
use crate::linux::signal::{Info, SI_KERNEL, send};
use crate::linux::terminal;
use crate::port::console::Channel;
use crate::port::mailbox;
use crate::port::random;
use linux_raw_sys::general::{RLIMIT_FSIZE, SIGTTIN, SIGXFSZ};

/// Bytes of the archive that are copied before other CPUs are answered.
const TURN_BYTES: u64 = 16 * PAGE_BYTES;

/// Moves bytes in pages, the first one shortened so that the others begin on a
/// multiple of a page of the file; `step` says how many it has moved.
fn by_pages(offset: u64, len: u64, mut step: impl FnMut(u64, &mut [u8]) -> errno::Result<usize>) -> errno::Result {
    let mut page = [0; PAGE_BYTES as usize];
    let mut done = 0;
    while done < len {
        let at = offset.saturating_add(done);
        let nr = (PAGE_BYTES - at % PAGE_BYTES).min(len - done) as usize;
        match step(at, &mut page[..nr]) {
            Ok(moved) => {
                done += moved as u64;
                if moved < nr {
                    break;
                }
            }
            Err(errno) => return settle(done, Err(errno)),
        }
    }
    Ok(done)
}

/// Checks that no byte lies behind the end of all offsets.
fn check_end(start: u64, len: u64) -> errno::Result<()> {
    start.checked_add(len).filter(|end| *end <= MAX_SIZE_BYTES).map(|_| ()).ok_or(Errno::EINVAL)
}

/// Writes the rest of `from`; at `offset`, or where the file's own position
/// is.
#[inline(never)]
pub fn write(call: &Call, open: &Open, from: &mut Memory, offset: Option<u64>) -> errno::Result {
    if !open.may_write() {
        return Err(Errno::EBADF);
    }
    match &open.kind {
        Kind::File => write_file(call, open, from, offset),
        Kind::Null | Kind::Zero => Ok(from.left()),
        Kind::Random => by_pages(0, from.left(), |_, page| from.take(page)),
        // A list of parts that are all empty is not even brought before a driver.
        Kind::Full if from.has_no_parts() => Ok(0),
        Kind::Full => Err(Errno::ENOSPC),
        Kind::Text(text) => {
            let mut position = open.position.lock();
            let at = offset.unwrap_or(*position);
            let done = by_pages(at, from.left(), |at, page| {
                from.take_all(page)?;
                text.write_at(at, page)
            })?;
            *position += if offset.is_none() { done } else { 0 };
            Ok(done)
        }
        _ if offset.is_some() => Err(Errno::ESPIPE),
        Kind::Console(channel) => write_console(*channel, from),
        Kind::Pipe { writer: Some(writer), .. } => write_pipe(call, open, writer, from),
        Kind::Event(_) if from.left() < 8 => Err(Errno::EINVAL),
        Kind::Event(event) => {
            let mut number = [0; 8];
            from.take_all(&mut number)?;
            open.retry(|| call.thread.is_interrupted(), || event.add(u64::from_le_bytes(number)))?;
            Ok(8)
        }
        Kind::Epoll(_) | Kind::Process(_) => Err(Errno::EINVAL),
        Kind::Pipe { .. } | Kind::Dir | Kind::Path => Err(Errno::EBADF),
    }
}

/// Bytes that may be written at `start`, of `len`: RLIMIT_FSIZE. Where there are
/// none the program gets a signal, too.
pub fn room_below_limit(call: &Call, start: u64, len: u64) -> errno::Result {
    let limit = call.process.limits.lock().now(RLIMIT_FSIZE);
    if len > 0 && start >= limit {
        send::to_thread(&crate::linux::process::thread::current(), Info::sent(SIGXFSZ, 0, call.process.pid));
        return Err(Errno::EFBIG);
    }
    Ok(limit.saturating_sub(start).min(len))
}

fn write_file(call: &Call, open: &Open, from: &mut Memory, offset: Option<u64>) -> errno::Result {
    let content = open.inode.content()?;
    let mut position = offset.is_none().then(|| open.position.lock());
    check_end(offset.or(position.as_deref().copied()).unwrap_or(0), from.left())?;
    if content.huge_order().is_some() {
        return Err(Errno::EINVAL);
    }
    let writer = content.writer();
    let start = match (&position, offset) {
        _ if open.appends() => content.size_bytes(),
        (Some(position), _) => **position,
        (None, offset) => offset.unwrap_or(0),
    };
    let left = from.left().min(room_below_limit(call, start, from.left())?);
    // Behind a file's own end, which `O_APPEND` writes to, there may be less room.
    let left = match MAX_SIZE_BYTES - start.min(MAX_SIZE_BYTES) {
        0 if left > 0 => return Err(Errno::EFBIG),
        room => left.min(room),
    };
    let done = by_pages(start, left, |at, page| {
        let nr = from.take(page)?;
        writer.write_at(at, &page[..nr])?;
        Ok(nr)
    })?;
    drop(writer);
    if let Some(position) = &mut position {
        **position = start + done;
    }
    if done > 0 {
        open.inode.touch();
    }
    Ok(done)
}

fn write_console(channel: Channel, from: &mut Memory) -> errno::Result {
    by_pages(0, from.left(), |_, page| {
        let nr = from.take(page)?;
        console::write(channel, &page[..nr]);
        Ok(nr)
    })
}

/// Reads as much as `to` has room for; at `offset`, or where the file's own
/// position is.
#[inline(never)]
pub fn read(call: &Call, open: &Open, to: &mut Memory, offset: Option<u64>) -> errno::Result {
    if !open.may_read() {
        return Err(Errno::EBADF);
    }
    match &open.kind {
        Kind::File | Kind::Text(_) => {
            let mut position = offset.is_none().then(|| open.position.lock());
            let start = offset.or(position.as_ref().map(|p| **p)).unwrap_or(0);
            if matches!(open.kind, Kind::File) {
                check_end(start, to.left())?;
            }
            let done = read_file(call, open, to, start)?;
            if let Some(position) = &mut position {
                **position = start + done;
            }
            if matches!(open.kind, Kind::File) && done > 0 {
                open.inode.touch_read();
            }
            Ok(done)
        }
        Kind::Dir => Err(Errno::EISDIR),
        Kind::Null => Ok(0),
        Kind::Zero | Kind::Full => by_pages(0, to.left(), |_, page| to.put(page)),
        Kind::Random => by_pages(0, to.left(), |_, page| {
            for word in page.chunks_mut(8) {
                word.copy_from_slice(&random::next().to_le_bytes()[..word.len()]);
            }
            to.put(page)
        }),
        _ if offset.is_some() => Err(Errno::ESPIPE),
        Kind::Console(_) => read_console(call, open, to),
        Kind::Pipe { reader: Some(reader), .. } => read_pipe(call, open, reader, to),
        Kind::Event(_) if to.left() < 8 => Err(Errno::EINVAL),
        Kind::Event(event) => {
            let number = open.retry(|| call.thread.is_interrupted(), || event.take())?;
            to.put_all(&number.to_le_bytes()).map(|()| 8)
        }
        Kind::Epoll(_) | Kind::Process(_) => Err(Errno::EINVAL),
        Kind::Pipe { .. } | Kind::Path => Err(Errno::EBADF),
    }
}

/// A line of what was typed, or what there is. A group in the background is
/// stopped for trying, or told that it cannot.
fn read_console(call: &Call, open: &Open, to: &mut Memory) -> errno::Result {
    let group = call.process.group();
    if console::is_background(group) {
        let info = Info { signal: SIGTTIN, code: SI_KERNEL, ..Info::default() };
        if !send::would_stop(call.thread, SIGTTIN) || table::is_orphaned(group) {
            return Err(Errno::EIO);
        }
        send::to_group(group, info);
        return Err(Restart::AsAsked.errno());
    }
    let max = to.left().min(PAGE_BYTES) as usize;
    let bytes = open.retry(|| call.thread.is_interrupted(), || terminal::take(max))?;
    to.put(&bytes).map(|nr| nr as u64)
}

fn read_file(call: &Call, open: &Open, to: &mut Memory, start: u64) -> errno::Result {
    if let Some(bytes) = open.inode.archive_bytes() {
        let part = &bytes[start.min(bytes.len() as u64) as usize..];
        let part = &part[..part.len().min(to.left() as usize)];
        let mut done = 0;
        for piece in part.chunks(TURN_BYTES as usize) {
            match to.put(piece) {
                Ok(nr) => done += nr as u64,
                Err(errno) => return settle(done, Err(errno)),
            }
            // A part of a piece: the next one would be put where the rest belongs.
            if done % TURN_BYTES > 0 {
                break;
            }
            mailbox::poll();
        }
        return Ok(done);
    }
    by_pages(start, to.left(), |at, page| {
        let nr = match &open.kind {
            Kind::Text(text) => text.read_at(at, page, || call.thread.is_to_end())?,
            _ => open.inode.read_at(at, page)?,
        };
        to.put(&page[..nr])
    })
}
