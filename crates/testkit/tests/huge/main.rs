//! Huge pages in one address space after another: what each operation does to a
//! whole one and to a part of one, with every invariant checked after each step.

#[path = "../common/mod.rs"]
mod common;
mod faults;
mod generated;
mod parts;
mod shared;

use common::huge::{AT, DONTNEED, HUGE, byte, huge_pages, map, vm, with_space};
use common::{FREE, GUARD_INSTALL, GUARD_REMOVE, Hosted, MAYMOVE, MREMAP_FIXED, NONE, PAGE, READ, RW, check};
use softfault::addr::Access;
use softfault::policy::huge::{CowHuge, Enabled, SizeEnabled};
use softfault::{AddressSpace, Advice, CpuId, Event, FaultDone, HugeKnobs, MlockFlags, Order, RssPages};

fn knobs() -> HugeKnobs {
    HugeKnobs::DEFAULT.with_enabled(Enabled::Always)
}
