//! Out of memory: a fault that finds no page, of a program or of the kernel's copies for
//! it, ends the process that has most of the memory, and tries again.

use crate::linux::process::thread::{Task, Thread};
use crate::linux::process::{self, Process};
use crate::port::arch::time;
use crate::port::console::log;
use crate::port::mm;
use crate::port::power::End;
use crate::port::sched;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::general::SIGKILL;

/// How long a thread waits for memory that a dying process has, before it looks
/// for another to end.
const PATIENCE_NS: u64 = 2_000_000;

/// So many tries of one copy without memory, and another process is to end: the one that is dying may wait for a lock that
/// the copy's caller holds. In the end that is the caller itself, and its copy fails.
const MOST_TRIES: u32 = 250;

/// The value of [`Process::oom_score_adj`] that keeps a process from being chosen.
const NEVER: i32 = -1000;

/// The process with most resident pages, of those that have begun and are not ending; the
/// youngest of equals. Each thousandth that a process wants to be adjusted by
/// counts as that part of all memory. If none may be chosen, the one that is
/// asking is.
fn largest(asking: &Thread) -> (Arc<Process>, u64) {
    let thousandth = mm::vm().vmstat().nr_total_pages as i64 / 1000;
    let alive = process::all().into_iter().filter(|p| p.has_begun() && !p.has_ended() && !p.is_ending());
    let points = |p: &Process| {
        let adjust = p.oom_score_adj.load(Ordering::Relaxed);
        (adjust != NEVER).then(|| resident_pages(p) as i64 + i64::from(adjust) * thousandth)
    };
    let chosen = alive.filter_map(|p| Some((points(&p)?, p.pid, p))).max_by_key(|(points, pid, _)| (*points, *pid));
    let victim = chosen.map_or_else(|| asking.process().clone(), |(.., process)| process);
    let pages = resident_pages(&victim);
    (victim, pages)
}

fn resident_pages(process: &Process) -> u64 {
    // Pages of pools go back to their pool: no frame becomes free.
    let rss = process.mm().map(|mm| mm.resident().0);
    rss.map_or(0, |rss| rss.anon + rss.shmem)
}

/// Whether one that was ended before still has its memory. A child that has not begun keeps it until its parent, which may
/// be the one that asks, has started it.
fn is_one_dying() -> bool {
    process::all().iter().any(|p| p.has_begun() && p.is_ending() && p.mm().is_some())
}

/// A fault of `thread` at `address` found no frame. Comes back when it makes
/// sense to try again, or when the thread is to end.
pub fn out_of_memory(thread: &Thread, address: u64) {
    wait_for_memory(thread, address, !is_one_dying());
}

fn wait_for_memory(thread: &Thread, address: u64, ends_one: bool) {
    if thread.is_to_end() {
        return;
    }
    if ends_one {
        let (victim, pages) = largest(thread);
        let (name, pid) = (victim.name(), victim.pid);
        log!("{name}[{pid}]: killed with {} KiB: no memory left for {address:#x}", pages * 4);
        victim.begin_end(End::Signal(SIGKILL as u8));
    }
    // A wake that came before ends a wait at once: only the next one lets others run.
    let until = time::now_ns() + PATIENCE_NS;
    while !thread.is_to_end() && is_one_dying() && time::now_ns() < until {
        sched::block_until(Some(until));
    }
}

/// The same for a copy that the kernel makes for the thread that runs, and that has failed so many times before. Returns
/// whether to try again. A kernel thread, and a thread that is to end, have no claim to memory.
pub fn find_memory(address: u64, nr_tries: u32) -> bool {
    let Some(thread) = sched::current().downcast::<Task>() else { return false };
    let is_stuck = nr_tries > 0 && nr_tries.is_multiple_of(MOST_TRIES);
    wait_for_memory(&thread, address, is_stuck || !is_one_dying());
    // A wake that has come meanwhile may be for a wait around the copy: it comes again.
    sched::wake(&thread);
    !thread.is_to_end()
}
