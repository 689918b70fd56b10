//! The boundaries between the bytes of a pipe. A read copies all of a part or nothing of it, so no byte is lost when the reader's
//! buffer ends in the middle; a write does the same. The parts are those of Linux: pages, the last of which is filled up where
//! the odd end of a write fits; the messages of a socket.
//!
//! The owner's lock protects them.

use crate::linux::errno::{self, Errno};
use crate::port::heap;
use alloc::collections::VecDeque;

/// Bytes of a page, the largest part of a pipe.
const PAGE_BYTES: usize = 4096;
/// The largest message of a socket: what Linux puts in one buffer, eight pages and the rest of the head's.
const MESSAGE_BYTES: usize = 8 * PAGE_BYTES + 3776;
/// Parts for which there is always memory.
const NR_FIRST: usize = 16;
/// The most parts. A socket holds so many messages; the parts of a pipe become larger instead.
const MAX_PARTS: usize = 512;
/// Heap that the first parts cost, which the pipe is charged for.
pub const HEAP_BYTES: usize = NR_FIRST * size_of::<u32>();

/// The parts of one pipe.
pub struct Parts {
    /// Bytes of each, those that were read included. None is empty.
    sizes: VecDeque<u32>,
    /// Bytes of the first that were read.
    nr_read: usize,
    are_messages: bool,
    charge: Option<heap::Charge>,
}

/// The next part of a write.
#[derive(Clone, Copy)]
pub struct Next {
    /// Its size.
    pub bytes: usize,
    /// Whether it belongs to the last part that is there, if that has room.
    pub joins: bool,
}

impl Parts {
    /// None yet.
    pub fn new(are_messages: bool) -> Parts {
        Parts { sizes: VecDeque::with_capacity(NR_FIRST), nr_read: 0, are_messages, charge: None }
    }
    /// Whether they are the messages of a socket.
    pub fn are_messages(&self) -> bool {
        self.are_messages
    }
    /// Bytes of the first part that were not read.
    pub fn first(&self) -> usize {
        self.sizes.front().map_or(0, |size| *size as usize - self.nr_read)
    }
    /// Whether no more messages fit.
    pub fn is_full(&self) -> bool {
        self.are_messages && self.sizes.len() >= MAX_PARTS
    }
    /// The next part of a write that has `left` bytes to go.
    pub fn next(&self, left: usize, is_first: bool) -> Next {
        let odd = left % PAGE_BYTES;
        match self.sizes.back() {
            _ if self.are_messages => Next { bytes: left.min(MESSAGE_BYTES), joins: false },
            Some(size) if is_first && odd > 0 && *size as usize + odd <= PAGE_BYTES => Next { bytes: odd, joins: true },
            _ => Next { bytes: left.min(PAGE_BYTES), joins: false },
        }
    }
    /// Adds `bytes` at the end. They join the last part if they are to and it has room, or if there is no memory for
    /// another.
    pub fn add(&mut self, bytes: usize, joins: bool) {
        let max = if self.are_messages { MESSAGE_BYTES } else { PAGE_BYTES };
        let has_room = self.reserve().is_ok();
        match self.sizes.back_mut() {
            Some(last) if !has_room || joins && *last as usize + bytes <= max => *last += bytes as u32,
            _ => self.sizes.push_back(bytes as u32),
        }
    }
    /// Memory for one more.
    fn reserve(&mut self) -> errno::Result<()> {
        if self.sizes.len() < NR_FIRST.max(self.sizes.capacity()) {
            return Ok(());
        }
        if self.sizes.len() >= MAX_PARTS {
            return Err(Errno::ENOMEM);
        }
        let charge = heap::charge(MAX_PARTS * size_of::<u32>())?;
        let more = MAX_PARTS - self.sizes.len();
        self.sizes.try_reserve_exact(more).map_err(|_| Errno::ENOMEM)?;
        self.charge = Some(charge);
        Ok(())
    }
    /// All bytes were given up.
    pub fn clear(&mut self) {
        self.sizes.clear();
        self.nr_read = 0;
    }
    /// `bytes` of the first part were read.
    pub fn read(&mut self, bytes: usize) {
        self.nr_read += bytes;
        if self.sizes.front().is_some_and(|size| *size as usize <= self.nr_read) {
            self.sizes.pop_front();
            self.nr_read = 0;
        }
    }
}
