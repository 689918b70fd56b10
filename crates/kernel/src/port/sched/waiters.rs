//! Threads that wait for an event that others report.

use super::queue::wake_any;
use super::{Thread, block_until, local};
use crate::port::arch::time;
use crate::port::sync::SpinLock;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A list of them.
pub struct Waiters(SpinLock<Vec<Arc<Thread>>>);

/// Why a wait ended without its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitEnd {
    /// The moment has passed.
    TimedOut,
    /// A signal, or the thread is to end.
    Interrupted,
}

impl Waiters {
    /// Nobody yet.
    pub const fn new() -> Waiters {
        Waiters(SpinLock::new(Vec::new()))
    }
    /// Wakes all; each checks its own condition.
    pub fn wake_all(&self) {
        let threads = core::mem::take(&mut *self.0.lock());
        threads.iter().for_each(wake_any);
    }
    /// Asks `question` after each wake until it has an answer. With a
    /// `deadline_ns` no longer than until then. Signals do not end it.
    pub fn wait<T>(&self, deadline_ns: Option<u64>, question: impl FnMut() -> Option<T>) -> Result<T, WaitEnd> {
        self.wait_unless(|| false, deadline_ns, question)
    }
    /// The same until the thread that runs is interrupted.
    pub fn wait_unless<T>(
        &self,
        is_interrupted: impl Fn() -> bool,
        deadline_ns: Option<u64>,
        mut question: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitEnd> {
        if let Some(answer) = question() {
            return Ok(answer);
        }
        let me = local::current();
        loop {
            // On the list before the question is asked: a wake in between makes
            // the sleep end at once.
            self.0.lock().push(me.clone());
            let result = match question() {
                Some(answer) => Some(Ok(answer)),
                None if deadline_ns.is_some_and(|d| time::now_ns() >= d) => Some(Err(WaitEnd::TimedOut)),
                None if is_interrupted() => Some(Err(WaitEnd::Interrupted)),
                None => None,
            };
            if result.is_none() {
                block_until(deadline_ns);
            }
            self.0.lock().retain(|t| !Arc::ptr_eq(t, &me));
            if let Some(result) = result {
                return result;
            }
        }
    }
}
