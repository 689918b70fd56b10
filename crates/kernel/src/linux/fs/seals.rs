//! Seals of a file: what may never again be done to it, fcntl(2) with F_ADD_SEALS. A
//! file has them beside its content, under the lock of its writers, so that nothing
//! they forbid is under way when they are there.

use crate::linux::errno::{self, Errno};

bitflags::bitflags! {
    /// Values as fcntl(2) has them.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Seals: u32 {
        /// No further seals.
        const SEAL = 1;
        /// Not to be made smaller.
        const SHRINK = 2;
        /// Not to be made larger.
        const GROW = 4;
        /// Not to be written.
        const WRITE = 8;
        /// Not to be written but through mappings that are there.
        const FUTURE_WRITE = 16;
        /// Rights to execute stay as they are.
        const EXEC = 32;
    }
}

impl Seals {
    /// Neither write(2) nor a new mapping may change the bytes.
    pub const NO_WRITES: Seals = Seals::WRITE.union(Seals::FUTURE_WRITE);
    /// Seals that `EXEC` adds to a file that could be executed.
    pub(super) const WITH_EXEC: Seals = Seals::NO_WRITES.union(Seals::SHRINK).union(Seals::GROW);

    /// EPERM where one of `forbidding` is there.
    pub fn check(self, forbidding: Seals) -> errno::Result<()> {
        if self.intersects(forbidding) { Err(Errno::EPERM) } else { Ok(()) }
    }
}
