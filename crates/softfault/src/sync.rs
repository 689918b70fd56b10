//! The only access to shared memory: every cell that two CPUs may touch is a
//! [`Word`].
//!
//! A `Word` is a `u64` with atomic operations, valid when zeroed, so that any
//! structure made of `Word`s alone can be laid over a frame. Four facades give
//! it four lives, and the rest of the core cannot tell them apart:
//!
//! | facade | package | what an operation does |
//! | --- | --- | --- |
//! | core | `softfault` | the machine instruction |
//! | loom | `softfault-modelled` | an operation of the model checker, which tries orders; not quite all: it keeps one last access a word |
//! | shuttle | `softfault-shuffled` | the instruction of a CPU with a store buffer, after a point where another thread may go on |
//! | recording | `softfault-recorded` | the instruction, and a note of (cpu, address, kind) |
//!
//! Cells that only one CPU writes are `Word`s too, with [`Word::get`] and
//! [`Word::set`]: on the machine these are plain moves, under loom they may
//! return stale values as weakly ordered hardware would, and the recorder sees
//! them. `cargo xtask check` refuses `core::sync::atomic` anywhere else.
//!
//! The *light barrier* of a section (`enter`) and its *heavy* counterpart
//! (`probe`) live here because their model differs from their machine code:
//! see `docs/invariants.md`, I7.

pub use core::sync::atomic::Ordering;

#[cfg(not(softfault_sync))]
pub(crate) mod machine;
#[cfg(not(softfault_sync))]
pub use machine::Word;
#[cfg(not(softfault_sync))]
pub(crate) use machine::*;

#[cfg(softfault_sync = "loom")]
mod modelled;
#[cfg(softfault_sync = "loom")]
pub use modelled::*;

#[cfg(softfault_sync = "shuttle")]
mod shuffled;
#[cfg(softfault_sync = "shuttle")]
pub use shuffled::*;

#[cfg(softfault_sync = "recording")]
mod recording;
#[cfg(softfault_sync = "recording")]
pub use recording::*;

/// A number that nothing else in the process has: an identity, which orders nothing.
pub(crate) fn fresh_number() -> u64 {
    static NEXT: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Word {
    /// A load that orders nothing: for cells with one writer.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }
    /// A store that orders nothing: for cells with one writer.
    #[inline(always)]
    pub fn set(&self, value: u64) {
        self.store(value, Ordering::Relaxed);
    }
    /// Adds to a cell with one writer: a load and a store, no locked
    /// instruction. Wraps, so that a negative amount is `n.wrapping_neg()`.
    #[inline(always)]
    pub fn add_owned(&self, n: u64) {
        self.set(self.get().wrapping_add(n));
    }
}
