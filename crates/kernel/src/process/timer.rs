//! The alarm clock of a process: alarm(2), setitimer(2) with ITIMER_REAL.

use super::table;
use crate::arch::time;
use crate::sched::{self, delay};
use crate::signal::{self, Info};
use crate::sync::SpinLock;
use alloc::collections::BTreeMap;
use core::sync::atomic::{AtomicU64, Ordering};
use linux_raw_sys::general::SIGALRM;

/// `si_code` of what the kernel sends on its own.
const SI_KERNEL: i32 = 0x80;

/// Alarms by moment and process.
static ALARMS: SpinLock<BTreeMap<(u64, u32), ()>> = SpinLock::new(BTreeMap::new());
static EARLIEST_NS: AtomicU64 = AtomicU64::new(u64::MAX);

/// When it goes off, and how often then; nanoseconds, 0 is never.
#[derive(Default)]
pub struct Alarm(SpinLock<(u64, u64)>);

fn publish(alarms: &BTreeMap<(u64, u32), ()>) {
    let earliest = alarms.first_key_value().map_or(u64::MAX, |(key, ())| key.0);
    EARLIEST_NS.store(earliest, Ordering::Relaxed);
}

impl Alarm {
    /// Sets it to go off in `value_ns` and every `interval_ns` after; what was
    /// left, and the interval, of before.
    pub fn set(&self, pid: u32, value_ns: u64, interval_ns: u64) -> (u64, u64) {
        let now = time::now_ns();
        let mut own = self.0.lock();
        let mut alarms = ALARMS.lock();
        let before = *own;
        if before.0 != 0 {
            alarms.remove(&(before.0, pid));
        }
        *own = (0, interval_ns);
        if value_ns != 0 {
            own.0 = now.saturating_add(value_ns);
            alarms.insert((own.0, pid), ());
        }
        publish(&alarms);
        drop(alarms);
        drop(own);
        sched::timer_changed();
        (if before.0 == 0 { 0 } else { before.0.saturating_sub(now).max(1) }, before.1)
    }
    /// What is left, and the interval.
    pub fn get(&self) -> (u64, u64) {
        let own = *self.0.lock();
        (if own.0 == 0 { 0 } else { own.0.saturating_sub(time::now_ns()).max(1) }, own.1)
    }
    /// Whether it is still set for this moment; then it is set for the next one.
    fn went_off(&self, pid: u32, at: u64) -> bool {
        let interval = {
            let mut own = self.0.lock();
            if own.0 != at {
                return false;
            }
            own.0 = 0;
            own.1
        };
        if interval != 0 {
            self.set(pid, interval, interval);
        }
        true
    }
}

/// The moment of the next alarm.
pub fn earliest_ns() -> u64 {
    EARLIEST_NS.load(Ordering::Relaxed)
}

/// Sends what is due; the timer interrupt calls this.
pub fn tick() {
    while earliest_ns() <= time::now_ns() {
        let due = {
            let mut alarms = ALARMS.lock();
            let now = time::now_ns();
            let due = alarms.first_key_value().map(|(key, ())| *key).filter(|key| key.0 <= now);
            due.iter().for_each(|key| {
                alarms.remove(key);
            });
            publish(&alarms);
            due
        };
        let Some((at, pid)) = due else { return };
        delay::step();
        if let Some(process) = table::find(pid)
            && process.alarm.went_off(pid, at)
        {
            signal::send_to_process(&process, Info { signal: SIGALRM, code: SI_KERNEL, ..Info::default() });
        }
    }
}
