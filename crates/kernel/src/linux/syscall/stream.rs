//! Pipes, and sockets, which are pipes of messages: bytes are moved part by part
//! (file/parts.rs). A part that the program's memory ends in is moved not at all.

use super::buffer::{Memory, PAGE_BYTES, settle};
use super::call::Call;
use crate::linux::errno::{self, Errno};
use crate::linux::file::Open;
use crate::linux::file::pipe::{Reader, Reading, Writer};
use crate::linux::signal::{Info, send};
use linux_raw_sys::general::SIGPIPE;

/// Writes all of `from`, unless something is refused or the program's memory ends.
pub fn write_pipe(call: &Call, open: &Open, writer: &Writer, from: &mut Memory) -> errno::Result {
    let mut done = 0;
    let mut result = if from.left() == 0 { writer.check_nothing() } else { Ok(()) };
    while result.is_ok() && from.left() > 0 {
        result = write_part(call, open, writer, from, &mut done);
    }
    if result == Err(Errno::EPIPE) {
        let info = Info::sent(SIGPIPE, 0, call.process.pid);
        send::to_thread(&crate::linux::process::thread::current(), info);
    }
    settle(done, result)
}

/// Writes the next part: piece by piece, each wholly or, if not all of it can be read from the program, not at all. As on Linux
/// a pipe without readers, or without room, is told of before that.
fn write_part(call: &Call, open: &Open, writer: &Writer, from: &mut Memory, done: &mut u64) -> errno::Result<()> {
    let is_interrupted = || call.thread.is_interrupted();
    let next = open.retry(is_interrupted, || writer.next(from.left() as usize, *done == 0))?;
    let mut page = [0; PAGE_BYTES as usize];
    if next.bytes > page.len() {
        from.check(next.bytes)?;
    }
    for at in (0..next.bytes).step_by(page.len()) {
        let piece = &mut page[..(next.bytes - at).min(PAGE_BYTES as usize)];
        from.take_all(piece)?;
        open.retry(is_interrupted, || writer.put(piece, next.joins || at > 0))?;
        *done += piece.len() as u64;
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
    let mut done = 0;
    while to.left() > 0 {
        // Only the first bytes are waited for.
        let reading = match done {
            0 => begin_pipe(call, open, reader)?,
            _ => match reader.begin() {
                Ok(reading) => reading,
                Err(_) => break,
            },
        };
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
