//! mlock(2) and its kin: the library's, with the limit that the process has.

use super::call::{Call, to_errno};
use crate::linux::errno;
use softfault::{MlockFlags, MlockallFlags};

fn lock(call: &Call, flags: MlockFlags) -> errno::Result {
    to_errno!(call.space().mlock(call.args[0], call.args[1], flags)).map(|()| 0)
}

pub fn mlock(call: &mut Call) -> errno::Result {
    lock(call, MlockFlags::empty())
}

pub fn mlock2(call: &mut Call) -> errno::Result {
    lock(call, MlockFlags::from_linux(call.args[2]))
}

pub fn munlock(call: &mut Call) -> errno::Result {
    to_errno!(call.space().munlock(call.args[0], call.args[1])).map(|()| 0)
}

pub fn mlockall(call: &mut Call) -> errno::Result {
    to_errno!(call.space().mlockall(MlockallFlags::from_linux(call.args[0]))).map(|()| 0)
}

pub fn munlockall(call: &mut Call) -> errno::Result {
    to_errno!(call.space().munlockall()).map(|()| 0)
}
