//! Linux's error numbers, as system calls return them.

use linux_raw_sys::errno as raw;

/// An error number, or word that a call was interrupted before it did anything.
/// The second is for `signal::deliver` alone, which decides what becomes of the
/// call: [`settle`] is the only way from an `Errno` to a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(u16);

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

/// What a system call gives: a value for `rax`, or an error.
pub type Result<T = u64> = core::result::Result<T, Errno>;

macro_rules! errnos {
    ($($name:ident),*) => {
        #[allow(missing_docs)] // as errno(3) has them
        impl Errno {
            $(pub const $name: Errno = Errno(raw::$name as u16);)*
        }
    };
}

errnos!(
    EPERM,
    ENOENT,
    ESRCH,
    EINTR,
    E2BIG,
    ENOEXEC,
    EBADF,
    ECHILD,
    EAGAIN,
    ENAMETOOLONG,
    ELOOP,
    ENOLCK,
    ELIBBAD,
    EEXIST,
    ENODEV,
    EMFILE,
    EPIPE,
    ENOMEM,
    EFAULT,
    EINVAL,
    ENOTTY,
    ESPIPE,
    ERANGE,
    ENOSYS,
    ETIMEDOUT,
    ENOSPC,
    EBUSY,
    EOVERFLOW,
    EIO,
    EISDIR,
    ENOTDIR,
    ENOTEMPTY,
    EXDEV,
    EACCES,
    EFBIG,
    ENXIO,
    EOPNOTSUPP,
    ETXTBSY,
    EAFNOSUPPORT,
    EPROTONOSUPPORT,
    ENOTSOCK
);

impl Errno {
    /// Interrupted: [`Restart::AsAsked`].
    pub const RESTART_AS_ASKED: Errno = Errno(512);
    /// Interrupted: [`Restart::Unhandled`].
    pub const RESTART_UNHANDLED: Errno = Errno(513);
    /// Interrupted: [`Restart::Untouched`].
    pub const RESTART_UNTOUCHED: Errno = Errno(514);

    /// Interrupted: [`Restart::Always`].
    pub const RESTART_ALWAYS: Errno = Errno(515);

    /// How the call goes on, if it was interrupted.
    pub fn restart(self) -> Option<Restart> {
        match self {
            Errno::RESTART_ALWAYS => Some(Restart::Always),
            Errno::RESTART_AS_ASKED => Some(Restart::AsAsked),
            Errno::RESTART_UNHANDLED => Some(Restart::Unhandled),
            Errno::RESTART_UNTOUCHED => Some(Restart::Untouched),
            _ => None,
        }
    }
    /// If the call was interrupted: it is of the kind of `other`.
    pub fn interrupted_as(self, other: Errno) -> Errno {
        if self.restart().is_some() { other } else { self }
    }
}

impl From<softfault::Errno> for Errno {
    fn from(errno: softfault::Errno) -> Errno {
        Errno(errno.0 as u16)
    }
}

impl core::fmt::Display for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "errno {}", self.0)
    }
}

/// What `rax` is to be, or how a call that was interrupted goes on.
pub fn settle(result: Result) -> core::result::Result<u64, Restart> {
    match result {
        Ok(value) => Ok(value),
        Err(errno) => errno.restart().map_or(Ok((-i64::from(errno.0)) as u64), Err),
    }
}
