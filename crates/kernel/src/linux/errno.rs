//! Results of system calls. The error numbers are the library's; here is how an
//! interrupted call goes on.

pub use softfault::Errno;

/// When a call that was interrupted is made again; else it fails with EINTR.
/// signal(7) says which call is of which kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restart {
    /// Always.
    Always,
    /// Unless a handler runs that was set without SA_RESTART.
    AsAsked,
    /// Unless a handler runs.
    Unhandled,
    /// Unless a handler runs or the process was stopped: only if another thread
    /// took the signal.
    Untouched,
}

/// Result of a system call: a value for `rax`, or an error.
pub type Result<T = u64> = core::result::Result<T, Errno>;

impl Restart {
    /// The number that stands for it between a call and [`settle`], beyond all that a
    /// program sees. It is for `signal::deliver` alone, which decides what becomes of
    /// the call.
    pub const fn errno(self) -> Errno {
        match self {
            Restart::AsAsked => Errno(512),
            Restart::Unhandled => Errno(513),
            Restart::Untouched => Errno(514),
            Restart::Always => Errno(515),
        }
    }

    /// How the call goes on, if the number says that it was interrupted.
    pub const fn of(errno: Errno) -> Option<Restart> {
        match errno.0 {
            512 => Some(Restart::AsAsked),
            513 => Some(Restart::Unhandled),
            514 => Some(Restart::Untouched),
            515 => Some(Restart::Always),
            _ => None,
        }
    }

    /// If the call was interrupted: it goes on in this way.
    pub fn instead_of(self, errno: Errno) -> Errno {
        if Restart::of(errno).is_some() { self.errno() } else { errno }
    }
}

/// Returns the value for `rax`, or how a call that was interrupted goes on. The only way
/// from an `Errno` to a register.
pub fn settle(result: Result) -> core::result::Result<u64, Restart> {
    match result {
        Ok(value) => Ok(value),
        Err(errno) => Restart::of(errno).map_or(Ok((-i64::from(errno.0)) as u64), Err),
    }
}
