//! The end of threads and processes.

use super::thread::{self, Thread};
use super::{Process, table};
use crate::linux::file;
use crate::linux::futex::{self, Key};
use crate::linux::signal::{Info, SI_KERNEL, SIG_IGN, send};
use crate::linux::stats;
use crate::port::arch::time;
use crate::port::mm::{self, Space};
use crate::port::power::End;
use crate::port::sched::{self, delay};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use linux_raw_sys::general::{
    CLD_DUMPED, CLD_EXITED, CLD_KILLED, FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS, SA_NOCLDWAIT, SIGCHLD,
    SIGCONT, SIGHUP,
};

/// Most robust futexes that are looked at: the list is the program's and may
/// have no end.
const MAX_ROBUST: usize = 2048;

/// Ends the current thread, whose process or itself was told to; the last one
/// ends the process.
pub fn exit_thread() -> ! {
    sched::with_current(|thread| leave_process(thread::of(thread)));
    sched::exit_current()
}

fn leave_process(thread: &Thread) {
    let process = thread.process();
    release_robust(thread);
    let clear_tid = thread.clear_tid.load(Ordering::Relaxed);
    if clear_tid != 0 {
        // Whether the store succeeds or not, as on Linux: who waits there looks for itself.
        let _ = mm::put(thread.space(), clear_tid, &0u32);
        wake_one(thread.space(), clear_tid);
    }
    thread.usage.leaving_kernel();
    {
        let mut past = process.past.lock();
        *past = *past + thread.usage.read();
    }
    let successor = thread.successor.lock().take();
    if let Some(new) = successor {
        leave_memory(thread);
        process.release_parent();
        delay::step();
        process.hand_over(thread, &new);
        return sched::start(&new);
    }
    let status = thread.exiting.load(Ordering::Relaxed) as u8;
    if process.remove_thread(thread) {
        process.begin_end(End::Exit(status));
        stats::at_end(process, thread.mm());
        leave_memory(thread);
        finish(process);
    } else {
        leave_memory(thread);
        process.tell_if_all_are_parked();
        process.watchers.wake_all();
    }
}

/// Taking the pages away is work on the program's behalf, too.
fn leave_memory(thread: &Thread) {
    let begin = time::now_ns();
    thread.mm().leave();
    thread.process().past.lock().system_ns += time::now_ns() - begin;
}

impl Process {
    /// Takes an ended thread off the list; whether it was the last.
    fn remove_thread(&self, thread: &Thread) -> bool {
        let mut threads = self.threads.lock();
        let gone = threads.remove(&thread.tid);
        let last = threads.is_empty();
        drop(threads);
        drop(gone);
        self.end_life_of(thread);
        last
    }

    /// The old thread is through: the new one takes its place, and the signals that were
    /// sent to it until now. A sender that has found the old one before finds out
    /// (`ThreadSignals::has_moved`).
    fn hand_over(&self, old: &Thread, new: &Arc<Thread>) {
        let mut threads = self.threads.lock();
        let gone = threads.remove(&old.tid);
        let replaced = threads.insert(new.tid, new.clone());
        let mut from = old.signals.lock();
        from.has_moved = true;
        new.signals.lock().pending = core::mem::take(&mut from.pending);
        drop(from);
        drop(threads);
        drop((gone, replaced));
        self.end_life_of(old);
    }
    /// A thread is in its process's list no more. The life of the first one is the process's.
    fn end_life_of(&self, thread: &Thread) {
        if thread.tid != self.pid {
            thread.life.end_and_forget();
        }
    }
}

/// Nobody runs in the process any more: gives back what it has and says so.
fn finish(process: &Process) {
    process.alarm.set(process.pid, 0, 0);
    file::locks::release(file::locks::Owner::Process(process.pid), None);
    let files = process.files.lock().take_all();
    drop(files);
    process.peak_at_end();
    process.set_mm(None);
    let orphans = table::children(process.pid);
    let groups = groups_tied_by(process, &orphans);
    // First, under the table's lock: a child that asks for a signal and still finds
    // its parent after that has asked in time.
    table::disown_children(process.pid);
    for (orphan, _) in orphans {
        let signal = orphan.death_signal.load(Ordering::Relaxed);
        if signal != 0 {
            send::to_process(&orphan, Info::sent(signal.into(), 0, process.pid));
        }
    }
    groups.iter().for_each(|group| hang_up_if_orphaned(*group, process.pid));
    process.life.end();
    delay::step();
    process.release_parent();
    tell_parent(process);
}

/// Groups that the end of `process` may make orphans of: those of its children, and its
/// own.
fn groups_tied_by(process: &Process, children: &[(Arc<Process>, u32)]) -> Vec<u32> {
    let Some((own, session)) = table::group_and_session(process.pid) else { return Vec::new() };
    let is_in_session = |pid: u32| table::group_and_session(pid).filter(|(_, s)| *s == session);
    let tied = children.iter().filter(|(child, group)| *group != own && is_in_session(child.pid).is_some());
    let mut groups: Vec<u32> = tied.map(|(_, group)| *group).collect();
    if is_in_session(process.parent_pid()).is_some_and(|(group, _)| group != own) {
        groups.push(own);
    }
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// Nobody would continue stopped members of an orphaned group: they are told so, and
/// continued.
fn hang_up_if_orphaned(group: u32, without: u32) {
    let is_stopped = |member: &Arc<Process>| member.pid != without && member.stop.is_stopped();
    if table::is_orphaned(group) && table::in_group(group).iter().any(is_stopped) {
        for signal in [SIGHUP, SIGCONT] {
            send::to_group(group, Info { signal, code: SI_KERNEL, ..Info::default() });
        }
    }
}

fn tell_parent(process: &Process) {
    let parent = table::find(process.parent_pid()).filter(|p| !p.has_ended());
    let Some(parent) = parent else {
        table::remove(process.pid);
        return;
    };
    let signal = u32::from(process.exit_signal);
    // Read once: a parent that changes it meanwhile gets the signal and the end, or neither.
    let action = parent.actions.lock()[SIGCHLD as usize - 1];
    let is_ignored = signal == SIGCHLD && action.handler == SIG_IGN;
    if signal != 0 && !is_ignored {
        send::to_process(&parent, end_info(process, signal));
    }
    if is_ignored || signal == SIGCHLD && action.flags & u64::from(SA_NOCLDWAIT) != 0 {
        table::remove(process.pid);
    }
    process.told.store(true, Ordering::Release);
    parent.watchers.wake_all();
}

/// SIGCHLD's code for the end of a child.
fn end_info(process: &Process, signal: u32) -> Info {
    let (code, status) = match process.end() {
        Some(End::Signal(number)) => (CLD_KILLED, number),
        Some(End::Exit(status)) => (CLD_EXITED, status),
        _ => (CLD_DUMPED, 0),
    };
    Info::of_child(signal, code as i32, process.pid, status.into())
}

/// Marks the robust futexes that the thread holds as left by a dead owner
/// (get_robust_list(2)). Whatever the list looks like, the worst is that it is
/// not followed.
fn release_robust(thread: &Thread) {
    let head = thread.robust_list.load(Ordering::Relaxed);
    if head == 0 {
        return;
    }
    let word = |addr: u64| mm::get::<u64>(thread.space(), addr).ok();
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

/// Wakes one thread that waits at a word of the program's, if it is there.
fn wake_one(space: &Space, addr: u64) {
    if let Ok(key) = Key::of(space, addr, false) {
        futex::wake(key, 1, u32::MAX);
    }
}

fn release_one(thread: &Thread, addr: u64) {
    let died = |value: u32| (value & FUTEX_TID_MASK == thread.tid).then_some(value & FUTEX_WAITERS | FUTEX_OWNER_DIED);
    if let Ok(old) = mm::update(thread.space(), addr, died)
        && old & FUTEX_TID_MASK == thread.tid
        && old & FUTEX_WAITERS != 0
    {
        wake_one(thread.space(), addr);
    }
}
