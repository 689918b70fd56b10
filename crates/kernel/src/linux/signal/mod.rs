//! Signals: what is pending, and what a program wants done about them. This file names no
//! process and no thread. They are sent in `send` and delivered in `deliver`; the frame
//! on the program's stack is in `layout`.
//!
//! One signal of each number is pending at a time, real-time signals included.

pub mod deliver;
pub mod layout;
mod report;
pub mod send;

use linux_raw_sys::general::{
    SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SIGCHLD, SIGCONT, SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU,
    SIGURG, SIGWINCH,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Signals are 1 to this.
pub const NR_SIGNALS: usize = 64;

/// `si_code` of what the kernel sends on its own.
pub const SI_KERNEL: i32 = 0x80;

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

/// Forgets handlers; ignored signals stay ignored.
pub fn forget_handlers(actions: &mut [Action; NR_SIGNALS]) {
    for action in actions.iter_mut() {
        let handler = if action.handler == SIG_IGN { SIG_IGN } else { SIG_DFL };
        *action = Action { handler, ..Action::default() };
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
    /// One more is on its way.
    pub fn add(&mut self, signal: u32) {
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
pub fn with(set: u64, signal: u32) -> u64 {
    let not_any_more = match () {
        () if signal == SIGCONT => STOPS,
        () if bit(signal) & STOPS != 0 => bit(SIGCONT),
        () => 0,
    };
    set & !not_any_more | bit(signal)
}
