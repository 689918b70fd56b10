//! Sockets: there is only socketpair(2), which pipes can replace.

use super::call::Call;
use super::file::add_both;
use super::path::open_file;
use crate::linux::errno::{self, Errno};
use crate::linux::file;
use crate::linux::fs::Body;
use linux_raw_sys::general::{O_CLOEXEC, O_NONBLOCK};

const AF_UNIX: u32 = 1;
const SOCK_STREAM: u32 = 1;

pub fn socketpair(call: &mut Call) -> errno::Result {
    let (family, kind, protocol) = (call.int(0), call.int(1), call.int(2));
    let flags = kind & (O_CLOEXEC | O_NONBLOCK);
    if family != AF_UNIX {
        return Err(Errno::EAFNOSUPPORT);
    }
    if kind & !flags != SOCK_STREAM {
        return Err(Errno::EOPNOTSUPP);
    }
    if protocol > 1 {
        return Err(Errno::EPROTONOSUPPORT);
    }
    add_both(call, file::new_pair(flags & O_NONBLOCK)?, flags, call.args[3])
}

/// Refuses a call on a socket: it is not supported, or the file is no socket.
pub fn none(call: &mut Call) -> errno::Result {
    let open = open_file(call, 0)?;
    Err(if matches!(open.inode.body, Body::Socket) { Errno::EOPNOTSUPP } else { Errno::ENOTSOCK })
}
