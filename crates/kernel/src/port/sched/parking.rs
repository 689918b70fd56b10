//! Sleeping on behalf of the subsystem: threads that wait for a word of its to
//! change.

use super::queue::wake_any;
use super::{Thread, block_until, local};
use crate::port::arch::time;
use crate::port::mailbox;
use crate::port::sync::SpinLock;
use alloc::sync::Arc;
use alloc::vec::Vec;
use softfault::sync::{Ordering, Word};

const NR_BUCKETS: usize = 16;
/// Waits are short as a rule: a CPU that runs is about to end them, and to sleep
/// and be woken takes longer than most of them.
const SPIN_NS: u64 = 50_000;
/// Longest sleep; then the waiter looks again.
const LOOK_AGAIN_NS: u64 = 10_000_000;

type Bucket = SpinLock<Vec<(usize, Arc<Thread>)>>;
static BUCKETS: [Bucket; NR_BUCKETS] = [const { SpinLock::new(Vec::new()) }; NR_BUCKETS];

fn bucket(address: usize) -> &'static Bucket {
    &BUCKETS[(address >> 3) % NR_BUCKETS]
}

/// Waits while `word` is `expected`; may return early.
pub fn park(word: &Word, expected: u64) {
    let end = time::now_ns() + SPIN_NS;
    let mut changed = false;
    mailbox::poll_until(|| {
        changed = word.load(Ordering::Acquire) != expected;
        changed || time::now_ns() >= end
    });
    if changed {
        return;
    }
    sleep(word, expected, Some(time::now_ns() + LOOK_AGAIN_NS));
}

/// Sleeps while `word` is `expected`, no longer than until `deadline_ns`; may return
/// early.
pub fn sleep(word: &Word, expected: u64, deadline_ns: Option<u64>) {
    let address = core::ptr::from_ref(word) as usize;
    let me = local::current();
    {
        let mut parked = bucket(address).lock();
        if word.load(Ordering::SeqCst) != expected {
            return;
        }
        parked.push((address, me.clone()));
    }
    block_until(deadline_ns);
    bucket(address).lock().retain(|(at, thread)| *at != address || !Arc::ptr_eq(thread, &me));
}

/// Wakes all who wait for `word` to change.
pub fn unpark(word: &Word) {
    let address = core::ptr::from_ref(word) as usize;
    loop {
        let next = {
            let mut parked = bucket(address).lock();
            let at = parked.iter().position(|(at, _)| *at == address);
            at.map(|at| parked.swap_remove(at).1)
        };
        match next {
            Some(thread) => wake_any(&thread),
            None => return,
        }
    }
}
