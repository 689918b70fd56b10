//! The queue of threads that could run, and waking a CPU for one.

use super::{Program, Thread};
use crate::port::arch::{apic, cpu};
use crate::port::sync::SpinLock;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

static QUEUE: SpinLock<VecDeque<Arc<Thread>>> = SpinLock::new(VecDeque::new());
/// Its length, for those who only look.
static LEN: AtomicUsize = AtomicUsize::new(0);
/// CPUs that spin and look at `LEN`.
pub(super) static SPINNING: AtomicU64 = AtomicU64::new(0);
/// CPUs that halt until they are poked.
pub(super) static HALTED: AtomicU64 = AtomicU64::new(0);

fn may_run(thread: &Thread, cpu: usize) -> bool {
    thread.affinity.load(Ordering::Relaxed) & 1 << cpu != 0
}

/// Appends a thread and makes sure that a CPU takes it.
pub(super) fn push(thread: Arc<Thread>) {
    let allowed = thread.affinity.load(Ordering::Relaxed);
    let len = {
        let mut queue = QUEUE.lock();
        queue.push_back(thread);
        LEN.store(queue.len(), Ordering::SeqCst);
        queue.len()
    };
    let spinning = SPINNING.load(Ordering::SeqCst) & allowed;
    if len > spinning.count_ones() as usize {
        let halted = HALTED.load(Ordering::SeqCst) & allowed;
        if halted != 0 {
            poke(halted.trailing_zeros() as usize);
        }
    }
}

fn poke(target: usize) {
    // Only the one who takes the bit pokes.
    if HALTED.fetch_and(!(1 << target), Ordering::SeqCst) & 1 << target != 0 {
        apic::poke(target);
    }
}

/// Takes the first thread that may run on this CPU. One that is still being
/// switched away from elsewhere is passed over: waiting for it could be waiting
/// for a CPU that waits for this one.
pub(super) fn pop(me: Option<&Thread>) -> Option<Arc<Thread>> {
    if LEN.load(Ordering::SeqCst) == 0 {
        return None;
    }
    let cpu = cpu::index();
    let mut queue = QUEUE.lock();
    let ready = |t: &Arc<Thread>| {
        may_run(t, cpu) && (!t.is_on_cpu() || me.is_some_and(|m| core::ptr::addr_eq(m, Arc::as_ptr(t))))
    };
    let at = queue.iter().position(ready)?;
    let thread = queue.remove(at);
    LEN.store(queue.len(), Ordering::SeqCst);
    thread
}

/// Whether `pop` could give something, now or as soon as a switch is over.
pub(super) fn has_work() -> bool {
    let cpu = cpu::index();
    LEN.load(Ordering::SeqCst) != 0 && QUEUE.lock().iter().any(|t| may_run(t, cpu))
}

/// Whether anything is queued, at the price of one load.
pub(super) fn looks_busy() -> bool {
    LEN.load(Ordering::Relaxed) != 0
}

/// Ends the thread's sleep, or the one that it is about to begin.
pub fn wake<P: Program>(thread: &Arc<Thread<P>>) {
    if thread.end_sleep() {
        push(thread.clone());
    }
}

/// The same for a thread of any kind.
pub fn wake_any(thread: &Arc<Thread>) {
    if thread.end_sleep() {
        push(thread.clone());
    }
}

/// Lets a new thread run.
pub fn start<P: Program>(thread: &Arc<Thread<P>>) {
    push(thread.clone());
}
