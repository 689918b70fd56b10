//! Waits for children: wait4(2), waitid(2), and their results.

use super::{Process, table};
use crate::linux::signal;
use crate::linux::thread::Thread;
use crate::port::mailbox;
use crate::port::power::End;
use crate::port::sched::{self, Used, delay};
use crate::port::sync::SpinLock;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use linux_raw_sys::general::{CLD_CONTINUED, CLD_STOPPED, SIGCONT};

/// Stopped by a signal or not, and what the parent has not heard of yet.
#[derive(Default)]
pub struct Stop {
    state: SpinLock<StopState>,
    peak_kib: AtomicU64,
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
    fn complete(&self, nr_resumes: u64) -> Option<u32> {
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
    fn tell(&self, stops: bool, resumes: bool, keep: bool) -> Option<u32> {
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

/// Usage of children: the sum, and the largest resident size.
#[derive(Clone, Copy, Default)]
pub struct ChildUsage {
    /// Times and faults, summed.
    pub used: Used,
    /// The largest resident size of any, KiB.
    pub peak_kib: u64,
}

/// Which children are meant.
#[derive(Clone, Copy)]
pub enum Which {
    /// Any.
    Any,
    /// This one.
    Process(u32),
    /// Any of this group.
    Group(u32),
}

/// The event that a wait is for.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// Which children.
    pub which: Which,
    /// Their ends.
    pub ends: bool,
    /// Their being stopped.
    pub stops: bool,
    /// Their going on.
    pub resumes: bool,
    /// The state may be reported again.
    pub keep: bool,
}

/// News of a child.
pub struct News {
    /// Its number.
    pub pid: u32,
    /// The status word of wait(2).
    pub status: u32,
    /// The resources that it and its own children had used.
    pub usage: ChildUsage,
}

/// Result of looking for news.
pub enum Look {
    /// This.
    News(News),
    /// Nothing yet.
    Nothing,
    /// There is no such child.
    NoChild,
}

/// The status word of wait(2).
fn status_of(end: Option<End>) -> u32 {
    match end {
        Some(End::Signal(number)) => number.into(),
        Some(End::Exit(status)) => u32::from(status) << 8,
        _ => 0,
    }
}

impl Process {
    /// Tells the parent of a stop once all threads have come to it: each thread that has,
    /// and each that ends, calls this.
    pub fn tell_if_all_are_parked(&self) {
        let nr_resumes = self.stop.nr_resumes();
        let all = self.threads.lock().values().all(|t| t.is_parked.load(Ordering::SeqCst));
        if all && let Some(signal) = self.stop.complete(nr_resumes) {
            signal::tell_parent(self, CLD_STOPPED, signal);
        }
    }
    /// Looks for news of a child; the news of an end frees the child unless it is
    /// to be kept.
    pub fn look_for_child(&self, wanted: &Wanted) -> Look {
        let mut found = false;
        for (child, group) in table::children(self.pid) {
            let meant = match wanted.which {
                Which::Any => true,
                Which::Process(pid) => child.pid == pid,
                Which::Group(wanted) => group == wanted,
            };
            if !meant {
                continue;
            }
            if child.has_ended() {
                // No reason to wait: either its end is taken here, or nobody asks for it,
                // or another thread has taken it.
                if !wanted.ends {
                    continue;
                }
                child.wait_until_told();
                delay::step();
                if let Some(news) = self.take_end(&child, wanted.keep) {
                    return Look::News(news);
                }
                continue;
            }
            found = true;
            if let Some(status) = child.stop.tell(wanted.stops, wanted.resumes, wanted.keep) {
                return Look::News(News { pid: child.pid, status, usage: child.usage_with_children() });
            }
        }
        if found { Look::Nothing } else { Look::NoChild }
    }
    /// Until the parent has its signal. A parent that took the end before would get
    /// SIGCHLD for nobody, or, if it ignores that, an end that it is not to hear of;
    /// one that passed over the end would sleep although SIGCHLD has come.
    fn wait_until_told(&self) {
        while !self.told.load(Ordering::Acquire) {
            // The thread that ends may wait for this CPU.
            sched::yield_now();
            mailbox::poll();
        }
    }
    /// The end of a child; none if another thread was faster, or if nobody is to hear
    /// of it.
    fn take_end(&self, child: &Arc<Process>, keep: bool) -> Option<News> {
        let is_there = if keep { table::find(child.pid).is_some() } else { table::remove(child.pid) };
        if !is_there {
            return None;
        }
        let usage = child.usage_with_children();
        if !keep {
            let mut sum = self.children_used.lock();
            sum.used = sum.used + usage.used;
            sum.peak_kib = sum.peak_kib.max(usage.peak_kib);
        }
        Some(News { pid: child.pid, status: status_of(child.end()), usage })
    }
    fn usage_with_children(&self) -> ChildUsage {
        let below = *self.children_used.lock();
        ChildUsage { used: self.used() + below.used, peak_kib: self.peak_kib().max(below.peak_kib) }
    }
    /// The largest resident size so far, KiB.
    pub fn peak_kib(&self) -> u64 {
        let now = self.mm().map_or(0, |mm| mm.note_resident() * 4);
        self.stop.peak_kib.fetch_max(now, Ordering::Relaxed).max(now)
    }
    /// Keeps it for after the memory has gone.
    pub(super) fn peak_at_end(&self) {
        self.peak_kib();
    }
}
