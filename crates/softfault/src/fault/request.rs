//! What a fault is asked for.

use crate::addr::{Access, Vpn};

/// What a fault is about. Two words, so that it stays in registers.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) vpn: Vpn,
    pub(crate) want: Want,
}

/// What a fault has to make possible.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// An access of the program's.
    Access(Access),
    /// A write for which rights of the VMA do not matter: a debugger's, a program
    /// loader's.
    ForcedWrite,
    /// A private page that no other space maps, whether it may be written or not:
    /// what a pin for reading needs, too. Shared memory is only read.
    Unshare,
}

impl Request {
    #[inline(always)]
    pub(crate) fn access(self) -> Access {
        match self.want {
            Want::Access(access) => access,
            Want::ForcedWrite => Access::Write,
            Want::Unshare => Access::Read,
        }
    }

    /// Whether a private page has to be the space's alone afterwards.
    #[inline(always)]
    pub(crate) fn wants_own(self) -> bool {
        matches!(self.want, Want::Access(Access::Write) | Want::ForcedWrite | Want::Unshare)
    }

    /// The access that the policy is asked about: a page of the space's own is asked
    /// for as a write is.
    #[inline(always)]
    pub(crate) fn access_for_policy(self) -> Access {
        if self.wants_own() { Access::Write } else { self.access() }
    }
}
