//! The memory of a process, shared by its threads and, between vfork(2) and
//! execve(2), by a child's: an address space and what the program was started
//! with.
//!
//! A thread keeps the one that it runs in for as long as it lives; execve(2)
//! replaces the thread. So nobody has to look twice at which space is meant.

use crate::linux::errno;
use crate::linux::fs::inode::access::Running;
use crate::port::mm::{self, Space, USER_END};
use crate::port::sync::SpinLock;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use softfault::RssPages;

/// The program that a memory was made for; copies of the memory share it.
pub struct Program {
    /// Its path, links followed.
    pub path: String,
    /// Its name: the last part of what execve(2) was given, which may be a link or a script.
    pub name: String,
    /// Its arguments, each ended by a zero.
    pub args: Vec<u8>,
    /// Where its first stack began: arguments and environment can be found from
    /// there.
    pub first_sp: u64,
}

/// Memory and its users.
pub struct Mm {
    /// The address space.
    pub space: Arc<Space>,
    /// Its program.
    pub program: Arc<Program>,
    /// Keeps writers away from the program's file until the last thread has left.
    running: SpinLock<Option<Running>>,
    /// Threads that run in it and have not ended.
    nr_users: AtomicU32,
    /// Whether it may be dumped (PR_SET_DUMPABLE).
    pub dumpable: AtomicBool,
    /// The largest number of resident pages that was observed.
    peak_pages: AtomicU64,
}

/// The last part of a path, cut to what prctl(2) shows.
pub fn short_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or("");
    let end = (0..=name.len().min(15)).rev().find(|n| name.is_char_boundary(*n));
    name[..end.unwrap_or(0)].into()
}

impl Mm {
    /// Of a new program; without users.
    pub fn new(space: Space, program: Arc<Program>, running: Option<Running>) -> Arc<Mm> {
        Arc::new(Mm {
            space: Arc::new(space),
            program,
            running: SpinLock::new(running),
            nr_users: AtomicU32::new(0),
            dumpable: AtomicBool::new(true),
            peak_pages: AtomicU64::new(0),
        })
    }
    /// A copy for a child, as fork(2) makes it.
    pub fn fork(&self) -> errno::Result<Arc<Mm>> {
        let space = self.space.fork().map_err(|error| error.errno())?;
        mm::prepare_root(&space);
        let running = self.running.lock().as_ref().map(Running::again);
        let child = Mm::new(space, self.program.clone(), running);
        child.dumpable.store(self.dumpable.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(child)
    }
    /// One more thread runs in it.
    pub fn enter(&self) {
        self.nr_users.fetch_add(1, Ordering::Relaxed);
    }
    /// A call of another process works in it, which calls [`leave`](Mm::leave) at its end. `false` if the last thread
    /// has left: nothing is mapped then.
    pub fn try_enter(&self) -> bool {
        let enter = |nr: u32| (nr > 0).then_some(nr + 1);
        self.nr_users.fetch_update(Ordering::AcqRel, Ordering::Relaxed, enter).is_ok()
    }
    /// A thread has ended, in its own context: the last one takes all pages away
    /// at once, so that they are free before anybody hears of its end. The
    /// space itself goes when the last CPU has loaded another one.
    pub fn leave(&self) {
        self.note_resident();
        if self.nr_users.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Without memory for the new tree all goes later.
            let _ = self.space.munmap(0, USER_END);
            let running = self.running.lock().take();
            drop(running);
            crate::linux::shm::sweep();
        }
    }
    /// Resident pages without those of pools, as Linux counts them, and the number of those. Each for itself, and none of them at
    /// one moment.
    pub fn resident(&self) -> (RssPages, u64) {
        let (mut rss, of_pools) = (self.space.rss_pages(), self.space.hugetlb_rss_pages());
        rss.anon = rss.anon.saturating_sub(of_pools.anon);
        rss.shmem = rss.shmem.saturating_sub(of_pools.shmem);
        (rss, of_pools.anon + of_pools.shmem)
    }
    /// Keeps the largest resident size, and gives it in pages.
    pub fn note_resident(&self) -> u64 {
        let (rss, _) = self.resident();
        let now = rss.anon + rss.shmem;
        self.peak_pages.fetch_max(now, Ordering::Relaxed).max(now)
    }
}
