//! Threads on CPUs: one queue of those that could run, any CPU takes the first
//! that it may; a timer takes the CPU away again; with nothing to run, a CPU
//! spins for a while and then halts.
//!
//! Everything here runs with interrupts off and no lock held on entry; `block`,
//! `yield_now` and `exit_current` switch stacks.

mod idle;
pub mod parking;
mod queue;
mod sleep;
mod switch;
mod thread;

pub use idle::run_idle;
pub use queue::{start, wake};
pub use sleep::{block_until, tick};
pub use switch::{Local, kernel_thread_started, block, exit_current, leave_space, migrate, yield_now};
pub use thread::{AltStack, KernelStack, Thread, Usage};

use crate::arch::cpu;
use alloc::sync::Arc;

/// The thread that executes this.
pub fn current() -> Arc<Thread> {
    cpu::this().local.borrow().current()
}
