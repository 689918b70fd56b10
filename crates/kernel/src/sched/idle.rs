//! What a CPU does when no thread wants it.

use super::queue::{self, HALTED, SPINNING};
use super::{Thread, leave_space, switch};
use crate::arch::{cpu, time};
use crate::mailbox;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

/// How long a CPU watches the queue before it halts: waking a halted one takes
/// some 15 to 50 us under QEMU, one that spins under one.
const SPIN_NS: u64 = 20_000;

/// Watches the queue with plain loads; `pause` would stop the emulation of the
/// other CPUs for long.
fn spin() -> bool {
    let me = 1 << cpu::index();
    SPINNING.fetch_or(me, Ordering::SeqCst);
    let end = time::now_ns() + SPIN_NS;
    let mut found = false;
    mailbox::poll_until(|| {
        found = queue::looks_busy();
        found || time::now_ns() > end
    });
    SPINNING.fetch_and(!me, Ordering::SeqCst);
    found
}

/// Waits for an interrupt, unless there is work.
fn halt() {
    leave_space();
    let me = 1 << cpu::index();
    HALTED.fetch_or(me, Ordering::SeqCst);
    if !queue::has_work() {
        cpu::halt_once();
    }
    HALTED.fetch_and(!me, Ordering::SeqCst);
}

/// Becomes the executing CPU's idle thread.
pub fn run_idle() -> ! {
    cpu::this().local.borrow_mut().adopt(Arc::new(Thread::idle()));
    super::tick();
    loop {
        match queue::pop(None) {
            Some(next) => switch::run(next),
            None => {
                if !spin() || !queue::has_work() {
                    halt();
                }
            }
        }
        mailbox::poll();
    }
}
