//! Pipes: bytes on the kernel's heap between those who write and those who
//! read. With a name (a FIFO) or without.
//!
//! As on Linux a read, and a write as far as there is room, is one step beside others: one thread at a time has the turn
//! ([`Reader::begin`], [`Writer::begin`]). A reader copies bytes out and then gives them up, so that one whose memory ends
//! first loses none. The bytes of a part that a writer has not completed are at the end, and nobody counts them.
//!
//! It could fail in three ways. Another reader could come between two parts of a read: the turn ends with the call. Another
//! writer could come between two pieces of a part, or a reader see the first of them: as the turn, and since bytes count with
//! their part. A thread could wait for bytes or room with the turn, which nobody could make then: it gives the turn up first.
//! `pipes.c` asks for all three.

use super::bell::Bell;
use super::parts::{self, Next, Parts};
use super::ready::Ready;
use crate::linux::errno::{self, Errno};
use crate::port::heap;
use crate::port::sched::sleeping::{RawSleeping, SleepingLock};
use crate::port::sync::SpinLock;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::cell::Cell;
use lock_api::MutexGuard;

/// Heap that a pipe costs, with its first bytes: a small write never fails for
/// want of memory.
const HEAP_BYTES: usize = 384 + LEAST_CAPACITY + parts::HEAP_BYTES;
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
    /// The last of them that belong to no part yet.
    nr_staged: usize,
    parts: Parts,
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
    /// The turn to read, to write or to change the capacity. A holder may sleep for memory, but not for this pipe.
    turn: SleepingLock<()>,
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
        Pipe::new(true, false)
    }
    /// One without.
    pub fn nameless() -> errno::Result<Arc<Pipe>> {
        Pipe::new(false, false)
    }
    /// One direction of a pair of sockets.
    pub fn of_socket() -> errno::Result<Arc<Pipe>> {
        Pipe::new(false, true)
    }
    /// With no ends.
    fn new(is_fifo: bool, is_socket: bool) -> errno::Result<Arc<Pipe>> {
        let charge = heap::charge(HEAP_BYTES)?;
        let state = State {
            bytes: VecDeque::new(),
            nr_staged: 0,
            parts: Parts::new(is_socket),
            charge: None,
            capacity: CAPACITY,
            nr_readers: 0,
            nr_writers: 0,
            nr_opened: [0; 2],
        };
        let [filled, emptied] = [(); 2].map(|()| Arc::new(Bell::new()));
        let (state, turn) = (SpinLock::new(state), SleepingLock::new(()));
        Ok(Arc::new(Pipe { state, turn, is_fifo, filled, emptied, _charge: charge }))
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
        self.state.lock().len()
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
        let _turn = self.turn.lock();
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
    /// Bytes that can be read.
    fn len(&self) -> usize {
        self.bytes.len() - self.nr_staged
    }
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
    /// Bytes that there is memory for, of `wanted`. Where the heap has no more, a
    /// pipe holds less than it may.
    fn room(&mut self, wanted: usize) -> errno::Result<usize> {
        if self.reserve(wanted).is_ok() {
            return Ok(wanted);
        }
        let least = LEAST_CAPACITY.saturating_sub(self.bytes.len());
        self.reserve(least)?;
        Ok(wanted.min(self.bytes.capacity() - self.bytes.len()))
    }
    /// EAGAIN if a reader has to wait.
    fn check_filled(&self) -> errno::Result<()> {
        if self.len() == 0 && self.nr_writers > 0 { Err(Errno::EAGAIN) } else { Ok(()) }
    }
    /// Copies bytes of the first part out, from `start` on; they stay.
    fn copy(&self, start: usize, into: &mut [u8]) {
        let (front, back) = self.bytes.as_slices();
        let split = front.len().saturating_sub(start).min(into.len());
        into[..split].copy_from_slice(&front[start.min(front.len())..][..split]);
        let rest = into.len() - split;
        into[split..].copy_from_slice(&back[(start + split).saturating_sub(front.len())..][..rest]);
    }
    /// The part that a writer of `left` bytes puts in next. EPIPE, or EAGAIN if there is no room for its first page. A
    /// message that has begun below the capacity may end above it; it is cut only where the heap has no more.
    fn next(&mut self, left: usize, is_first: bool) -> errno::Result<Next> {
        let next = self.parts.next(left, is_first);
        if self.nr_readers == 0 {
            return Err(Errno::EPIPE);
        }
        let page = next.bytes.min(ATOMIC_BYTES);
        if self.parts.is_full() || self.capacity.saturating_sub(self.bytes.len()) < page {
            return Err(Errno::EAGAIN);
        }
        let bytes = self.room(next.bytes)?;
        if bytes < page { Err(Errno::EAGAIN) } else { Ok(Next { bytes, ..next }) }
    }
}

impl Reader {
    /// The pipe.
    pub fn pipe(&self) -> &Arc<Pipe> {
        &self.0
    }
    /// EAGAIN if there may be bytes later.
    pub fn check_filled(&self) -> errno::Result<()> {
        self.0.state.lock().check_filled()
    }
    /// Begins to read. Sleeps while another thread has the turn. EAGAIN if that one left nothing.
    pub fn begin(&self) -> errno::Result<Reading<'_>> {
        let turn = Turn::of(&self.0, &self.0.emptied);
        self.check_filled()?;
        Ok(Reading(turn))
    }
    /// The directions it is ready for.
    pub fn ready(&self) -> Ready {
        let state = self.0.state.lock();
        let data = if state.len() == 0 { Ready::empty() } else { Ready::IN };
        data | if state.nr_writers > 0 { Ready::empty() } else { Ready::HUP }
    }
}

/// The turn of one thread. Its end wakes those who wait for what it has done.
struct Turn<'a> {
    pipe: &'a Pipe,
    bell: &'a Bell,
    has_changed: Cell<bool>,
    lock: Option<MutexGuard<'a, RawSleeping, ()>>,
}

impl<'a> Turn<'a> {
    fn of(pipe: &'a Pipe, bell: &'a Bell) -> Turn<'a> {
        Turn { pipe, bell, has_changed: Cell::new(false), lock: Some(pipe.turn.lock()) }
    }
    fn change(&self, f: impl FnOnce(&mut State)) {
        f(&mut self.pipe.state.lock());
        self.has_changed.set(true);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.lock = None;
        if self.has_changed.get() {
            self.bell.ring();
        }
    }
}

/// The right to take bytes out.
pub struct Reading<'a>(Turn<'a>);

impl Reading<'_> {
    /// Bytes of the first part; none at the end.
    pub fn len(&self) -> usize {
        self.0.pipe.state.lock().parts.first()
    }
    /// Copies bytes of the first part out, from `start` on.
    pub fn copy(&self, start: usize, into: &mut [u8]) {
        self.0.pipe.state.lock().copy(start, into);
    }
    /// Takes bytes of the first part out that were copied.
    pub fn take(&self, nr: usize) {
        self.0.change(|state| {
            state.bytes.drain(..nr);
            state.parts.read(nr);
        });
    }
}

/// The right to put bytes in.
pub struct Writing<'a>(Turn<'a>);

impl Writing<'_> {
    /// The part of `left` bytes that goes in next, `is_first` of its write: there is room for it, as long as the turn lasts.
    /// EAGAIN if there is none.
    pub fn next(&self, left: usize, is_first: bool) -> errno::Result<Next> {
        self.0.pipe.state.lock().next(left, is_first)
    }
    /// Puts bytes of the next part in. They count with the part.
    pub fn stage(&self, bytes: &[u8]) -> errno::Result<()> {
        let mut state = self.0.pipe.state.lock();
        if state.nr_readers == 0 {
            return Err(Errno::EPIPE);
        }
        state.bytes.extend(bytes);
        state.nr_staged += bytes.len();
        Ok(())
    }
    /// The part is complete; it goes into the last part if it `joins` that.
    pub fn complete(&self, joins: bool) {
        self.0.change(|state| {
            let nr = core::mem::take(&mut state.nr_staged);
            state.parts.add(nr, joins);
        });
    }
    /// Takes the bytes of a part back that is not to be completed. Others may have waited for their room.
    pub fn discard(&self) {
        let mut state = self.0.pipe.state.lock();
        let nr = state.len();
        state.bytes.truncate(nr);
        let nr_taken_back = core::mem::take(&mut state.nr_staged);
        drop(state);
        if nr_taken_back > 0 {
            self.0.pipe.emptied.ring();
        }
    }
}

impl Writer {
    /// The pipe.
    pub fn pipe(&self) -> &Arc<Pipe> {
        &self.0
    }
    /// EAGAIN as long as there is no room for the next part of `left` bytes, `is_first` of its write.
    pub fn check_room(&self, left: usize, is_first: bool) -> errno::Result<()> {
        self.0.state.lock().next(left, is_first).map(|_| ())
    }
    /// Begins to write. Sleeps while another thread has the turn.
    pub fn begin(&self) -> Writing<'_> {
        Writing(Turn::of(&self.0, &self.0.filled))
    }
    /// Whether nothing can be written: a socket without its other end refuses that, too.
    pub fn check_nothing(&self) -> errno::Result<()> {
        let state = self.0.state.lock();
        if state.nr_readers == 0 && state.parts.are_messages() { Err(Errno::EPIPE) } else { Ok(()) }
    }
    /// The directions it is ready for.
    pub fn ready(&self) -> Ready {
        let state = self.0.state.lock();
        let has_room = state.capacity.saturating_sub(state.bytes.len()) >= ATOMIC_BYTES && !state.parts.is_full();
        let room = if has_room { Ready::OUT } else { Ready::empty() };
        room | if state.nr_readers > 0 { Ready::empty() } else { Ready::ERR }
    }
}

/// Bytes that nobody can read any more are given up; what held them.
fn emptied(state: &mut State) -> Option<(VecDeque<u8>, Option<heap::Charge>)> {
    let unused = state.nr_readers == 0 && state.nr_writers == 0;
    unused.then(|| {
        state.parts.clear();
        state.nr_staged = 0;
        (core::mem::take(&mut state.bytes), state.charge.take())
    })
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
