//! A virtual-memory subsystem you can link: `mmap`, demand paging, copy-on-write, files and
//! huge pages behind one [`handle_fault`](AddressSpace::handle_fault).
//!
//! A port implements [`Machine`], builds one [`Vm`] over its memory, makes an
//! [`AddressSpace`] per program, loads [`AddressSpace::tag`]`().root` into the
//! base register and calls `handle_fault` from its page-fault handler.
//!
//! # Modules
//!
//! Each folder is a module. A fault passes through the first six in the order of this table.
//!
//! | module | what it knows | what it must not know |
//! | --- | --- | --- |
//! | [`fault`](AddressSpace::handle_fault) | the order of steps, retrying | how anything is stored |
//! | `space` | VMAs, the operations on them, what to do about a refusal | entries' bits |
//! | [`policy`] | a question and a plan, both values | memory, locks |
//! | `source` | where a page's bytes come from | which spaces map them |
//! | [`table`] | entries and how they may change | VMAs |
//! | [`account`] | counters | what they are for |
//! | `frame` | which frames are free, their descriptors, pools of huge pages | what maps them, how to reclaim them |
//! | `swap` | which slots of the swap area are in use, and by what | what is swapped out, and when |
//! | `rmap` | families, from a frame to its entries | policy |
//! | `pin` | how a frame is held from outside | operations |
//! | `notify` | the subscribers to changes, lookups | what they keep |
//! | `khugepaged`, `shrink` | which memory becomes huge, and which huge pages are split | threads |
//! | `compact` | how used frames move, so that free ones are adjacent | what faults are |
//!
//! Arguments have types of their own ([`Prot`], [`MapFlags`], [`MremapFlags`], [`Advice`], ...), which convert from and to
//! Linux's numbers.
//!
//! # Layers
//!
//! Each file belongs to a layer. It names its own layer and lower ones. From the bottom:
//!
//! | layer | files | component |
//! | --- | --- | --- |
//! | words | `sync` (the only access to shared memory), `addr`, `hash`, `errno`, `linux` | |
//! | values | `policy`, `table/format`, `machine`, `tunables`, `space/vma`, `notify/notice` | |
//! | mem | `mem` (typed views of frames), `lock`, `section` (the read side), `pace` (long passes answer other CPUs), `cpu`, `account`, `clear`, `base` | `Base`: the machine, its CPUs, settings, counters |
//! | frame | `frame` | `Memory`: the frames |
//! | swap | `swap` | |
//! | table | `table` | |
//! | notify | `notify/tell` | |
//! | links | `source`, `rmap/family`, `links` | `Links`: lookups of families |
//! | space | `space`, `space/reclaim` | [`Vm`]: spaces; [`AddressSpace`] |
//! | rmap | `rmap` | |
//! | fault | `fault` | |
//! | operations | `space/ops`, `space/access`, `space/walker`, `source/handle`, `source/hole`, `source/create`, `source/explicit`, `source/io_bytes`, `source/prealloc`, `source/bring`, `source/write_error`, `pin`, `notify/lookup`, `notify/age` | |
//! | pressure | `compact`, `khugepaged`, `shrink` | |
//! | face | `vm`, `check`; `hooks`, which only builds for tests and the laboratory have | |
//!
//! A component embeds the one below it and dereferences to it: `Vm` to `Links`, `Links` to `Memory`, `Memory`
//! to `Base`. The functions of a module are methods of the lowest component that has what they need. So the
//! compiler refuses a call from `frame` to `space`: a `Memory` has no such method. Where types are not enough,
//! `cargo xtask lint` checks (`xtask/src/lint/layers/`): it reads `use`, paths and method calls and compares
//! them with its table, which lists every file.
//!
//! The one way up is `Reclaim`: function pointers that `vm.rs` stores in `Vm`. `space/reclaim.rs` calls them
//! after a refusal, with nothing held. The allocator only refuses; it never reclaims.
//!
//! # Lock order
//!
//! [`LockKind`](machine::LockKind) has a name for each lock, and [`may_take`](machine::LockKind::may_take) says which ones may
//! be waited for under which: there is no circle. A machine for tests checks each wait ([`Tick::Taking`](machine::Tick)), so an
//! operation that takes locks out of order fails its test, even if nobody waits for it at that moment. Under all of these:
//!
//! ```text
//! a section                   holds nothing, waits for nothing
//!   lock bit of an entry      a few instructions; nothing is taken under it
//!   historic fault-locking modes' spinlocks: the space's, or a leaf table's
//! LOCK of a folio             a pass over 512 descriptors; nothing is taken under it
//! an entry in state Busy      owned outside sections; its owner takes no lock
//! ```
//! Sleeping locks and spinlocks are words (`lock.rs`). Fork holds the parent's writer lock while it fills the child, which
//! nobody else can name. No other operation holds two.
//!
//! A function that needs the writer lock takes `&Writer`, the guard. The compiler checks that the lock is held;
//! a debug assertion checks that it belongs to the same space. A function that needs a section takes
//! `InSection`, which borrows from the guard: nothing that it finds outlives the section. A walk of the tables
//! takes either. Reclaim asserts that its caller is outside sections and notices.
//!
//! # Cargo features
//!
//! | feature | what it is for |
//! | --- | --- |
//! | `files` (on) | objects whose pages come from files, from the embedder, or are another owner's frames |
//! | `hugetlb` (on) | pools of huge pages, and objects whose pages come from them |
//! | `hooks` (off) | this project's own tests and measurements; nothing of it is promised |
//!
//! A port tests itself with [`Vm::check`], and its page tables with [`table::format::conformance`].
//!
//! # Not wanted
//!
//! A mandatory allocator; global state; more than two large traits; clever types or macros; cargo
//! features where a number in [`Tunables`] is enough; knowledge of threads, file systems or system calls.
#![no_std]
#![deny(unsafe_code)]
#![cfg_attr(softfault_sync, allow(dead_code, missing_docs))]
// A build without a part still has what only that part uses; nothing of it is compiled to code.
#![cfg_attr(
    not(all(feature = "files", feature = "hugetlb")),
    allow(dead_code, unreachable_code, unreachable_patterns, unused_imports, unused_variables)
)]

#[cfg(test)]
extern crate std;
#[cfg(test)]
mod testing;

pub mod account;
pub mod addr;
mod base;
mod built;
pub mod bytes;
pub mod check;
pub mod clear;
mod compact;
mod cpu;
pub mod errno;
mod fault;
mod frame;
mod hash;
#[cfg(any(test, feature = "hooks"))]
pub mod hooks;
mod khugepaged;
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
mod shrink;
mod source;
mod space;
mod swap;
pub mod sync;
pub mod table;
mod tunables;
mod vm;
mod words;

pub use account::rss::RssPages;
pub use account::sizes::SizeStat;
pub use account::{Event, VmStat};
pub use addr::{Access, ObjectPages, Order, PAGE_SHIFT, PAGE_SIZE, PageRange, Pfn, Rights, SwapSlot, Vpn};
pub use base::{Base, HugetlbLockStat};
pub use compact::{CompactRefusal, MigrateRefusal, OfflineRefusal, PoisonRefusal, SwapRefusal};
pub use errno::Errno;
pub use fault::{FaultDone, FaultError};
pub use frame::{
    AddMemoryRefusal, Advance, Fragmentation, HugetlbCounts, Memory, OLDEST_AGE, OutOfFrames, RemoveMemoryRefusal,
    SubpoolLimits,
};
pub use khugepaged::Scan;
pub use links::Links;
pub use linux::{Advice, AdviceError, MapFlags, MapType, MlockFlags, MlockallFlags, MremapFlags, MsyncFlags, Prot};
pub use machine::{
    CpuId, CpuSet, FileFill, FileId, FileWrite, FillError, Filling, Flush, ForeignFill, ForeignWrite, FrameRange,
    HoleRefused, MAX_CPUS, MAX_NODES, Machine, MemoryNode, ObjectHole, SpaceTag, StorageId, StoreRefused, SwapError,
    Tick, WriteError, Writing,
};
pub use notify::lookup::{Lookup, LookupRefused, Subscription};
pub use notify::notice::{Notice, Why};
pub use pin::{Pin, PinError, PinMut, Term};
pub use source::handle::SharedObject;
#[cfg(feature = "files")]
pub use source::io_bytes::BytesRefused;
pub use source::write_error::{
    EvictError, InstallError, NewFileError, NewForeignError, ObjectWriteError, StoppedAt, WriteBackError,
};
pub use space::Vm;
pub use space::access::AccessError;
pub use space::ops::{
    Aged, ForkError, HugetlbError, HugetlbSubpool, MadviseError, MincoreError, MlockError, MmapError, MprotectError,
    MremapError, MsyncError, MunmapError, ObjectPart, PageState, PagemapEntry, PagemapPage, SmapsEntry,
    TailDescsRefusal, Translation,
};
pub use space::vma::{ObjectId, Vma, VmaFlags};
pub use space::walker::{Miss, Stamp, Walked, Walker};
pub use space::{Active, AddressSpace};
pub use tunables::huge::{HugeKnobs, KhugepagedKnobs, KnobError};
pub use tunables::{FaultLocking, HugetlbLocking, Tunables};
pub use vm::NewVmError;

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
