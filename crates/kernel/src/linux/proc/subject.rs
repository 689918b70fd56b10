//! The process that a file of `/proc/PID` is about, by its number: no such file keeps one.
//!
//! No lock is held on entry.

use crate::linux::errno::{self, Errno};
use crate::linux::file::Open;
use crate::linux::process::{self, Process};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A process, or one of its threads.
#[derive(Clone, Copy)]
pub struct Subject {
    /// Its number.
    pub(super) pid: u32,
    /// The thread that is meant, if one is.
    pub(super) tid: Option<u32>,
}

impl Subject {
    /// The process of that number, if there is one.
    pub(super) fn named(text: &str) -> Option<Subject> {
        let pid = text.parse().ok().filter(|_| !text.starts_with(['+', '0']))?;
        process::find(pid).map(|_| Subject { pid, tid: None })
    }
    /// ESRCH once it is gone.
    pub(super) fn process(self) -> errno::Result<Arc<Process>> {
        process::find(self.pid).ok_or(Errno::ESRCH)
    }
    /// The number of the thread that is meant, else the process's.
    pub(super) fn number(self) -> u32 {
        self.tid.unwrap_or(self.pid)
    }
    /// The open file behind a number.
    pub(super) fn open(self, number: u32) -> errno::Result<Arc<Open>> {
        self.process()?.files.lock().get(number).map_err(|_| Errno::ENOENT)
    }
    /// The numbers of its open files.
    pub(super) fn numbers(self) -> Vec<u32> {
        let Ok(process) = self.process() else { return Vec::new() };
        let files = process.files.lock();
        files.numbers(0).collect()
    }
}
