//! The request of a fault.

use crate::addr::{Access, Vpn};

/// The page and the purpose. Two words, so that it stays in registers.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) vpn: Vpn,
    pub(crate) want: Want,
}

/// The access that a fault has to make possible.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// An access of the program's.
    Access(Access),
    /// A read of a page of an object, if it can be mapped without a wait for its content: else it is refused as missing.
    Ready,
    /// A read that ignores the rights of the VMA: by a debugger.
    ForcedRead,
    /// A write that ignores the rights of the VMA: by a debugger or a program loader.
    ForcedWrite,
    /// A private page that no other space maps, whether it may be written or not. A pin for reading
    /// needs that, too. Shared memory is only read.
    Unshare,
}

impl Request {
    #[inline(always)]
    pub(crate) fn access(self) -> Access {
        match self.want {
            Want::Access(access) => access,
            Want::ForcedWrite => Access::Write,
            Want::ForcedRead | Want::Ready | Want::Unshare => Access::Read,
        }
    }

    /// Whether a private page has to be unshared afterwards.
    #[inline(always)]
    pub(crate) fn wants_own(self) -> bool {
        matches!(self.want, Want::Access(Access::Write) | Want::ForcedWrite | Want::Unshare)
    }

    /// The access for the policy: unsharing counts as a write.
    #[inline(always)]
    pub(crate) fn access_for_policy(self) -> Access {
        if self.wants_own() { Access::Write } else { self.access() }
    }
}
