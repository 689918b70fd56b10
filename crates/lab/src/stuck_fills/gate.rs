//! Where threads sleep until the measurement is over.

use softfault::Filling;
use softfault_host::{HostFile, HostFill};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct State {
    nr_asleep: usize,
    is_open: bool,
}

/// Closed at the beginning.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until(&self, mut state: MutexGuard<'_, State>, is_over: impl Fn(&State) -> bool) {
        while !is_over(&state) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sleeps until the gate is open.
    pub fn sleep(&self) {
        let mut state = self.state();
        state.nr_asleep += 1;
        self.changed.notify_all();
        self.wait_until(state, |state| state.is_open);
    }

    /// Waits until so many sleep, or the gate is open: then one of them has failed.
    pub fn wait_for(&self, nr_sleepers: usize) {
        self.wait_until(self.state(), |state| state.nr_asleep == nr_sleepers || state.is_open);
    }

    /// Wakes all of them.
    pub fn open(&self) {
        self.state().is_open = true;
        self.changed.notify_all();
    }
}

/// Opens a gate at its end, also by an error: sleepers are waited for.
pub struct OpenAtEnd<'a>(pub &'a Gate);

impl Drop for OpenAtEnd<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A file of zeroes. Reads that begin before `end_of_stuck` end when the gate is open.
pub struct StuckFile {
    /// Bytes.
    pub end_of_stuck: u64,
    /// Where they wait.
    pub gate: Arc<Gate>,
}

impl HostFile for StuckFile {
    fn fill(&self, mut fill: HostFill<'_>) -> Filling {
        if fill.offset_bytes() < self.end_of_stuck {
            self.gate.sleep();
        }
        fill.bytes().fill(0);
        fill.end(Ok(()))
    }
}
