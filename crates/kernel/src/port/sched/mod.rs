//! Threads on CPUs: one queue of those that could run, any CPU takes the first
//! that it may; a timer takes the CPU away again; with nothing to run, a CPU
//! spins for a while and then halts.
//!
//! Everything here runs with interrupts off and no lock held on entry; `block`,
//! `yield_now` and `exit_current` switch stacks.

pub mod delay;
mod idle;
pub mod parking;
mod queue;
mod sleep;
mod switch;
mod thread;
mod waiters;

pub use idle::{nr_blocks_zeroed, run_idle};
pub use queue::{start, wake};
pub use sleep::{block_until, tick, timer_changed};
pub use switch::{Local, block, exit_current, kernel_thread_started, leave_space, migrate, yield_now};
pub use thread::{AltStack, KernelStack, Thread, Used};
pub use waiters::{WaitEnd, Waiters};

use crate::port::arch::cpu;
use alloc::sync::Arc;

/// The thread that executes this.
pub fn current() -> Arc<Thread> {
    cpu::this().local.borrow().current()
}

/// Does something with the thread that executes this, without counting a
/// reference: for what every entry into the kernel does.
pub fn with_current<R>(f: impl FnOnce(&Thread) -> R) -> R {
    let thread = cpu::this().current.get();
    // SAFETY: K4: the CPU's block refers to the thread that runs on it, which
    // lives as long as its code executes: until `exit_current`, from which the
    // closure does not come back.
    f(unsafe { &*thread })
}
