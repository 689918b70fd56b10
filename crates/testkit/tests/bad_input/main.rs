//! Any 64-bit address, length, flags to every call: no panic, no endless loop, all
//! invariants afterwards; and the errno that Linux gives.

mod any;
#[path = "../common/mod.rs"]
mod common;
mod errno;

use common::*;
use softfault::{Access, Advice, CpuId, Errno, MapFlags, MremapFlags, Pin, Prot, Term, Vm};
use softfault_host::Hosted;
use softfault_testkit::random::Random;

/// First address past the user part.
const TOP: u64 = (1 << 47) - PAGE;
const MAX: u64 = u64::MAX;

// Numbers, as a program gives them.
const NONE: u64 = common::NONE.to_linux();
const READ: u64 = common::READ.to_linux();
const RW: u64 = common::RW.to_linux();
const RWX: u64 = common::RWX.to_linux();
const SHARED: u64 = common::SHARED.to_linux();
const PRIVATE: u64 = common::PRIVATE.to_linux();
const FIXED: u64 = common::FIXED.to_linux();
const GROWSDOWN: u64 = common::GROWSDOWN.to_linux();
const DONTNEED: u64 = common::DONTNEED.to_linux();
const FREE: u64 = common::FREE.to_linux();
const DONTFORK: u64 = common::DONTFORK.to_linux();
const WIPEONFORK: u64 = common::WIPEONFORK.to_linux();
const POPULATE_READ: u64 = common::POPULATE_READ.to_linux();
const POPULATE_WRITE: u64 = common::POPULATE_WRITE.to_linux();
const GUARD_INSTALL: u64 = common::GUARD_INSTALL.to_linux();
const GUARD_REMOVE: u64 = common::GUARD_REMOVE.to_linux();

fn mmap(space: &Space<'_>, addr: u64, len: u64, prot: u64, flags: u64) -> Result<u64, Errno> {
    space.mmap(addr, len, Prot::from_linux(prot), MapFlags::from_linux(flags)).map_err(|e| e.errno())
}

fn mprotect(space: &Space<'_>, addr: u64, len: u64, prot: u64) -> Result<(), Errno> {
    space.mprotect(addr, len, Prot::from_linux(prot)).map_err(|e| e.errno())
}

fn mremap(space: &Space<'_>, old: u64, old_len: u64, new_len: u64, flags: u64, new: u64) -> Result<u64, Errno> {
    space.mremap(old, old_len, new_len, MremapFlags::from_linux(flags), new).map_err(|e| e.errno())
}

fn madvise(space: &Space<'_>, addr: u64, len: u64, advice: u64) -> Result<(), Errno> {
    let advice = Advice::from_linux(advice).map_err(|e| e.errno())?;
    space.madvise(addr, len, advice).map_err(|e| e.errno())
}

fn machine() -> Vm<Hosted> {
    Setup::PLAIN.vm(1, 6 << 20)
}
