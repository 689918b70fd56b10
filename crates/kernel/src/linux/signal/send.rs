//! Sending signals: to a thread, a process, a group; and the news to a parent that a child
//! was stopped or goes on.
//!
//! No lock is held on entry. A process's actions are locked before what is pending.

use super::{Action, Info, SIG_IGN, STOPS, bit, is_ignored};
use crate::linux::process::thread::{Thread, interrupt};
use crate::linux::process::{Process, table};
use crate::port::power::End;
use crate::port::sched::delay;
use alloc::sync::Arc;
use linux_raw_sys::general::{SA_NOCLDSTOP, SIGCHLD, SIGCONT, SIGKILL};

/// Whether a signal to this process can ever matter: one that is ignored matters
/// only while somebody blocks it.
fn matters(process: &Process, action: &Action, signal: u32) -> bool {
    let is_blocked = |thread: &Arc<Thread>| thread.signals.lock().mask & bit(signal) != 0;
    !is_ignored(action, signal) || process.threads.lock().values().any(is_blocked)
}

/// Does `add` if the signal matters; whether it did. The lock on the actions is held
/// meanwhile: a signal that comes to be ignored is either discarded then or not added.
fn add_if_it_matters(process: &Process, signal: u32, add: impl FnOnce()) -> bool {
    let actions = process.actions.lock();
    let matters = matters(process, &actions[signal as usize - 1], signal);
    if matters {
        add();
    }
    matters
}

/// Sets what happens on a signal; gives what happened before. One that is ignored from
/// now on is discarded where it waits, also where it is blocked.
pub fn set_action(process: &Process, signal: u32, action: Action) -> Action {
    let mut actions = process.actions.lock();
    let before = core::mem::replace(&mut actions[signal as usize - 1], action);
    if is_ignored(&action, signal) {
        drop_pending(process, bit(signal));
    }
    before
}

/// Does what some signals do when they are sent, not when they are taken. Returns whether
/// the signal is to wait for a thread that takes it.
fn act_on_sending(process: &Process, info: &mut Info) -> bool {
    let signal = info.signal;
    if signal == SIGKILL {
        // Also of threads that take no signals, because they are stopped or wait in vfork(2).
        process.begin_end(End::Signal(SIGKILL as u8));
        return false;
    }
    if signal == SIGCONT {
        drop_pending(process, STOPS);
        if let Some((code, signal)) = process.stop.resume() {
            process.all_threads().iter().for_each(interrupt);
            tell_parent(process, code, signal);
        }
    } else if bit(signal) & STOPS != 0 {
        drop_pending(process, bit(SIGCONT));
        info.nr_resumes = process.stop.nr_resumes();
    }
    true
}

fn drop_pending(process: &Process, set: u64) {
    process.pending.lock().drop_set(set);
    process.threads.lock().values().for_each(|thread| thread.signals.lock().pending.drop_set(set));
}

/// Sends to one thread.
pub fn to_thread(thread: &Arc<Thread>, mut info: Info) {
    if !act_on_sending(thread.process(), &mut info) {
        return;
    }
    delay::step();
    let mut to = thread.clone();
    loop {
        let mut has_moved = false;
        let add = || {
            let mut signals = to.signals.lock();
            has_moved = signals.has_moved;
            if !has_moved {
                signals.pending.add(info);
            }
        };
        if !add_if_it_matters(to.process(), info.signal, add) {
            return;
        }
        if !has_moved {
            return interrupt(&to);
        }
        let next = to.process().threads.lock().get(&to.tid).cloned();
        match next {
            Some(next) => to = next,
            None => return,
        }
    }
}

/// Sends to a process; any thread that does not block it may take it.
pub fn to_process(process: &Process, info: Info) {
    send_then(process, info, || ());
}

/// The same, with a call of `arrived` once a thread that looks finds the signal, or there is
/// nothing to find; threads are brought to look after that.
fn send_then(process: &Process, mut info: Info, arrived: impl Fn()) {
    if !act_on_sending(process, &mut info) {
        return arrived();
    }
    let add = || {
        process.pending.lock().add(info);
        arrived();
    };
    if add_if_it_matters(process, info.signal, add) {
        process.all_threads().iter().for_each(interrupt);
    } else {
        arrived();
    }
}

/// Sends to all members of a group, also to those that are just being forked.
pub fn to_group(group: u32, info: Info) {
    to_members(&table::members_for(info.signal, |_, of| of == group), info);
}

/// Sends to those that `table::members_for` found for this signal.
pub fn to_members(members: &[Arc<Process>], info: Info) {
    for member in members {
        delay::step();
        let arrived = || member.coming.lock().remove(info.signal);
        if member.has_ended() {
            arrived();
        } else {
            send_then(member, info, arrived);
        }
    }
}

/// Whether this signal would stop the thread's process or run a handler, not be
/// passed over.
pub fn would_stop(thread: &Thread, signal: u32) -> bool {
    let action = thread.process().actions.lock()[signal as usize - 1];
    action.handler != SIG_IGN && thread.signals.lock().mask & bit(signal) == 0
}

/// Stops a process until SIGCONT, unless that was sent after the signal. The parent hears
/// of it when all threads have come to `deliver`.
pub(super) fn stop(process: &Process, info: &Info) {
    delay::step();
    if process.stop.stop(info.signal, info.nr_resumes) {
        process.all_threads().iter().for_each(interrupt);
    }
}

/// Tells the parent that a child was stopped or goes on.
pub fn tell_parent(process: &Process, code: u32, signal: u32) {
    let Some(parent) = table::find(process.parent_pid()) else { return };
    let action = parent.actions.lock()[SIGCHLD as usize - 1];
    if action.handler != SIG_IGN && !action.has(SA_NOCLDSTOP) {
        to_process(&parent, Info::of_child(SIGCHLD, code as i32, process.pid, signal.into()));
    }
    parent.watchers.wake_all();
}
