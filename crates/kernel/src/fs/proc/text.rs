//! An open generated file: its text is made when it is read from the beginning,
//! and kept for the reads that follow, so that they fit together.

use super::{Generated, Node, fixed, knobs, process};
use crate::errno::{self, Errno};
use crate::fs::sleeping::SleepingLock;
use crate::heap;
use alloc::vec::Vec;
use core::fmt;

/// Longest text: `maps` of as many mappings as there can be.
const MAX_BYTES: usize = 16 << 20;
const FIRST_BYTES: usize = 1024;

/// A text that is being written, charged to the heap.
#[derive(Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    charge: Option<heap::Charge>,
}

impl Buffer {
    /// What is in it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
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

/// An open file.
pub struct Text {
    node: Node,
    buffer: SleepingLock<Option<Buffer>>,
}

impl Text {
    /// Opens it. As in sysfs, not even root opens a mere number for writing.
    pub fn open(generated: &Generated, for_writing: bool) -> errno::Result<Text> {
        if for_writing && matches!(generated.node, Node::Fixed(fixed::Fixed { what: fixed::What::Stat(_), .. })) {
            return Err(Errno::EACCES);
        }
        Ok(Text { node: generated.node, buffer: SleepingLock::new(None) })
    }
    /// Reads from `offset` on.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> errno::Result<usize> {
        if let Node::Of(subject, of) = self.node
            && let Some(done) = of.read_raw(subject, offset, into)
        {
            return done;
        }
        let mut buffer = self.buffer.lock();
        if offset == 0 || buffer.is_none() {
            *buffer = None;
            let mut fresh = Buffer::default();
            self.fill(&mut fresh)?;
            *buffer = Some(fresh);
        }
        let bytes = buffer.as_ref().map_or(&[][..], Buffer::bytes);
        let part = &bytes[offset.min(bytes.len() as u64) as usize..];
        let nr = part.len().min(into.len());
        into[..nr].copy_from_slice(&part[..nr]);
        Ok(nr)
    }
    fn fill(&self, buffer: &mut Buffer) -> errno::Result<()> {
        match self.node {
            Node::Fixed(fixed) => fixed.write_text(buffer),
            Node::Of(subject, of) => of.write_text(subject, buffer),
            Node::FdInfo(subject, number) => process::write_fdinfo(subject, number, buffer),
            Node::Cpu | Node::Subject(_) | Node::Fd(..) => Err(Errno::EINVAL),
        }
    }
    /// Writes: a number for a knob.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> errno::Result<usize> {
        match self.node {
            Node::Fixed(fixed::Fixed { what: fixed::What::Knob(knob), .. }) => {
                knobs::set(knob, bytes)?;
                Ok(bytes.len())
            }
            // As sysfs does: each write is a value of its own, wherever it goes.
            Node::Fixed(fixed::Fixed { what: fixed::What::Setting(setting), .. }) => {
                if !bytes.is_empty() {
                    setting.set(bytes)?;
                }
                Ok(bytes.len())
            }
            Node::Of(subject, of) => of.write_raw(subject, offset, bytes),
            _ => Err(Errno::EACCES),
        }
    }
}
