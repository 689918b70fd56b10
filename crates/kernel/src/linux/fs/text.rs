//! An open generated file: its text is made when it is read from the beginning,
//! and kept for the reads that follow, so that they fit together. A text about each
//! mapping is made as far as it is read, since there may be many and most readers
//! look at the first.

use super::buffer::Buffer;
use super::inode::generated::{Generated, Node};
use crate::linux::errno::{self, Errno};
use crate::port::sched::sleeping::SleepingLock;

/// Of a text that is made in parts, so much at a time.
const PART_BYTES: usize = 4096;

/// The part of a text that is kept.
#[derive(Default)]
struct Kept {
    buffer: Buffer,
    /// Where it begins in the text.
    start: u64,
    /// Where the part behind it begins, in terms of the node.
    next: Option<u64>,
}

impl Kept {
    /// Where it ends in the text.
    fn end(&self) -> u64 {
        self.start + self.buffer.bytes().len() as u64
    }
    /// Copies what it has from `offset` on, which is not before it.
    fn copy(&self, offset: u64, into: &mut [u8]) -> usize {
        let bytes = self.buffer.bytes();
        let part = &bytes[(offset - self.start).min(bytes.len() as u64) as usize..];
        let nr = part.len().min(into.len());
        into[..nr].copy_from_slice(&part[..nr]);
        nr
    }
}

/// An open file.
pub struct Text {
    node: Node,
    kept: SleepingLock<Option<Kept>>,
}

impl Text {
    /// Opens it. As in sysfs, not even root opens a mere number for writing.
    pub fn open(generated: &Generated, for_writing: bool) -> errno::Result<Text> {
        if for_writing && generated.node.refuses_writers() {
            return Err(Errno::EACCES);
        }
        Ok(Text { node: generated.node.clone(), kept: SleepingLock::new(None) })
    }
    /// Reads from `offset` on. EINTR if the reader `is_to_end` before its part is made.
    pub fn read_at(&self, offset: u64, into: &mut [u8], is_to_end: impl Fn() -> bool) -> errno::Result<usize> {
        if let Some(done) = self.node.read_at(offset, into) {
            return done;
        }
        let mut slot = self.kept.lock();
        let again = slot.take().filter(|kept| offset > 0 && offset >= kept.start);
        let mut kept = match again {
            Some(kept) => kept,
            None => {
                let mut first = Kept::default();
                self.fill(0, &mut first)?;
                first
            }
        };
        while offset >= kept.end()
            && let Some(from) = kept.next
        {
            if is_to_end() {
                return Err(Errno::EINTR);
            }
            kept.start = kept.end();
            kept.buffer.cut(0);
            self.fill(from, &mut kept)?;
        }
        let done = kept.copy(offset, into);
        *slot = Some(kept);
        Ok(done)
    }
    /// Writes the part that begins at `from`: as many whole mappings as there is room for, and
    /// one at least; or all of a text that is made at once. As on Linux a read gives no more
    /// than a part, and programs stop at a read that gives less than they asked for.
    fn fill(&self, from: u64, kept: &mut Kept) -> errno::Result<()> {
        let Kept { buffer, next, .. } = kept;
        *next = Some(from);
        while let Some(from) = *next {
            crate::port::mailbox::poll();
            let before = buffer.bytes().len();
            let behind = self.node.write_text(from, buffer)?;
            if before > 0 && buffer.bytes().len() > PART_BYTES {
                buffer.cut(before);
                break;
            }
            *next = behind;
        }
        Ok(())
    }
    /// Writes.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> errno::Result<usize> {
        self.node.write_at(offset, bytes)
    }
}
