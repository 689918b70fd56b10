//! Files of the initial archive, to be read.

use crate::errno::{self, Errno};
use core::sync::atomic::{AtomicU64, Ordering};

/// One, with the position that its readers share.
pub struct Plain {
    bytes: &'static [u8],
    at: AtomicU64,
}

impl Plain {
    /// From the beginning.
    pub fn new(bytes: &'static [u8]) -> Plain {
        Plain { bytes, at: AtomicU64::new(0) }
    }
    /// Its size.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
    /// Up to `max` bytes from `at` on.
    pub fn part(&self, at: u64, max: u64) -> &'static [u8] {
        let start = at.min(self.len());
        let end = start.saturating_add(max).min(self.len());
        &self.bytes[start as usize..end as usize]
    }
    /// Where the next read begins.
    pub fn position(&self) -> u64 {
        self.at.load(Ordering::Relaxed)
    }
    /// Moves it, as lseek(2): `whence` 0 from the start, 1 from here, 2 from the
    /// end.
    pub fn seek(&self, offset: i64, whence: u32) -> errno::Result {
        let base = match whence {
            0 => 0,
            1 => self.position(),
            2 => self.len(),
            _ => return Err(Errno::EINVAL),
        };
        let at = base.checked_add_signed(offset).filter(|at| *at <= i64::MAX as u64).ok_or(Errno::EINVAL)?;
        self.at.store(at, Ordering::Relaxed);
        Ok(at)
    }
}
