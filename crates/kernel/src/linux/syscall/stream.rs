//! Pipes, and sockets, which are pipes of messages: bytes are moved part by part
//! (file/parts.rs). A part that the program's memory ends in is moved not at all.

use super::buffer::{Memory, PAGE_BYTES, settle};
use super::call::Call;
use crate::linux::errno::{self, Errno};
use crate::linux::file::Open;
use crate::linux::file::pipe::{Reader, Reading, Writer, Writing};
use crate::linux::signal::{Info, send};
use linux_raw_sys::general::SIGPIPE;

/// Writes all of `from`, unless something is refused or the program's memory ends.
pub fn write_pipe(call: &Call, open: &Open, writer: &Writer, from: &mut Memory) -> errno::Result {
    let (mut done, mut writing) = (0, None);
    let mut result = if from.left() == 0 { writer.check_nothing() } else { Ok(()) };
    while result.is_ok() && from.left() > 0 {
        result = write_part(call, open, writer, &mut writing, from, &mut done);
    }
    drop(writing);
    if result == Err(Errno::EPIPE) {
        let info = Info::sent(SIGPIPE, 0, call.process.pid);
        send::to_thread(&crate::linux::process::thread::current(), info);
    }
    settle(done, result)
}

/// Writes the next part, wholly or, if not all of it can be read from the program, not at all. As on Linux
/// a pipe without readers, or without room, is told of before that. The turn is begun if it is not, and given up while
/// there is no room.
fn write_part<'a>(
    call: &Call,
    open: &Open,
    writer: &'a Writer,
    writing: &mut Option<Writing<'a>>,
    from: &mut Memory,
    done: &mut u64,
) -> errno::Result<()> {
    let (left, is_first) = (from.left() as usize, *done == 0);
    let turn = writing.get_or_insert_with(|| writer.begin());
    let next = match turn.next(left, is_first) {
        Err(Errno::EAGAIN) => {
            *writing = None;
            return open.retry(|| call.thread.is_interrupted(), || writer.check_room(left, is_first));
        }
        next => next?,
    };
    if let Err(errno) = stage(turn, next.bytes, from) {
        turn.discard();
        return Err(errno);
    }
    turn.complete(next.joins);
    *done += next.bytes as u64;
    Ok(())
}

/// Puts the bytes of a part in, piece by piece.
fn stage(writing: &Writing, bytes: usize, from: &mut Memory) -> errno::Result<()> {
    let mut page = [0; PAGE_BYTES as usize];
    if bytes > page.len() {
        from.check(bytes)?;
    }
    for at in (0..bytes).step_by(page.len()) {
        let piece = &mut page[..(bytes - at).min(PAGE_BYTES as usize)];
        from.take_all(piece)?;
        writing.stage(piece)?;
    }
    Ok(())
}

/// Waits for the first bytes; nothing at the end.
fn begin_pipe<'a>(call: &Call, open: &Open, reader: &'a Reader) -> errno::Result<Reading<'a>> {
    loop {
        open.retry(|| call.thread.is_interrupted(), || reader.check_filled())?;
        match reader.begin() {
            // Another thread was faster.
            Err(Errno::EAGAIN) => {}
            reading => return reading,
        }
    }
}

/// Reads part by part, each wholly or not at all: what the program has no memory for stays.
pub fn read_pipe(call: &Call, open: &Open, reader: &Reader, to: &mut Memory) -> errno::Result {
    if to.left() == 0 {
        return Ok(0);
    }
    // Only the first bytes are waited for.
    let reading = begin_pipe(call, open, reader)?;
    let mut done = 0;
    while to.left() > 0 {
        let nr = to.left().min(reading.len() as u64) as usize;
        if nr == 0 {
            break;
        }
        if let Err(errno) = read_part(&reading, nr, to) {
            return settle(done, Err(errno));
        }
        reading.take(nr);
        done += nr as u64;
    }
    Ok(done)
}

/// Copies the first bytes of a part.
fn read_part(reading: &Reading, nr: usize, to: &mut Memory) -> errno::Result<()> {
    let mut page = [0; PAGE_BYTES as usize];
    for at in (0..nr).step_by(page.len()) {
        let piece = &mut page[..(nr - at).min(PAGE_BYTES as usize)];
        reading.copy(at, piece);
        to.put_all(piece)?;
    }
    Ok(())
}
