//! Pipes: bytes on the kernel's heap between those who write and those who
//! read. With a name (a FIFO) or without.

use super::bell::Bell;
use super::ready::Ready;
use crate::linux::errno::{self, Errno};
use crate::port::heap;
use crate::port::sync::SpinLock;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

/// Heap that a pipe costs, with its first bytes: a small write never fails for
/// want of memory.
const HEAP_BYTES: usize = 320 + LEAST_CAPACITY;
/// Bytes that a pipe holds unless it is told otherwise.
const CAPACITY: usize = 65_536;
/// The least that it can be told.
const LEAST_CAPACITY: usize = 4096;
/// And the most.
pub const MAX_CAPACITY: usize = 1 << 20;
/// Writes up to this size are not mixed with others (PIPE_BUF).
const ATOMIC_BYTES: usize = 4096;

struct State {
    bytes: VecDeque<u8>,
    /// For the memory of `bytes`.
    charge: Option<heap::Charge>,
    capacity: usize,
    nr_readers: u32,
    nr_writers: u32,
    /// Ends of either kind that were ever opened: an open of a FIFO waits for the
    /// other's to grow.
    nr_opened: [u64; 2],
}

/// The readers and writers of a pipe when it is opened.
#[derive(Clone, Copy)]
pub struct Seen {
    /// Ends that are open.
    pub nr_ends: [u32; 2],
    /// Ends that ever were.
    pub nr_opened: [u64; 2],
}

/// One pipe.
pub struct Pipe {
    state: SpinLock<State>,
    /// Made with a name.
    pub is_fifo: bool,
    /// Rings when there are bytes, or who writes them has come or gone.
    filled: Arc<Bell>,
    /// Rings when there is room, or who reads has come or gone.
    emptied: Arc<Bell>,
    _charge: heap::Charge,
}

/// The end that is read.
pub struct Reader(Arc<Pipe>);

/// The end that is written.
pub struct Writer(Arc<Pipe>);

impl Pipe {
    /// One with a name: opening one end waits for the other.
    pub fn fifo() -> errno::Result<Arc<Pipe>> {
        Pipe::new(true)
    }
    /// One without.
    pub fn nameless() -> errno::Result<Arc<Pipe>> {
        Pipe::new(false)
    }
    /// With no ends.
    fn new(is_fifo: bool) -> errno::Result<Arc<Pipe>> {
        let state = State {
            bytes: VecDeque::new(),
            charge: None,
            capacity: CAPACITY,
            nr_readers: 0,
            nr_writers: 0,
            nr_opened: [0; 2],
        };
        let charge = heap::charge(HEAP_BYTES)?;
        let [filled, emptied] = [(); 2].map(|()| Arc::new(Bell::new()));
        Ok(Arc::new(Pipe { state: SpinLock::new(state), is_fifo, filled, emptied, _charge: charge }))
    }
    /// Opens one end or both, and says who was there at that moment.
    pub fn open(self: &Arc<Pipe>, reads: bool, writes: bool) -> (Option<Reader>, Option<Writer>, Seen) {
        let seen = {
            let mut state = self.state.lock();
            let seen = Seen { nr_ends: [state.nr_readers, state.nr_writers], nr_opened: state.nr_opened };
            state.nr_readers += u32::from(reads);
            state.nr_writers += u32::from(writes);
            state.nr_opened[0] += u64::from(reads);
            state.nr_opened[1] += u64::from(writes);
            seen
        };
        self.ring_both();
        (reads.then(|| Reader(self.clone())), writes.then(|| Writer(self.clone())), seen)
    }
    fn ring_both(&self) {
        self.filled.ring();
        self.emptied.ring();
    }
    /// The bell that readers wait for.
    pub fn bell_of_readers(&self) -> &Arc<Bell> {
        &self.filled
    }
    /// The bell that writers wait for.
    pub fn bell_of_writers(&self) -> &Arc<Bell> {
        &self.emptied
    }
    /// How many were ever opened.
    pub fn nr_opened(&self) -> [u64; 2] {
        self.state.lock().nr_opened
    }
    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.state.lock().bytes.len()
    }
    /// How many it holds.
    pub fn capacity(&self) -> usize {
        self.state.lock().capacity
    }
    /// Makes it hold so many, rounded up to pages; EBUSY if there are more.
    pub fn set_capacity(&self, bytes: usize) -> errno::Result {
        if bytes > MAX_CAPACITY {
            return Err(Errno::EPERM);
        }
        let capacity = bytes.max(LEAST_CAPACITY).next_power_of_two();
        let mut state = self.state.lock();
        if state.bytes.len() > capacity {
            return Err(Errno::EBUSY);
        }
        state.capacity = capacity;
        drop(state);
        self.emptied.ring();
        Ok(capacity as u64)
    }
}

impl State {
    /// Memory for `nr` more bytes; what a pipe begins with is charged already.
    fn reserve(&mut self, nr: usize) -> errno::Result<()> {
        let wanted = self.bytes.len() + nr;
        if wanted <= self.bytes.capacity() {
            return Ok(());
        }
        let bytes = wanted.next_power_of_two().max(LEAST_CAPACITY);
        let charge = if bytes == LEAST_CAPACITY { None } else { Some(heap::charge(bytes)?) };
        self.bytes.try_reserve_exact(bytes - self.bytes.len()).map_err(|_| Errno::ENOMEM)?;
        self.charge = charge;
        Ok(())
    }
    /// Bytes that can be put in now, of `wanted`. Where the heap has no more, a
    /// pipe holds less than it may.
    fn room(&mut self, wanted: usize) -> errno::Result<usize> {
        let nr = wanted.min(self.capacity.saturating_sub(self.bytes.len()));
        if self.reserve(nr).is_ok() {
            return Ok(nr);
        }
        let least = LEAST_CAPACITY.saturating_sub(self.bytes.len());
        self.reserve(least)?;
        Ok(nr.min(self.bytes.capacity() - self.bytes.len()))
    }
    fn take(&mut self, into: &mut [u8]) -> errno::Result<usize> {
        if self.bytes.is_empty() && self.nr_writers > 0 && !into.is_empty() {
            return Err(Errno::EAGAIN);
        }
        let nr = into.len().min(self.bytes.len());
        let (front, back) = self.bytes.as_slices();
        let first = nr.min(front.len());
        into[..first].copy_from_slice(&front[..first]);
        into[first..nr].copy_from_slice(&back[..nr - first]);
        self.bytes.drain(..nr);
        Ok(nr)
    }
    fn put(&mut self, bytes: &[u8]) -> errno::Result<usize> {
        if self.nr_readers == 0 {
            return Err(Errno::EPIPE);
        }
        let nr = self.room(bytes.len())?;
        if nr < bytes.len() && (nr == 0 || bytes.len() <= ATOMIC_BYTES) {
            return Err(Errno::EAGAIN);
        }
        self.bytes.extend(&bytes[..nr]);
        Ok(nr)
    }
}

impl Reader {
    /// The pipe.
    pub fn pipe(&self) -> &Arc<Pipe> {
        &self.0
    }
    /// Takes bytes out; none at the end; EAGAIN if there may be some later.
    pub fn take(&self, into: &mut [u8]) -> errno::Result<usize> {
        let nr = self.0.state.lock().take(into)?;
        if nr > 0 {
            self.0.emptied.ring();
        }
        Ok(nr)
    }
    /// The directions it is ready for.
    pub fn ready(&self) -> Ready {
        let state = self.0.state.lock();
        let data = if state.bytes.is_empty() { Ready::empty() } else { Ready::IN };
        data | if state.nr_writers > 0 { Ready::empty() } else { Ready::HUP }
    }
}

impl Writer {
    /// The pipe.
    pub fn pipe(&self) -> &Arc<Pipe> {
        &self.0
    }
    /// Puts in what fits, a small part wholly or not at all; how many bytes.
    pub fn put(&self, bytes: &[u8]) -> errno::Result<usize> {
        let nr = self.0.state.lock().put(bytes)?;
        self.0.filled.ring();
        Ok(nr)
    }
    /// The directions it is ready for.
    pub fn ready(&self) -> Ready {
        let state = self.0.state.lock();
        let has_room = state.capacity.saturating_sub(state.bytes.len()) >= ATOMIC_BYTES;
        let room = if has_room { Ready::OUT } else { Ready::empty() };
        room | if state.nr_readers > 0 { Ready::empty() } else { Ready::ERR }
    }
}

/// Bytes that nobody can read any more are given up; what held them.
fn emptied(state: &mut State) -> Option<(VecDeque<u8>, Option<heap::Charge>)> {
    let unused = state.nr_readers == 0 && state.nr_writers == 0;
    unused.then(|| (core::mem::take(&mut state.bytes), state.charge.take()))
}

impl Drop for Reader {
    fn drop(&mut self) {
        let gone = {
            let mut state = self.0.state.lock();
            state.nr_readers -= 1;
            emptied(&mut state)
        };
        drop(gone);
        self.0.ring_both();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let gone = {
            let mut state = self.0.state.lock();
            state.nr_writers -= 1;
            emptied(&mut state)
        };
        drop(gone);
        self.0.ring_both();
    }
}
