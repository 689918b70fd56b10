//! Signals: what is pending, what is to be done, sending. Delivery is in
//! `deliver`, the frame on the program's stack in `layout`.
//!
//! One signal of each number is pending at a time, real-time signals included.

pub mod deliver;
pub mod layout;
mod report;

use crate::linux::process::{self, Process};
use crate::linux::thread::Thread;
use crate::port::arch::{apic, cpu};
use crate::port::power::End;
use crate::port::sched::{self, delay};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::general::{
    SA_NOCLDSTOP, SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SIGCHLD, SIGCONT, SIGKILL, SIGSTOP, SIGTSTP,
    SIGTTIN, SIGTTOU, SIGURG, SIGWINCH,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Signals are 1 to this.
pub const NR_SIGNALS: usize = 64;

/// Default action.
pub const SIG_DFL: u64 = 0;
/// Ignored.
pub const SIG_IGN: u64 = 1;

/// Bit of a signal in masks.
pub const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// Cannot be blocked, ignored or handled.
pub const UNBLOCKABLE: u64 = bit(SIGKILL) | bit(SIGSTOP);
/// Signals that are ignored by default.
const IGNORED_BY_DEFAULT: u64 = bit(SIGCHLD) | bit(SIGCONT) | bit(SIGURG) | bit(SIGWINCH);
/// Signals that stop the process by default.
pub const STOPS: u64 = bit(SIGSTOP) | bit(SIGTSTP) | bit(SIGTTIN) | bit(SIGTTOU);

/// The action of a program on a signal; as the raw call has it.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Action {
    /// The handler, or [`SIG_DFL`], [`SIG_IGN`].
    pub handler: u64,
    /// `SA_*`.
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: u64,
    /// Blocked while it runs.
    pub mask: u64,
}

impl Action {
    fn has(&self, flag: u32) -> bool {
        self.flags & u64::from(flag) != 0
    }
    /// Run on the alternate stack.
    pub fn on_alt_stack(&self) -> bool {
        self.has(SA_ONSTACK)
    }
    /// Restart the call that was interrupted.
    pub fn restarts(&self) -> bool {
        self.has(SA_RESTART)
    }
    /// Do not block the signal while its handler runs.
    pub fn nests(&self) -> bool {
        self.has(SA_NODEFER)
    }
    /// Go back to the default when it is delivered.
    pub fn once(&self) -> bool {
        self.has(SA_RESETHAND)
    }
}

/// The arguments of a handler.
#[derive(Clone, Copy, Default)]
pub struct Info {
    /// Which signal.
    pub signal: u32,
    /// `si_code`.
    pub code: i32,
    /// `si_addr`, or `si_pid` and `si_uid`.
    pub value: u64,
    /// `si_status`, or the value of sigqueue(3).
    pub extra: u64,
    /// For signals that stop: how often the process had been continued when this one
    /// was sent. A stop that SIGCONT has overtaken is none.
    pub nr_resumes: u64,
}

impl Info {
    /// Sent by a program: `code` is `SI_USER` or `SI_TKILL`.
    pub fn sent(signal: u32, code: i32, pid: u32) -> Info {
        Info { signal, code, value: u64::from(pid), ..Info::default() }
    }
    /// About a child: `code` is one of `CLD_*`, `status` what it exited with or
    /// the signal.
    pub fn of_child(signal: u32, code: i32, pid: u32, status: u64) -> Info {
        Info { signal, code, value: u64::from(pid), extra: status, ..Info::default() }
    }
    /// Of a fault: of an instruction at `address`, or of an access to it.
    pub fn of_fault(signal: u32, code: u32, address: u64) -> Info {
        Info { signal, code: code as i32, value: address, ..Info::default() }
    }
}

/// Signals that wait.
#[derive(Clone)]
pub struct Pending {
    set: u64,
    info: [(i32, u64, u64); NR_SIGNALS],
    /// Of the last one that stops.
    nr_resumes: u64,
}

impl Default for Pending {
    fn default() -> Pending {
        Pending { set: 0, info: [(0, 0, 0); NR_SIGNALS], nr_resumes: 0 }
    }
}

impl Pending {
    /// Which ones.
    pub fn set(&self) -> u64 {
        self.set
    }
    /// Adds one; the same a second time changes nothing, but a stop is as good as the
    /// last one.
    pub fn add(&mut self, info: Info) {
        self.nr_resumes = self.nr_resumes.max(info.nr_resumes);
        if self.set & bit(info.signal) == 0 {
            self.set |= bit(info.signal);
            self.info[info.signal as usize - 1] = (info.code, info.value, info.extra);
        }
    }
    /// Takes the lowest one that is not in `mask`.
    pub fn take(&mut self, mask: u64) -> Option<Info> {
        let wanted = self.set & !mask;
        if wanted == 0 {
            return None;
        }
        let at = wanted.trailing_zeros();
        self.set &= !(1 << at);
        let (code, value, extra) = self.info[at as usize];
        Some(Info { signal: at + 1, code, value, extra, nr_resumes: self.nr_resumes })
    }
    /// Forgets these.
    fn drop_set(&mut self, set: u64) {
        self.set &= !set;
    }
}

fn is_ignored(action: &Action, signal: u32) -> bool {
    match action.handler {
        SIG_IGN => bit(signal) & UNBLOCKABLE == 0,
        SIG_DFL => bit(signal) & IGNORED_BY_DEFAULT != 0,
        _ => false,
    }
}

/// Whether one of the `wanted` signals would do anything.
pub fn any_effective(actions: &[Action; NR_SIGNALS], wanted: u64) -> bool {
    (0..NR_SIGNALS).any(|i| wanted & 1 << i != 0 && !is_ignored(&actions[i], i as u32 + 1))
}

/// Makes a thread look at what waits for it: ends its sleep, and brings it into
/// the kernel if it runs.
pub fn interrupt(thread: &Arc<Thread>) {
    delay::step();
    thread.attention.store(true, Ordering::SeqCst);
    sched::wake(thread);
    if thread.is_on_cpu() {
        let me = cpu::index();
        (0..cpu::nr_cpus()).filter(|c| *c != me).for_each(apic::poke);
    }
}

/// Forgets handlers; ignored signals stay ignored.
pub fn forget_handlers(actions: &mut [Action; NR_SIGNALS]) {
    for action in actions.iter_mut() {
        let handler = if action.handler == SIG_IGN { SIG_IGN } else { SIG_DFL };
        *action = Action { handler, ..Action::default() };
    }
}

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
pub fn send_to_thread(thread: &Arc<Thread>, mut info: Info) {
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
pub fn send_to_process(process: &Process, info: Info) {
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
pub fn send_to_group(group: u32, info: Info) {
    send_to_members(&process::table::members_for(info.signal, |_, of| of == group), info);
}

/// Sends to those that `table::members_for` found for this signal.
pub fn send_to_members(members: &[Arc<Process>], info: Info) {
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

/// Signals to several processes that are on their way to one of them.
pub struct Coming {
    /// Those that a child gets that is forked now.
    pub set: u64,
    nr_sends: [u16; NR_SIGNALS],
}

impl Default for Coming {
    fn default() -> Coming {
        Coming { set: 0, nr_sends: [0; NR_SIGNALS] }
    }
}

impl Coming {
    fn add(&mut self, signal: u32) {
        self.nr_sends[signal as usize - 1] += 1;
        self.set = with(self.set, signal);
    }
    fn remove(&mut self, signal: u32) {
        let nr_sends = &mut self.nr_sends[signal as usize - 1];
        *nr_sends -= 1;
        if *nr_sends == 0 {
            self.set &= !bit(signal);
        }
    }
}

/// A set with one more signal: SIGCONT takes stops away, and they it.
fn with(set: u64, signal: u32) -> u64 {
    let not_any_more = match () {
        () if signal == SIGCONT => STOPS,
        () if bit(signal) & STOPS != 0 => bit(SIGCONT),
        () => 0,
    };
    set & !not_any_more | bit(signal)
}

/// Has the children that a process is forking, or begins to fork before the signal has
/// arrived, get a signal that it is to be sent. The caller has the table's lock: they are
/// added before or after.
pub fn note_for_forks(process: &Process, signal: u32) {
    process.coming.lock().add(signal);
    for thread in process.threads.lock().values() {
        if let Some(forking) = &mut thread.signals.lock().forking {
            *forking = with(*forking, signal);
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
fn stop(process: &Process, info: &Info) {
    delay::step();
    if process.stop.stop(info.signal, info.nr_resumes) {
        process.all_threads().iter().for_each(interrupt);
    }
}

/// Tells the parent that a child was stopped or goes on.
pub fn tell_parent(process: &Process, code: u32, signal: u32) {
    let Some(parent) = process::find(process.parent_pid()) else { return };
    let action = parent.actions.lock()[SIGCHLD as usize - 1];
    if action.handler != SIG_IGN && !action.has(SA_NOCLDSTOP) {
        send_to_process(&parent, Info::of_child(SIGCHLD, code as i32, process.pid, signal.into()));
    }
    parent.watchers.wake_all();
}
