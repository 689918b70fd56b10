//! Whether a process is stopped by a signal, and what its parent has not heard of that.
//!
//! One spin lock, under which nothing is taken.

use super::thread::Thread;
use crate::port::sync::SpinLock;
use core::sync::atomic::Ordering;
use linux_raw_sys::general::{CLD_CONTINUED, CLD_STOPPED, SIGCONT};

/// Stopped by a signal or not, and what the parent has not heard of yet.
#[derive(Default)]
pub struct Stop {
    state: SpinLock<StopState>,
}

#[derive(Default)]
struct StopState {
    is_stopped: bool,
    /// The signal of a stop that not all threads have come to yet, or 0.
    coming: u32,
    /// The process ends: it never stops again.
    is_over: bool,
    /// 0, or the event's status, to be told once.
    untold: u32,
    /// How often SIGCONT was sent.
    nr_resumes: u64,
}

/// A continued child, as a status word.
const CONTINUED: u32 = 0xffff;

impl Stop {
    /// Whether its threads stay where they are.
    pub fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }
    /// How often SIGCONT was sent so far.
    pub fn nr_resumes(&self) -> u64 {
        self.state.lock().nr_resumes
    }
    /// Stopped by `signal`, before whose sending SIGCONT had been sent `nr_resumes`
    /// times; false if it was stopped already, or ends, or SIGCONT has come since.
    pub fn stop(&self, signal: u32, nr_resumes: u64) -> bool {
        let mut state = self.state.lock();
        if state.is_stopped || state.is_over || state.nr_resumes != nr_resumes {
            return false;
        }
        (state.is_stopped, state.coming) = (true, signal);
        true
    }
    /// Whether `thread` is to stay where it is; it says whether it does.
    pub fn park(&self, thread: &Thread) -> bool {
        let state = self.state.lock();
        thread.is_parked.store(state.is_stopped, Ordering::SeqCst);
        state.is_stopped
    }
    /// All threads stayed where they are when SIGCONT had been sent `nr_resumes` times: the
    /// signal that stopped them, if the parent has not heard of that yet.
    pub(super) fn complete(&self, nr_resumes: u64) -> Option<u32> {
        let mut state = self.state.lock();
        if state.nr_resumes != nr_resumes {
            return None;
        }
        let signal = core::mem::take(&mut state.coming);
        if signal == 0 {
            return None;
        }
        state.untold = signal << 8 | 0x7f;
        Some(signal)
    }
    /// Goes on; what SIGCHLD says of that, if it was stopped. A stop that is not complete
    /// is told now.
    pub fn resume(&self) -> Option<(u32, u32)> {
        let mut state = self.state.lock();
        state.nr_resumes += 1;
        let coming = core::mem::take(&mut state.coming);
        if !core::mem::take(&mut state.is_stopped) {
            return None;
        }
        state.untold = CONTINUED;
        Some(if coming == 0 { (CLD_CONTINUED, SIGCONT) } else { (CLD_STOPPED, coming) })
    }
    /// The process ends: its threads go on, to their ends, and the parent hears of no stop
    /// any more.
    pub fn end(&self) {
        let mut state = self.state.lock();
        *state = StopState { is_over: true, nr_resumes: state.nr_resumes, ..StopState::default() };
    }
    /// The event that the parent asks for, which is then told.
    pub(super) fn tell(&self, stops: bool, resumes: bool, keep: bool) -> Option<u32> {
        let mut state = self.state.lock();
        let untold = state.untold;
        let wanted = if untold == CONTINUED { resumes } else { stops };
        if untold == 0 || !wanted {
            return None;
        }
        if !keep {
            state.untold = 0;
        }
        Some(untold)
    }
}
