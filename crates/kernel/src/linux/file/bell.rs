//! Waiting for open files: each file that can become ready has a bell. A thread
//! waits at the bells of all its files. A thread that makes a file ready rings its
//! bell and no other.
//!
//! Bells have a spin lock each; nothing is woken and nothing dropped under it.
//! No lock is held on entry.

use crate::linux::errno::{self, Errno, Restart};
use crate::port::arch::time::now_ns;
use crate::port::heap;
use crate::port::sched::{self, Thread};
use crate::port::sync::SpinLock;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

/// Heap that a place at a bell costs, on both sides.
const HEAP_PER_PLACE: usize = 112;
/// So many places are in what a thread costs: to read a pipe never fails for want
/// of memory.
const NR_FREE_PLACES: usize = 2;

/// One direction of one file: rung when the file may have become ready.
pub struct Bell {
    waiters: SpinLock<VecDeque<Arc<Thread>>>,
    /// How often it has rung.
    nr_rings: AtomicU64,
}

impl Bell {
    /// Nobody waits.
    pub const fn new() -> Bell {
        Bell { waiters: SpinLock::new(VecDeque::new()), nr_rings: AtomicU64::new(0) }
    }
    /// Wakes those who wait; each looks for itself whether it has what it waits
    /// for. Called after the change, with no lock held.
    pub fn ring(&self) {
        self.nr_rings.fetch_add(1, Ordering::Release);
        // The list keeps its memory; a waiter that comes again meanwhile is behind these.
        let nr = self.waiters.lock().len();
        for _ in 0..nr {
            let first = self.waiters.lock().pop_front();
            first.iter().for_each(sched::wake_any);
        }
    }
    /// Differs from what it was before if it has rung since.
    pub fn nr_rings(&self) -> u64 {
        self.nr_rings.load(Ordering::Acquire)
    }
    fn enter(&self, thread: &Arc<Thread>) -> errno::Result<()> {
        let mut waiters = self.waiters.lock();
        waiters.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        waiters.push_back(thread.clone());
        Ok(())
    }
    fn leave(&self, thread: &Arc<Thread>) {
        // The caller has the thread, too: no last reference goes under the lock.
        self.waiters.lock().retain(|t| !Arc::ptr_eq(t, thread));
    }
}

/// The places of one thread that waits; it leaves them when this is dropped.
pub struct Places {
    thread: Arc<Thread>,
    first: [Option<Arc<Bell>>; NR_FREE_PLACES],
    more: Vec<(Arc<Bell>, heap::Charge)>,
}

impl Places {
    fn new() -> Places {
        Places { thread: sched::current(), first: [const { None }; NR_FREE_PLACES], more: Vec::new() }
    }
    /// Waits for `bell`, too.
    pub fn add(&mut self, bell: &Arc<Bell>) -> errno::Result<()> {
        if let Some(free) = self.first.iter_mut().find(|place| place.is_none()) {
            bell.enter(&self.thread)?;
            *free = Some(bell.clone());
            return Ok(());
        }
        let charge = heap::charge(HEAP_PER_PLACE)?;
        self.more.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        bell.enter(&self.thread)?;
        self.more.push((bell.clone(), charge));
        Ok(())
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        let bells = self.first.iter().flatten().chain(self.more.iter().map(|(bell, _)| bell));
        bells.for_each(|bell| bell.leave(&self.thread));
    }
}

/// Asks `question` until it has an answer, each time that a bell has rung which
/// `enter` names; nothing once `deadline_ns` has passed. Fails if the thread
/// `is_interrupted` first.
pub fn wait<T>(
    is_interrupted: impl Fn() -> bool,
    deadline_ns: Option<u64>,
    enter: impl Fn(&mut Places) -> errno::Result<()>,
    mut question: impl FnMut() -> Option<T>,
) -> errno::Result<Option<T>> {
    if let Some(answer) = question() {
        return Ok(Some(answer));
    }
    loop {
        let mut places = Places::new();
        // In place before the question is asked: a ring in between makes the
        // sleep end at once.
        enter(&mut places)?;
        if let Some(answer) = question() {
            return Ok(Some(answer));
        }
        if deadline_ns.is_some_and(|deadline| now_ns() >= deadline) {
            return Ok(None);
        }
        if is_interrupted() {
            return Err(Restart::AsAsked.errno());
        }
        sched::block_until(deadline_ns);
    }
}
