//! The file of a run: a storage in memory, whose next calls fail if a step says so. Each call ends before it returns: a run
//! has one thread, which could not end a read that it waits for.

use crate::op::PAGE;
use softfault::{FileWrite, FillError, Filling, HoleRefused, StoreRefused, WriteError, Writing};
use softfault_host::{HostFile, HostFill};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Pages of the storage.
pub(super) const NR_PAGES: u64 = 96;

/// The calls that fail.
#[derive(Clone, Copy)]
pub(super) enum Fails {
    Fill,
    Write,
    Room,
    Hole,
}

/// The storage.
pub(super) struct Storage {
    bytes: Mutex<Vec<u8>>,
    /// How many calls of each kind succeed before one fails; none fails at `u8::MAX`.
    left: [AtomicU8; 4],
}

impl Storage {
    pub(super) fn new() -> Storage {
        Storage { bytes: Mutex::default(), left: [const { AtomicU8::new(u8::MAX) }; 4] }
    }

    /// The state in which each run begins: byte 0 of page p is p + 1, and no call fails.
    pub(super) fn reset(&self) {
        let mut bytes = self.bytes();
        bytes.clear();
        bytes.resize((NR_PAGES * PAGE) as usize, 0);
        bytes.chunks_mut(PAGE as usize).enumerate().for_each(|(page, bytes)| bytes[0] = page as u8 + 1);
        self.left.iter().for_each(|left| left.store(u8::MAX, Relaxed));
    }

    /// After so many more calls of this kind one fails.
    pub(super) fn fail(&self, what: Fails, after: u8) {
        self.left[what as usize].store(after, Relaxed);
    }

    fn fails(&self, what: Fails) -> bool {
        let left = &self.left[what as usize];
        let before = left.load(Relaxed);
        if before != u8::MAX {
            left.store(before.wrapping_sub(1), Relaxed);
        }
        before == 0
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of `bytes` that a range of the storage has; bytes behind its end are missing.
fn part(bytes: &mut [u8], range: Range<u64>) -> &mut [u8] {
    let len = bytes.len();
    let at = |byte: u64| usize::try_from(byte).map_or(len, |byte| byte.min(len));
    &mut bytes[at(range.start)..at(range.end)]
}

impl HostFile for Storage {
    fn fill(&self, mut fill: HostFill<'_>) -> Filling {
        if self.fails(Fails::Fill) {
            return fill.end(Err(FillError));
        }
        let range = fill.offset_bytes()..fill.offset_bytes() + fill.len_bytes();
        let mut bytes = self.bytes();
        let from = part(&mut bytes, range);
        fill.bytes()[..from.len()].copy_from_slice(from);
        fill.end(Ok(()))
    }

    fn write_back(&self, write: FileWrite, bytes: &[u8]) -> Writing {
        if self.fails(Fails::Write) {
            return Writing::Ended(write, Err(WriteError));
        }
        let range = write.offset_bytes()..write.offset_bytes() + write.len_bytes();
        let mut storage = self.bytes();
        let to = part(&mut storage, range);
        to.copy_from_slice(&bytes[..to.len()]);
        Writing::Ended(write, Ok(()))
    }

    fn may_store(&self, _: Range<u64>) -> Result<(), StoreRefused> {
        if self.fails(Fails::Room) { Err(StoreRefused) } else { Ok(()) }
    }

    fn begin_hole(&self, bytes: Range<u64>) -> Result<(), HoleRefused> {
        if self.fails(Fails::Hole) {
            return Err(HoleRefused::NotWritten);
        }
        part(&mut self.bytes(), bytes).fill(0);
        Ok(())
    }
}
