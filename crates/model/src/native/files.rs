//! The files of a sequence: memfds of this process's kernel, which its forks have, too.
//!
//! N4 holds here: nothing is allocated.

use super::{call, plain};
use crate::op::{Call, FILE_END, FILE_PAGES, FILE_WORD_AT, NR_FILES, Op, Outcome, PAGE, file_word};
use core::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// Their descriptors; none is -1.
pub(super) struct Files([AtomicI64; NR_FILES]);

impl Default for Files {
    fn default() -> Files {
        Files(core::array::from_fn(|_| AtomicI64::new(-1)))
    }
}

impl Files {
    /// The descriptor, as an argument.
    pub(super) fn get(&self, file: u64) -> u64 {
        self.0.get(file as usize).map_or(u64::MAX, |descriptor| descriptor.load(Relaxed) as u64)
    }

    pub(super) fn close(&self) {
        for file in &self.0 {
            let descriptor = file.swap(-1, Relaxed);
            if descriptor >= 0 {
                call(libc::SYS_close, [descriptor as u64, 0, 0, 0, 0, 0]);
            }
        }
    }

    pub(super) fn make(&self) -> Outcome {
        self.close();
        for file in &self.0 {
            let made = call(libc::SYS_memfd_create, [c"softfault".as_ptr() as u64, 0, 0, 0, 0, 0]);
            let sized = call(libc::SYS_ftruncate, [made as u64, FILE_PAGES * PAGE, 0, 0, 0, 0]);
            if made < 0 || sized < 0 {
                return plain(made.min(sized));
            }
            file.store(made, Relaxed);
        }
        for page in 0..FILE_PAGES {
            let word = file_word(page);
            let at = page * PAGE + FILE_WORD_AT;
            let written = call(libc::SYS_pwrite64, [self.get(1), (&raw const word) as u64, 8, at, 0, 0]);
            if written != 8 {
                return Outcome::Broken(5);
            }
        }
        Outcome::Value(0)
    }

    /// A step about one of them.
    pub(super) fn step(&self, op: &Op) -> Outcome {
        let [a, b, c, ..] = op.args;
        let file = self.get(a);
        let byte = c as u8;
        match op.call {
            Call::FileSize => plain(call(libc::SYS_ftruncate, [file, b, 0, 0, 0, 0])),
            Call::FilePunch => punch(file, b, c),
            Call::FileRead => read_byte(file, b),
            Call::FileWrite => match call(libc::SYS_pwrite64, [file, (&raw const byte) as u64, 1, b, 0, 0]) {
                1 => Outcome::Value(0),
                other => plain(other),
            },
            _ => Outcome::Broken(4),
        }
    }
}

/// Makes a hole of so many pages.
pub(super) fn punch(file: u64, first: u64, nr_pages: u64) -> Outcome {
    let mode = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u64;
    plain(call(libc::SYS_fallocate, [file, mode, first * PAGE, nr_pages * PAGE, 0, 0]))
}

/// Reads the byte at an offset.
pub(super) fn read_byte(file: u64, at: u64) -> Outcome {
    let mut byte = 0u8;
    match call(libc::SYS_pread64, [file, (&raw mut byte) as u64, 1, at, 0, 0]) {
        0 => Outcome::Value(FILE_END),
        1 => Outcome::Value(u64::from(byte)),
        other => plain(other),
    }
}
