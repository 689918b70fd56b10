//! The tick of a CPU's timer.

use super::{daemon, queue, sleep};
use crate::port::arch::time;
use spin::Once;

static ON_ALARM: Once<fn()> = Once::new();

/// Sets the function that is called once the moment of [`sleep::set_alarm`] has
/// come; at boot. It is called on the CPU that finds out, with no lock held; it may
/// take long, and return on another CPU.
pub fn on_alarm(function: fn()) {
    ON_ALARM.call_once(|| function);
}

/// Wakes everyone whose time has come, and sets the timer again: the work of the
/// timer interrupt, on every CPU.
pub fn tick() {
    while let Some(thread) = sleep::next_due() {
        queue::wake_any(&thread);
    }
    daemon::look_for_blocks();
    sleep::set_timer();
    if sleep::alarm_ns() <= time::now_ns()
        && let Some(function) = ON_ALARM.get()
    {
        function();
    }
}
