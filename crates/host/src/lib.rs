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
//! - **E1** the arena is one private mapping, readable and writable, aligned to
//!   2 MiB, mapped when a `Hosted` is made and unmapped when it is dropped; only
//!   this crate has its address, and gives it out only through `frame_ptr`.
//! - **E2** program bytes and table entries are touched here by atomic
//!   operations only, never through references to plain bytes, after a check
//!   that the frame lies in the arena.
//! - **E3** a thread is bound to at most one CPU at a time and a CPU to at most
//!   one thread; the thread's cell says which machine it means, and machine
//!   numbers are never reused. The binding does not end in a callback of the core.
//! - **E4** an access is a section of its CPU: the slot goes odd by a plain
//!   store before the first look at mailbox or TLB, and even after the last byte
//!   has moved. Nothing inside it waits for another CPU's access or section.
//! - **E5** `shootdown` makes the request visible (mailbox, or the remote
//!   entries themselves), then passes the heavy barrier, then waits for each
//!   target's slot that is odd. So an access either sees the request or is
//!   waited for.
//! - **E6** a TLB entry is filled by its owner alone, with a full fence between
//!   the fill and a look at the invalidation count; if the count moved since
//!   before the walk, the entry goes at once. So no entry outlives an
//!   invalidation that began after its walk. The count is read before the cached
//!   table pointers are, and these are invalidated before the TLB is, so that a
//!   walk through a pointer that goes is one that began before.
//! - **E7** the heavy barrier is `membarrier(2)`, or a walk of the calling thread
//!   over every CPU that the process may use; each CPU that runs a thread of the
//!   process executes a full barrier in either.
//! - **E8** a thread that parks checks the word under the lock that `unpark`
//!   takes after the word was changed.
#![deny(unsafe_code)]

mod access;
mod arena;
mod barrier;
mod bbm;
mod config;
mod counts;
mod cpu;
mod hosted;
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

pub use access::{PageFault, Running, Trap};
pub use barrier::Barrier;
pub use config::{HostedConfig, HostedError, Mode};
pub use counts::{TlbStats, nested_loads};
pub use cpu::{BindError, CpuGuard, CpuStats};
pub use hosted::{Hosted, Subscriber, WaitHook};
pub use ticks::{MOST_STEPS, nr_steps};
