//! Pipes.

use super::{Ready, changed};
use crate::errno::{self, Errno};
use crate::sync::SpinLock;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Bytes that a pipe holds.
const CAPACITY: usize = 65_536;
/// Writes up to this size are not mixed with others (PIPE_BUF).
const ATOMIC_BYTES: usize = 4096;

struct State {
    bytes: VecDeque<u8>,
    has_reader: bool,
    has_writer: bool,
}

type Pipe = Arc<SpinLock<State>>;

/// The end that is read.
pub struct Reader(Pipe);

/// The end that is written.
pub struct Writer(Pipe);

/// A new pipe.
pub fn pipe() -> (Reader, Writer) {
    let state = State { bytes: VecDeque::new(), has_reader: true, has_writer: true };
    let pipe = Arc::new(SpinLock::new(state));
    (Reader(pipe.clone()), Writer(pipe))
}

impl Reader {
    /// Up to `max` bytes; none at the end; EAGAIN if there may be some later.
    pub fn take(&self, max: usize) -> errno::Result<Vec<u8>> {
        let mut state = self.0.lock();
        if state.bytes.is_empty() && state.has_writer {
            return Err(Errno::EAGAIN);
        }
        let nr = max.min(state.bytes.len());
        Ok(state.bytes.drain(..nr).collect())
    }
    /// What it is ready for.
    pub fn ready(&self) -> Ready {
        let state = self.0.lock();
        let data = if state.bytes.is_empty() { Ready::empty() } else { Ready::IN };
        data | if state.has_writer { Ready::empty() } else { Ready::HUP }
    }
}

impl Writer {
    /// Puts in what fits, a small part wholly or not at all; how many bytes.
    pub fn put(&self, bytes: &[u8]) -> errno::Result {
        let mut state = self.0.lock();
        if !state.has_reader {
            return Err(Errno::EPIPE);
        }
        let room = CAPACITY - state.bytes.len();
        if room == 0 || bytes.len() <= ATOMIC_BYTES && room < bytes.len() {
            return Err(Errno::EAGAIN);
        }
        let nr = room.min(bytes.len());
        state.bytes.extend(&bytes[..nr]);
        Ok(nr as u64)
    }
    /// What it is ready for.
    pub fn ready(&self) -> Ready {
        let state = self.0.lock();
        let room = if CAPACITY - state.bytes.len() >= ATOMIC_BYTES { Ready::OUT } else { Ready::empty() };
        room | if state.has_reader { Ready::empty() } else { Ready::ERR }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.lock().has_reader = false;
        changed();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.lock().has_writer = false;
        changed();
    }
}
