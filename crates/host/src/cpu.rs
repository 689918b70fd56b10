//! One emulated CPU, and which CPU a thread is. `cpu/guard.rs` is how it becomes one.
//!
//! No lock on entry. The thread's cell says "CPU n of machine m" in one word, so
//! that the core's question *which CPU is this?* costs one load, one exclusive
//! or and one comparison, and a thread of another machine cannot pass (E3).

use crate::counts::{Baseline, Counters};
use crate::mailbox::Mailbox;
use crate::tlb::Tlb;
use core::cell::Cell;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*, compiler_fence};
use softfault::machine::{CpuId, Flush};

mod guard;

pub use guard::CpuGuard;

/// Bits of a thread's cell that hold the CPU; the machine's number is above.
pub(crate) const CPU_BITS: u32 = 16;
/// The cell of a thread that is a CPU and may not act as one: of no machine.
const NO_CPU: u64 = u64::MAX;
/// Table pointers that a CPU's paging-structure cache holds.
const NR_TABLES_CACHED: usize = 32;

thread_local! {
    /// The machine's number, from 1, and the CPU; 0 is a thread that is no CPU.
    static BOUND: Cell<u64> = const { Cell::new(0) };
    static SPINS: Cell<u32> = const { Cell::new(0) };
    /// Callbacks of the core that the thread is in.
    static CALLBACKS: Cell<u32> = const { Cell::new(0) };
}

/// The calling thread's cell.
#[inline(always)]
pub(crate) fn bound() -> u64 {
    BOUND.get()
}

/// Runs `f`, which the core waits for: the thread stays the CPU that it is (I2).
pub(crate) fn as_callback<T>(f: impl FnOnce() -> T) -> T {
    /// Ends the callback, also when `f` panics.
    struct Over;
    impl Drop for Over {
        fn drop(&mut self) {
            CALLBACKS.set(CALLBACKS.get() - 1);
        }
    }
    CALLBACKS.set(CALLBACKS.get() + 1);
    let _over = Over;
    f()
}

/// Runs `f` as a callback while the thread is no CPU, so that it cannot call the core.
pub(crate) fn as_no_cpu(f: impl FnOnce()) {
    /// Makes the thread what it was, also when `f` panics.
    struct Again(u64);
    impl Drop for Again {
        fn drop(&mut self) {
            BOUND.set(self.0);
        }
    }
    let _again = Again(BOUND.replace(NO_CPU));
    as_callback(f);
}

/// Counts turns of a spin; true every 64th time.
pub(crate) fn spun_long() -> bool {
    let spins = SPINS.get().wrapping_add(1);
    SPINS.set(spins);
    spins.is_multiple_of(64)
}

/// What only the owner writes shares no line with what others write.
#[repr(align(128))]
pub(crate) struct OwnLine {
    /// Odd while an access is under way (E4).
    pub(crate) slot: AtomicU64,
    /// State of the random numbers.
    pub(crate) random: AtomicU64,
    pub(crate) counters: Counters,
    pub(crate) place: Place,
}

/// Where a CPU is. Written by the CPU alone; kept by it, not by the guard, so that
/// the next thread that is the CPU knows it, too.
#[derive(Default)]
pub(crate) struct Place {
    /// Id of the space whose root is loaded, if one of the counts is above 0.
    space: AtomicU64,
    /// [`CpuGuard::arrive`] less [`CpuGuard::depart`].
    arrivals: AtomicU64,
    /// Living [`Running`](crate::Running).
    nr_running: AtomicU64,
}

/// Why a CPU is in a space.
#[derive(Clone, Copy)]
pub(crate) enum Stay {
    Arrived,
    Running,
}

impl Place {
    fn count(&self, stay: Stay) -> &AtomicU64 {
        match stay {
            Stay::Arrived => &self.arrivals,
            Stay::Running => &self.nr_running,
        }
    }
    /// The space that the CPU is in.
    pub(crate) fn space(&self) -> Option<u64> {
        let is_there = self.arrivals.load(Relaxed) + self.nr_running.load(Relaxed) > 0;
        is_there.then(|| self.space.load(Relaxed))
    }
    pub(crate) fn add(&self, space_id: u64, stay: Stay) {
        self.space.store(space_id, Relaxed);
        self.count(stay).store(self.count(stay).load(Relaxed) + 1, Relaxed);
    }
    /// Whether there was such a stay in that space.
    pub(crate) fn end(&self, space_id: u64, stay: Stay) -> bool {
        let nr = self.count(stay).load(Relaxed);
        if nr == 0 || self.space.load(Relaxed) != space_id {
            return false;
        }
        self.count(stay).store(nr - 1, Relaxed);
        true
    }
    fn forget(&self) {
        self.arrivals.store(0, Relaxed);
        self.nr_running.store(0, Relaxed);
    }
}

/// One CPU.
pub(crate) struct CpuState {
    pub(crate) own: OwnLine,
    /// Whether a thread is bound to it.
    taken: AtomicBool,
    pub(crate) mailbox: Mailbox,
    /// Translations of pages.
    pub(crate) tlb: Tlb,
    /// Translations of leaf tables: the paging-structure cache.
    pub(crate) tables: Tlb,
    pub(crate) baseline: Baseline,
}

impl CpuState {
    pub(crate) fn new(tlb_entries: usize, seed: u64) -> CpuState {
        CpuState {
            own: OwnLine {
                slot: AtomicU64::new(0),
                random: AtomicU64::new(seed),
                counters: Counters::default(),
                place: Place::default(),
            },
            taken: AtomicBool::new(false),
            mailbox: Mailbox::default(),
            tlb: Tlb::new(tlb_entries),
            tables: Tlb::new(NR_TABLES_CACHED),
            baseline: Baseline::default(),
        }
    }

    /// Drops what this CPU has cached of the space in `what`. Leaf tables stay
    /// cached unless the whole space goes: who frees a table has to say so.
    pub(crate) fn flush(&self, space_id: u64, what: Flush) {
        // Tables first: a walk through a cached table pointer that is about to go
        // has to be one that the TLB's count still catches (E6).
        if what == Flush::Space {
            self.tables.invalidate(space_id, what);
        }
        self.tlb.invalidate(space_id, what);
    }

    /// Drops all that this CPU has cached.
    pub(crate) fn flush_all(&self) {
        self.tables.invalidate_all();
        self.tlb.invalidate_all();
    }

    /// As a CPU of a machine that begins anew: nothing cached, in no space.
    pub(crate) fn begin(&self) {
        self.flush_all();
        self.own.place.forget();
    }

    /// Opens the section of an access, and serves what was posted before it.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Inside<'_> {
        let even = self.own.slot.load(Relaxed);
        debug_assert!(even.is_multiple_of(2), "accesses do not nest");
        self.own.slot.store(even + 1, Relaxed);
        // The light half of the barrier (E5, E7).
        compiler_fence(SeqCst);
        let inside = Inside { cpu: self, even: even + 2 };
        if self.mailbox.has_post() {
            self.serve();
        }
        inside
    }

    #[cold]
    fn serve(&self) {
        self.mailbox.serve(|posted| match posted {
            Some((space_id, what)) => self.flush(space_id, what),
            None => self.flush_all(),
        });
    }
}

/// An access is under way; ends when dropped.
pub(crate) struct Inside<'a> {
    cpu: &'a CpuState,
    even: u64,
}

impl Drop for Inside<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.cpu.own.slot.store(self.even, Release);
    }
}

/// What a CPU has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CpuStats {
    /// Page walks: accesses that its TLB did not answer.
    pub walks: u64,
    /// Flushes that reached it through its mailbox.
    pub served: u64,
    /// Times that its mailbox ran over, and all its translations went.
    pub overflows: u64,
}

/// Why a thread could not become a CPU, or a CPU not enter an address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BindError {
    /// The machine has no such CPU.
    Unknown(CpuId),
    /// Another thread is that CPU.
    Taken(CpuId),
    /// The calling thread is a CPU already, of this machine or of another.
    Bound,
    /// The CPU runs in another address space.
    Elsewhere,
    /// The address space belongs to another machine than the CPU.
    OtherMachine,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindError::Unknown(cpu) => write!(f, "cpu is {}, should be below the machine's nr_cpus", cpu.0),
            BindError::Taken(cpu) => {
                write!(f, "cpu is {}, which another thread is bound to; should be a free one", cpu.0)
            }
            BindError::OtherMachine => write!(f, "space: should belong to the machine of the CPU"),
            BindError::Elsewhere => write!(f, "the CPU runs in another address space; it should leave that first"),
            BindError::Bound => write!(f, "the calling thread is bound to a CPU; should be bound to none"),
        }
    }
}

impl core::error::Error for BindError {}

#[cfg(test)]
mod tests;
