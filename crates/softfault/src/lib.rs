//! A virtual-memory subsystem you can link: `mmap`, demand paging and
//! copy-on-write behind one [`handle_fault`](AddressSpace::handle_fault).
//!
//! A port implements [`Machine`], builds one [`Vm`] over its memory, makes an
//! [`AddressSpace`] per program, loads [`AddressSpace::tag`]`().root` into the
//! base register and calls `handle_fault` from its page-fault handler.
//!
//! # The house
//!
//! A folder is a station; a fault passes them in this order, and a station never
//! calls back up.
//!
//! | station | what it knows | what it must not know |
//! | --- | --- | --- |
//! | [`fault`](AddressSpace::handle_fault) | the order of steps, retrying | how anything is stored |
//! | `space` | VMAs, the operations on them | entries' bits |
//! | [`policy`] | a question and a plan, both values | memory, locks |
//! | `source` | where a page's bytes come from | tables |
//! | [`table`] | entries and how they may change | VMAs |
//! | [`account`] | counters | what they are for |
//! | `frame` | which frames are free, their descriptors | who maps them |
//! | `rmap` | families, from a frame to its entries | policy |
//! | `pin` | how a frame is held from outside | operations |
//! | `notify` | who hears of changes, who may look up | what they keep |
//! | `huge` | the knobs of huge pages, the steps of their daemons | threads |
//! | `compact` | how used frames move, so that free ones lie together | what faults are |
//!
//! Arguments have types of their own ([`Prot`], [`MapFlags`], [`MremapFlags`], [`Advice`], ...), which convert from and to
//! Linux's numbers.
//!
//! Below all: `sync` (the one door to shared memory), `mem` (typed views of
//! frames), `section` (the read side), `pace` (long passes answer other CPUs). [`clear`] is what clears and copies large
//! pages for all of them.
//!
//! # Lock order
//!
//! ```text
//! size lock of an object      sleeps; one change of size, one discard at a time
//! writer lock of a space      sleeps; one operation at a time
//!   family lock               spins
//!   need lock                 spins; one allocation waits for held frames
//!     thief lock              spins; one CPU empties others' groups
//! knobs of huge pages         spins; one change of them
//! a section                   holds nothing, waits for nothing
//!   lock bit of an entry      a few instructions; nothing is taken under it
//!   historic disciplines' spinlocks: the space's, or a leaf table's
//! LOCK of a folio             a pass over 512 descriptors; nothing is taken under it
//! an entry in state Busy      owned outside sections; its owner takes no lock
//! ```
//! Fork holds the parent's writer lock while it fills the child, which nobody
//! else can name. No other operation holds two.
//!
//! # Not wanted
//!
//! A forced allocator; global state; more than two big traits; cleverness with
//! types or macros; cargo features where a number in [`Tunables`] does; knowing
//! threads, files or system calls.
#![no_std]
#![deny(unsafe_code)]
#![cfg_attr(softfault_sync, allow(dead_code, missing_docs))]

#[cfg(test)]
extern crate std;
#[cfg(test)]
mod testing;

pub mod account;
pub mod addr;
mod base;
pub mod check;
pub mod clear;
mod compact;
mod cpu;
mod describe;
pub mod errno;
mod fault;
mod frame;
mod huge;
mod links;
mod linux;
mod lock;
pub mod machine;
mod mem;
mod notify;
mod pace;
mod pin;
pub mod policy;
mod program;
mod rmap;
mod section;
mod setters;
mod source;
mod space;
pub mod sync;
pub mod table;
mod tunables;
mod vm;
mod words;

pub use account::rss::RssPages;
pub use account::sizes::SizeStat;
pub use account::{Event, VmStat};
pub use addr::{Access, Order, PAGE_SHIFT, PAGE_SIZE, PageRange, Pfn, Rights, Vpn};
pub use compact::{CompactRefusal, MigrateRefusal};
pub use describe::Place;
pub use errno::Errno;
pub use fault::{FaultDone, FaultError};
pub use frame::{Fragmentation, OutOfFrames};
pub use huge::khugepaged::Scan;
pub use huge::knobs::{HugeKnobs, KhugepagedKnobs, KnobError};
pub use linux::{Advice, AdviceError, MapFlags, MapType, MlockFlags, MlockallFlags, MremapFlags, Prot};
pub use machine::{CpuId, CpuSet, Flush, FrameRange, MAX_CPUS, Machine, SpaceTag, Tick};
pub use notify::lookup::{Lookup, LookupRefused, Subscription};
pub use notify::notice::{Notice, Why};
pub use pin::{Pin, PinError, PinMut, Term};
pub use rmap::Mapping;
pub use source::handle::SharedObject;
pub use space::Vm;
pub use space::access::AccessError;
pub use space::ops::{
    ForkError, MadviseError, MincoreError, MlockError, MmapError, MprotectError, MremapError, MunmapError, ObjectPart,
    PageState, SmapsEntry, Translation,
};
pub use space::tree::TreeFault;
pub use space::vma::{ObjectId, Vma, VmaFlags};
pub use space::walker::{Miss, Stamp, Walked, Walker};
pub use space::{Active, AddressSpace};
pub use tunables::{Discipline, Tunables};
pub use vm::NewVmError;

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
