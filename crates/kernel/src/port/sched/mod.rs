//! Threads on CPUs: one queue of those that could run, any CPU takes the first
//! that it may; a timer takes the CPU away again; with nothing to run, a CPU
//! spins for a while and then halts.
//!
//! Everything here runs with interrupts off and no lock held on entry; `block`,
//! `yield_now` and `exit_current` switch stacks.

pub mod daemon;
pub mod delay;
mod idle;
mod kernel_thread;
mod local;
pub mod parking;
mod queue;
mod sleep;
pub mod sleeping;
mod stack;
mod switch;
mod thread;
mod tick;
mod usage;
mod waiters;

pub use idle::{nr_blocks_zeroed, run_idle};
pub use local::{current, current_space, with_current};
pub use queue::{start, wake, wake_any};
pub use sleep::{alarm_ns, block_until, set_alarm, timer_changed};
pub use stack::KernelStack;
pub use switch::{exit_current, kernel_thread_started, leave_space, migrate, yield_now};
pub use thread::{Next, Program, Thread};
pub use tick::{on_alarm, tick};
pub use usage::{Usage, Used};
pub use waiters::{WaitEnd, Waiters};

/// Waits until somebody wakes the thread, or returns at once if that has
/// happened since the last `block`. Callers check what they wait for in a loop.
pub fn block() {
    switch::block();
    delay::step();
}
