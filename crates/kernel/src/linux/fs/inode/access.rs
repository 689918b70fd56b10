//! Who writes a file, and who runs the program in it: never both at a time. open(2) for writing and truncate(2) of a
//! program that runs, and execve(2) of a file that is open for writing, fail with ETXTBSY.
//!
//! It could fail in three ways. Two that come at the same time could both succeed: one word has both numbers, and a
//! step looks and counts in one. A call that fails later could leave its step behind: a guard takes it back. One of
//! several that have it could take it back for all: each copy of an open file's number shares its guard, each copy of a
//! memory has one. `othercalls.c` asks for all three.
//!
//! Unlike Linux's, a mapping of a file that was open for writing does not count once the file is closed. No lock is
//! held on entry.

use super::Inode;
use crate::linux::errno::{self, Errno};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicI64, Ordering};

/// Writers, or, below zero, memories that run it.
#[derive(Default)]
pub struct Access(AtomicI64);

impl Access {
    fn enter(&self, step: i64) -> errno::Result<()> {
        let add = |now: i64| (now * step >= 0).then_some(now + step);
        let entered = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        entered.map(|_| ()).map_err(|_| Errno::ETXTBSY)
    }
    fn leave(&self, step: i64) {
        self.0.fetch_sub(step, Ordering::AcqRel);
    }
}

/// A file that is written.
pub struct Writing(Arc<Inode>);

impl Writing {
    /// ETXTBSY if it is run.
    pub fn of(inode: &Arc<Inode>) -> errno::Result<Writing> {
        inode.access.enter(1)?;
        Ok(Writing(inode.clone()))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.access.leave(1);
    }
}

/// A file whose program is run.
pub struct Running(Arc<Inode>);

impl Running {
    /// ETXTBSY if it is written.
    pub fn of(inode: &Arc<Inode>) -> errno::Result<Running> {
        inode.access.enter(-1)?;
        Ok(Running(inode.clone()))
    }
    /// For a copy of the memory.
    pub fn again(&self) -> Running {
        self.0.access.leave(1);
        Running(self.0.clone())
    }
    /// The file.
    pub fn inode(&self) -> &Arc<Inode> {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.access.leave(-1);
    }
}
