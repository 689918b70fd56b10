//! Sends SIGALRM to the processes whose alarm (`alarm`) is due.
//!
//! No lock is held on entry, and none while a signal is sent.

use super::{alarm, table};
use crate::linux::signal::{Info, SI_KERNEL, send};
use crate::port::arch::time;
use crate::port::mailbox;
use crate::port::sched::{self, delay};
use linux_raw_sys::general::SIGALRM;

/// Sends what is due at this moment; the tick of a CPU's timer calls this, and comes
/// again for what is due meanwhile.
pub fn tick() {
    let now = time::now_ns();
    while sched::alarm_ns() <= now {
        mailbox::poll();
        let Some((at, pid)) = alarm::take_due(now) else { return };
        delay::step();
        if let Some(process) = table::find(pid) {
            let info = Info { signal: SIGALRM, code: SI_KERNEL, ..Info::default() };
            process.alarm.go_off(pid, at, || send::to_process(&process, info));
        }
    }
}
