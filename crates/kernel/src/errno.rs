//! Linux's error numbers, as system calls return them.

use linux_raw_sys::errno as raw;

/// An error number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub u16);

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
    /// Never seen by a program: the call was interrupted before it did anything,
    /// and is made again unless a handler runs that does not want that.
    pub const RESTART: Errno = Errno(512);

    /// As `rax` has it.
    pub fn as_rax(self) -> u64 {
        (-i64::from(self.0)) as u64
    }
}
