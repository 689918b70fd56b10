//! The alarm clock of a process: alarm(2), setitimer(2) with ITIMER_REAL. `timer` sends the
//! signals.
//!
//! An alarm has a spin lock. The lock on the list of all is taken inside.

use crate::port::arch::time;
use crate::port::mailbox;
use crate::port::sched::{self, delay};
use crate::port::sync::SpinLock;
use alloc::collections::BTreeMap;

/// Alarms by moment and process.
static ALARMS: SpinLock<BTreeMap<(u64, u32), ()>> = SpinLock::new(BTreeMap::new());
/// An alarm goes off no more often: its program has to get on meanwhile, and take the
/// signal that ends it.
const LEAST_INTERVAL_NS: u64 = 100_000;

/// An alarm; nanoseconds.
#[derive(Default)]
pub struct Alarm(SpinLock<State>);

#[derive(Default)]
struct State {
    /// When it goes off, or 0.
    at_ns: u64,
    /// How often after that, or 0.
    interval_ns: u64,
    /// So many CPUs are sending its signal.
    nr_firing: u32,
}

impl State {
    /// The remaining time, and the interval.
    fn left(&self, now_ns: u64) -> (u64, u64) {
        let left = if self.at_ns == 0 { 0 } else { self.at_ns.saturating_sub(now_ns).max(1) };
        (left, self.interval_ns)
    }
    /// Sets it for `at_ns` instead of for when it was set for. The caller has the alarm's
    /// lock: what is in the list is what its owner says.
    fn move_to(&mut self, pid: u32, at_ns: u64) {
        let mut alarms = ALARMS.lock();
        if self.at_ns != 0 {
            alarms.remove(&(self.at_ns, pid));
        }
        self.at_ns = at_ns;
        if at_ns != 0 {
            alarms.insert((at_ns, pid), ());
        }
        publish(&alarms);
    }
}

fn publish(alarms: &BTreeMap<(u64, u32), ()>) {
    let earliest = alarms.first_key_value().map_or(u64::MAX, |(key, ())| key.0);
    sched::set_alarm(earliest);
}

impl Alarm {
    /// Sets it to go off in `value_ns` and every `interval_ns` after; what was
    /// left, and the interval, of before. Signals of before have been sent when this
    /// returns.
    pub fn set(&self, pid: u32, value_ns: u64, interval_ns: u64) -> (u64, u64) {
        let (mut own, now) = loop {
            let own = self.0.lock();
            if own.nr_firing == 0 {
                break (own, time::now_ns());
            }
            drop(own);
            // The thread that sends may wait for this CPU.
            sched::yield_now();
            mailbox::poll();
        };
        let before = own.left(now);
        own.move_to(pid, if value_ns == 0 { 0 } else { now.saturating_add(value_ns) });
        own.interval_ns = interval_ns;
        drop(own);
        sched::timer_changed();
        before
    }
    /// The remaining time, and the interval.
    pub fn get(&self) -> (u64, u64) {
        self.0.lock().left(time::now_ns())
    }
    /// Calls `send`, which sends the signal, if the alarm is still set for this moment; then
    /// it is set for the next one.
    pub fn go_off(&self, pid: u32, at_ns: u64, send: impl FnOnce()) {
        {
            let mut own = self.0.lock();
            if own.at_ns != at_ns {
                return;
            }
            let interval_ns = own.interval_ns.max(LEAST_INTERVAL_NS);
            let next = if own.interval_ns == 0 { 0 } else { time::now_ns().saturating_add(interval_ns) };
            own.move_to(pid, next);
            own.nr_firing += 1;
        }
        sched::timer_changed();
        delay::step();
        send();
        self.0.lock().nr_firing -= 1;
    }
}

/// Takes an alarm that is due at this moment off the list: its moment and its process.
pub fn take_due(now_ns: u64) -> Option<(u64, u32)> {
    let mut alarms = ALARMS.lock();
    let due = alarms.first_key_value().map(|(key, ())| *key).filter(|key| key.0 <= now_ns);
    due.iter().for_each(|key| {
        alarms.remove(key);
    });
    publish(&alarms);
    due
}
