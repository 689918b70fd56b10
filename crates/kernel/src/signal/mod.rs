//! Signals: what is pending, what is to be done, sending. Delivery is in
//! `deliver`, the frame on the program's stack in `layout`.
//!
//! One signal of each number is pending at a time, real-time signals included.

pub mod deliver;
pub mod layout;

use crate::arch::{apic, cpu};
use crate::process::Process;
use crate::sched::{self, Thread};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::general::{
    SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SIGCHLD, SIGCONT, SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU,
    SIGURG, SIGWINCH,
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
/// Whose default is to do nothing. Stopping a program is not supported: the
/// stop signals count among them.
const IGNORED_BY_DEFAULT: u64 = bit(SIGCHLD)
    | bit(SIGCONT)
    | bit(SIGURG)
    | bit(SIGWINCH)
    | bit(SIGSTOP)
    | bit(SIGTSTP)
    | bit(SIGTTIN)
    | bit(SIGTTOU);

/// What a program wants done on a signal; as the raw call has it.
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

/// What a handler is told.
#[derive(Clone, Copy, Default)]
pub struct Info {
    /// Which signal.
    pub signal: u32,
    /// `si_code`.
    pub code: i32,
    /// `si_addr`, or `si_pid` and `si_uid`.
    pub value: u64,
}

impl Info {
    /// Sent by a program: `code` is `SI_USER` or `SI_TKILL`.
    pub fn sent(signal: u32, code: i32, pid: u32) -> Info {
        Info { signal, code, value: u64::from(pid) }
    }
}

/// Signals that wait.
#[derive(Clone)]
pub struct Pending {
    set: u64,
    info: [(i32, u64); NR_SIGNALS],
}

impl Default for Pending {
    fn default() -> Pending {
        Pending { set: 0, info: [(0, 0); NR_SIGNALS] }
    }
}

impl Pending {
    /// Which ones.
    pub fn set(&self) -> u64 {
        self.set
    }
    /// Adds one; the same a second time changes nothing.
    pub fn add(&mut self, info: Info) {
        if self.set & bit(info.signal) == 0 {
            self.set |= bit(info.signal);
            self.info[info.signal as usize - 1] = (info.code, info.value);
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
        let (code, value) = self.info[at as usize];
        Some(Info { signal: at + 1, code, value })
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
    thread.attention.store(true, Ordering::SeqCst);
    sched::wake(thread);
    if thread.is_on_cpu() {
        let me = cpu::index();
        (0..cpu::nr_cpus()).filter(|c| *c != me).for_each(apic::poke);
    }
}

/// Sends to one thread.
pub fn send_to_thread(thread: &Arc<Thread>, info: Info) {
    thread.signals.lock().pending.add(info);
    interrupt(thread);
}

/// Sends to a process; any thread that does not block it may take it.
pub fn send_to_process(process: &Process, info: Info) {
    process.pending.lock().add(info);
    process.all_threads().iter().for_each(interrupt);
}
