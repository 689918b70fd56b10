//! What is done when a page is needed and there is none: the process that has
//! most of the memory is ended, and who needed the page tries again.

use crate::arch::time;
use crate::log;
use crate::power::End;
use crate::process::{self, Process};
use crate::sched::{self, Thread};
use alloc::sync::Arc;
use linux_raw_sys::general::SIGKILL;

/// How long a thread waits for memory that a dying process has, before it looks
/// for another to end.
const PATIENCE_NS: u64 = 2_000_000;

/// The process with most resident pages, of those that are not ending; the
/// youngest of equals.
fn largest() -> Option<(Arc<Process>, u64)> {
    let size = |p: &Arc<Process>| p.mm().map_or(0, |mm| mm.note_resident());
    let alive = process::all().into_iter().filter(|p| !p.has_ended() && !p.is_ending());
    alive.map(|p| (size(&p), p)).max_by_key(|(pages, p)| (*pages, p.pid)).map(|(pages, p)| (p, pages))
}

/// Whether one that was ended before still has its memory.
fn is_one_dying() -> bool {
    process::all().iter().any(|p| p.is_ending() && p.mm().is_some())
}

/// A fault of `thread` at `address` found no frame. Comes back when it makes
/// sense to try again, or when the thread is to end.
pub fn out_of_memory(thread: &Thread, address: u64) {
    if thread.is_to_end() {
        return;
    }
    if !is_one_dying()
        && let Some((victim, pages)) = largest()
    {
        let (name, pid) = (victim.name(), victim.pid);
        log!("{name}[{pid}]: killed with {} KiB: no memory left for {address:#x}", pages * 4);
        victim.begin_end(End::Signal(SIGKILL as u8));
    }
    if !thread.is_to_end() {
        sched::block_until(Some(time::now_ns() + PATIENCE_NS));
    }
}
