//! Arguments of Linux's memory calls as types of their own, so that a flag of one
//! call cannot be given to another.
//!
//! All are plain values. `from_linux` takes the number that a program gives in a
//! register on x86-64, and `to_linux` gives it back. Which bits a call ignores and
//! which it refuses is the call's decision, as on Linux; therefore the flag types keep
//! bits that have no name here.

mod advice;
mod map;
#[cfg(test)]
mod tests;

pub use advice::{Advice, AdviceError};
pub use map::{MapFlags, MapType};

use crate::addr::Rights;

bitflags::bitflags! {
    /// Protection that a call asks for (`PROT_*`).
    ///
    /// This is an argument, not what a page has: besides rights it can say how the
    /// range extends, and it can have bits that Linux ignores in mmap(2) and refuses
    /// in mprotect(2). A mapping grants [`Rights`]; [`Prot::rights`] converts.
    ///
    /// ```compile_fail,E0308
    /// use softfault::{AddressSpace, Machine, MapFlags};
    /// fn protect<M: Machine>(space: &AddressSpace<'_, M>) {
    ///     let _ = space.mprotect(0, 4096, MapFlags::SHARED); // expects a `Prot`
    /// }
    /// ```
    ///
    /// Source: mmap(2), mprotect(2).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
    pub struct Prot: u64 {
        /// `PROT_READ`: loads.
        const READ = 1;
        /// `PROT_WRITE`: stores.
        const WRITE = 2;
        /// `PROT_EXEC`: instruction fetches.
        const EXEC = 4;
        /// `PROT_SEM`: accepted and ignored.
        const SEM = 8;
        /// `PROT_GROWSDOWN`, in mprotect(2): from the start of a mapping that grows down.
        const GROWSDOWN = 0x0100_0000;
        /// `PROT_GROWSUP`, in mprotect(2): to the end of a mapping that grows up; there
        /// are none on x86-64.
        const GROWSUP = 0x0200_0000;
        const _ = !0;
    }
}

impl Prot {
    /// `PROT_NONE`: no access.
    pub const NONE: Prot = Prot::empty();

    /// The protection with Linux's number `prot`; keeps bits without a name.
    pub const fn from_linux(prot: u64) -> Prot {
        Prot::from_bits_retain(prot)
    }
    /// Linux's number.
    pub const fn to_linux(self) -> u64 {
        self.bits()
    }
    /// The rights among the bits.
    pub const fn rights(self) -> Rights {
        Rights::from_bits_truncate(self.bits() as u8)
    }
}

impl From<Rights> for Prot {
    fn from(rights: Rights) -> Prot {
        Prot::from_linux(rights.bits().into())
    }
}

bitflags::bitflags! {
    /// Flags of mremap(2) (`MREMAP_*`). A bit without a name is kept, and refused by
    /// the call.
    ///
    /// Source: mremap(2).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
    pub struct MremapFlags: u64 {
        /// `MREMAP_MAYMOVE`: the mapping may get another address.
        const MAYMOVE = 1;
        /// `MREMAP_FIXED`: to exactly that address; with `MAYMOVE`.
        const FIXED = 2;
        /// `MREMAP_DONTUNMAP`: the old range stays mapped and becomes empty; with `MAYMOVE`.
        const DONTUNMAP = 4;
        const _ = !0;
    }
}

impl MremapFlags {
    /// The flags with Linux's number `flags`; keeps bits without a name.
    pub const fn from_linux(flags: u64) -> MremapFlags {
        MremapFlags::from_bits_retain(flags)
    }
    /// Linux's number.
    pub const fn to_linux(self) -> u64 {
        self.bits()
    }
}

bitflags::bitflags! {
    /// Flags of msync(2) (`MS_*`). A bit without a name is kept, and refused by
    /// the call.
    ///
    /// Source: msync(2).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
    pub struct MsyncFlags: u32 {
        /// `MS_ASYNC`: pages are written some time.
        const ASYNC = 1;
        /// `MS_INVALIDATE`: other mappings see the file.
        const INVALIDATE = 2;
        /// `MS_SYNC`: pages are written before the call returns.
        const SYNC = 4;
        const _ = !0;
    }
}

impl MsyncFlags {
    /// The flags with Linux's number `flags`; keeps bits without a name. The system
    /// call takes an int: the high half does not count.
    pub const fn from_linux(flags: u64) -> MsyncFlags {
        MsyncFlags::from_bits_retain(flags as u32)
    }
    /// Linux's number.
    pub const fn to_linux(self) -> u64 {
        self.bits() as u64
    }
}

bitflags::bitflags! {
    /// Flags of mlock2(2) (`MLOCK_*`). A bit without a name is kept, and refused by
    /// the call.
    ///
    /// Source: mlock(2).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
    pub struct MlockFlags: u32 {
        /// `MLOCK_ONFAULT`: pages are locked when they are touched.
        const ONFAULT = 1;
        const _ = !0;
    }
}

impl MlockFlags {
    /// The flags with Linux's number `flags`; keeps bits without a name. The system
    /// call takes an int: the high half does not count.
    pub const fn from_linux(flags: u64) -> MlockFlags {
        MlockFlags::from_bits_retain(flags as u32)
    }
    /// Linux's number.
    pub const fn to_linux(self) -> u64 {
        self.bits() as u64
    }
}

bitflags::bitflags! {
    /// Flags of mlockall(2) (`MCL_*`). A bit without a name is kept, and refused by
    /// the call.
    ///
    /// Source: mlock(2).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
    pub struct MlockallFlags: u32 {
        /// `MCL_CURRENT`: what is mapped.
        const CURRENT = 1;
        /// `MCL_FUTURE`: what will be mapped.
        const FUTURE = 2;
        /// `MCL_ONFAULT`, with one of the others: pages are locked when they are touched.
        const ONFAULT = 4;
        const _ = !0;
    }
}

impl MlockallFlags {
    /// The flags with Linux's number `flags`; keeps bits without a name. The system
    /// call takes an int: the high half does not count.
    pub const fn from_linux(flags: u64) -> MlockallFlags {
        MlockallFlags::from_bits_retain(flags as u32)
    }
    /// Linux's number.
    pub const fn to_linux(self) -> u64 {
        self.bits() as u64
    }
}
