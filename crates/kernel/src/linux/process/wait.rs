//! Waits for children: wait4(2), waitid(2), and their results.

use super::usage::ChildUsage;
use super::{Process, table};
use crate::linux::signal::send;
use crate::port::mailbox;
use crate::port::power::End;
use crate::port::sched::{self, delay};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::general::CLD_STOPPED;

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

/// The result of a search for news.
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
            send::tell_parent(self, CLD_STOPPED, signal);
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
}
