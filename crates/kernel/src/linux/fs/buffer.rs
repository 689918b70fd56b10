//! A text that is being written: what a generated file gives is made in one.

use crate::linux::errno::{self, Errno};
use crate::port::heap;
use alloc::vec::Vec;
use core::fmt;

/// Longest text that is made at once.
const MAX_BYTES: usize = 16 << 20;
const FIRST_BYTES: usize = 1024;

/// A text that is being written, charged to the heap.
#[derive(Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    charge: Option<heap::Charge>,
}

impl Buffer {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
    /// Forgets all but the first bytes, and keeps the room.
    pub fn cut(&mut self, len: usize) {
        self.bytes.truncate(len);
    }
    /// Appends bytes that need not be text.
    pub fn push(&mut self, bytes: &[u8]) -> errno::Result<()> {
        let wanted = self.bytes.len() + bytes.len();
        if wanted > MAX_BYTES {
            return Err(Errno::ENOMEM);
        }
        if wanted > self.bytes.capacity() {
            let capacity = wanted.next_power_of_two().max(FIRST_BYTES);
            let charge = heap::charge(capacity)?;
            self.bytes.try_reserve_exact(capacity - self.bytes.len()).map_err(|_| Errno::ENOMEM)?;
            self.charge = Some(charge);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

impl fmt::Write for Buffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes()).map_err(|_| fmt::Error)
    }
}
