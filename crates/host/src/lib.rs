//! The hosted machine: Softfault in an ordinary process.
//!
//! - Physical memory is an arena, one mapping of the host.
//! - Threads act as CPUs: a thread calls [`Hosted::bind`] before its first call into the core.
//! - Page tables are tables of the core's format in the arena. Each CPU has an emulated TLB,
//!   which goes stale as a real one does.
//! - Programs are closures that load and store through the TLB ([`Running`]).
//!
//! ```
//! use softfault::{CpuId, MapFlags, Prot, Tunables, Vm};
//! use softfault_host::{Hosted, HostedConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let vm = Vm::new(Hosted::new(HostedConfig::default())?, Tunables::default())?;
//! let cpu = vm.machine().bind(CpuId(0))?;
//! let space = vm.new_space()?;
//! let addr = space.mmap(0, 1 << 20, Prot::READ | Prot::WRITE, MapFlags::PRIVATE | MapFlags::ANONYMOUS)?;
//! let program = cpu.enter(&space)?;
//! program.write_u64(addr, 42)?;
//! assert_eq!((program.read_u64(addr)?, space.rss_pages().minor_faults), (42, 1));
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//! Hosted ── bind ──> CpuGuard ── enter(space) ──> Running ── read, write, fetch
//!   arena              the thread is                 translate: TLB, else walk
//!   cpus: TLB,         that CPU now                  and set accessed and dirty
//!   mailbox, slot
//! ```
//! `machine.rs` implements the core's [`Machine`](softfault::Machine), `access.rs` the accesses of programs;
//! `shootdown.rs`, `walk.rs` and `tlb.rs` are the emulated hardware between them.
//!
//! # Invariants
//!
//! The core's I1 to I4 rest on these:
//! - **E1** The arena is one private mapping, readable, writable and aligned to 2 MiB. It
//!   is mapped when a `Hosted` is created and unmapped when it is dropped. Only this crate
//!   has its address, and passes it on only through `frame_ptr`.
//! - **E2** This crate accesses program bytes and table entries with atomic operations of
//!   aligned 64-bit words only, as the core does (I6), never through references to plain bytes,
//!   after checking that the frame is in the arena. Bytes of a fill are an exception (E9).
//! - **E3** A thread is bound to at most one CPU, and a CPU to at most one thread. The
//!   thread's cell names the machine; machine numbers are never reused. The binding does
//!   not end in a callback of the core.
//! - **E4** An access is a section of its CPU. A plain store makes the slot odd before the
//!   access first reads mailbox or TLB, and even after its last byte. An access never
//!   waits for another CPU's access or section.
//! - **E5** `shootdown` publishes the request (in the mailbox, or by removing the remote
//!   entries), then executes the heavy barrier, then waits for each target whose slot is
//!   odd. So an access either sees the request or is waited for.
//! - **E6** Only the owner fills a TLB entry. It executes a full fence after the fill, then
//!   reads the invalidation count, and drops the entry if the count has changed since
//!   before the walk. So no entry outlives an invalidation that began after its walk. The
//!   owner reads the count before the cached table pointers; an invalidation drops those
//!   before TLB entries. So a walk through a stale pointer began before the invalidation.
//! - **E7** The heavy barrier is `membarrier(2)`, or a walk of the calling thread over every
//!   CPU that the process may use. Both make each CPU that runs a thread of the process
//!   execute a full barrier.
//! - **E8** A thread that parks checks the word under the lock that `unpark` takes after
//!   the word has changed.
//! - **E9** The bytes of a fill are borrowed from the fill, which is consumed where it comes back to the core. Until then the
//!   core gives its frames, which it has zeroed, to no other code.
//! - **E10** Code of a caller that runs within an access of a CPU calls neither the core nor another access: the thread is
//!   no CPU meanwhile, and an access that finds another one under way panics. A shootdown does not wait for the access of
//!   its own CPU.
#![deny(unsafe_code)]

mod access;
mod arena;
mod barrier;
mod bbm;
mod config;
mod copies;
mod counts;
mod cpu;
mod file;
mod fill;
mod hosted;
mod locks;
mod machine;
mod mailbox;
mod park;
mod shootdown;
mod swap;
#[cfg(test)]
mod testing;
mod ticks;
mod tlb;
mod walk;
#[cfg(test)]
mod watchdog;

pub use access::{PageFault, Running, Trap};
pub use barrier::Barrier;
pub use config::{HostedConfig, HostedError, Mode};
pub use counts::{TlbStats, nested_loads};
pub use cpu::{BindError, CpuGuard, CpuStats};
pub use file::{HostFile, HostFill};
pub use hosted::{Hosted, Subscriber, WaitHook};
pub use ticks::{MOST_STEPS, nr_steps};
