//! The end of threads and processes.

use super::Process;
use crate::futex::{self, Key};
use crate::mm;
use crate::power::End;
use crate::sched::{self, Thread};
use core::sync::atomic::Ordering;
use linux_raw_sys::general::{FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS};

/// Most robust futexes that are looked at: the list is the program's and may
/// have no end.
const MAX_ROBUST: usize = 2048;

/// Ends the current thread, whose process or itself was told to; the last one
/// ends the process.
pub fn exit_thread() -> ! {
    sched::with_current(leave_process);
    sched::exit_current()
}

fn leave_process(thread: &Thread) {
    let process = thread.process();
    release_robust(thread);
    let clear_tid = thread.clear_tid.load(Ordering::Relaxed);
    if clear_tid != 0 && mm::put(&process.space, clear_tid, &0u32).is_ok() {
        futex::wake(Key::of(process, clear_tid), 1, u32::MAX);
    }
    thread.usage.leaving_kernel();
    {
        let mut past = process.past.lock();
        *past = *past + thread.usage.read();
    }
    if process.remove_thread(thread.tid) {
        let status = thread.exiting.load(Ordering::Relaxed) as u8;
        process.begin_end(End::Exit(status));
        finish(process);
    }
}

/// Says that nobody runs in the process any more.
fn finish(process: &Process) {
    process.ended.store(1, Ordering::Release);
    let waiter = process.waiter.lock().clone();
    if let Some(waiter) = waiter {
        sched::wake(&waiter);
    }
}

/// Marks the robust futexes that the thread holds as left by a dead owner
/// (get_robust_list(2)). Whatever the list looks like, the worst is that it is
/// not followed.
fn release_robust(thread: &Thread) {
    let head = thread.robust_list.load(Ordering::Relaxed);
    if head == 0 {
        return;
    }
    let space = &thread.process().space;
    let word = |addr: u64| mm::get::<u64>(space, addr).ok();
    let (Some(first), Some(offset), Some(pending)) =
        (word(head), word(head.wrapping_add(8)), word(head.wrapping_add(16)))
    else {
        return;
    };
    let mut at = first & !1;
    for _ in 0..MAX_ROBUST {
        if at == head || at == 0 {
            break;
        }
        let next = word(at);
        if at != pending & !1 {
            release_one(thread, at.wrapping_add(offset));
        }
        match next {
            Some(next) => at = next & !1,
            None => break,
        }
    }
    if pending & !1 != 0 {
        release_one(thread, (pending & !1).wrapping_add(offset));
    }
}

fn release_one(thread: &Thread, addr: u64) {
    let process = thread.process();
    let died = |value: u32| (value & FUTEX_TID_MASK == thread.tid).then_some(value & FUTEX_WAITERS | FUTEX_OWNER_DIED);
    if let Ok(old) = mm::update(&process.space, addr, died)
        && old & FUTEX_TID_MASK == thread.tid
        && old & FUTEX_WAITERS != 0
    {
        futex::wake(Key::of(process, addr), 1, u32::MAX);
    }
}
