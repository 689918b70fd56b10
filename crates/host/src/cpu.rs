//! One emulated CPU, and the binding of threads to CPUs. `cpu/guard.rs` binds and unbinds.
//!
//! No lock on entry. The thread's cell holds machine and CPU in one word, so `this_cpu`
//! costs one load, one exclusive or and one comparison, which also rejects threads of
//! other machines (E3).

use crate::barrier;
use crate::counts::{Baseline, Counters};
use crate::locks::HeldLocks;
use crate::mailbox::Mailbox;
use crate::tlb::Tlb;
use core::cell::Cell;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use softfault::machine::{CpuId, Flush};

mod guard;

pub use guard::CpuGuard;

/// Bits of a thread's cell that hold the CPU; the machine's number is above.
pub(crate) const CPU_BITS: u32 = 16;
/// The cell of a bound thread that may not act as a CPU: it names no machine.
const NO_CPU: u64 = u64::MAX;
/// Entries of a CPU's paging-structure cache.
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

/// Runs `f`, a callback of the core; the thread keeps its CPU meanwhile (I2).
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

/// Runs `f` as a callback with the thread unbound, so that it cannot call the core (E10).
pub(crate) fn as_no_cpu<T>(f: impl FnOnce() -> T) -> T {
    /// Restores the binding, also when `f` panics.
    struct Again(u64);
    impl Drop for Again {
        fn drop(&mut self) {
            BOUND.set(self.0);
        }
    }
    let _again = Again(BOUND.replace(NO_CPU));
    as_callback(f)
}

/// Counts turns of a spin; true every 64th time.
pub(crate) fn spun_long() -> bool {
    let spins = SPINS.get().wrapping_add(1);
    SPINS.set(spins);
    spins.is_multiple_of(64)
}

/// State that only the owner writes, in cache lines of its own.
#[repr(align(128))]
pub(crate) struct OwnLine {
    /// Odd while an access is under way (E4).
    pub(crate) slot: AtomicU64,
    /// State of the random numbers.
    pub(crate) random: AtomicU64,
    pub(crate) counters: Counters,
    pub(crate) place: Place,
}

/// The space that a CPU is in. Only the CPU writes it. The CPU owns it, not the guard, so
/// the next thread on the CPU finds it.
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
    /// Ends one such stay; `false` if there was none in that space.
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
    pub(crate) locks: HeldLocks,
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
            locks: HeldLocks::default(),
        }
    }

    /// Drops the CPU's cached translations of the space in `what`. Cached leaf tables stay
    /// unless `what` is the whole space: a flush for a freed table has to say so.
    pub(crate) fn flush(&self, space_id: u64, what: Flush) {
        // Tables first: a walk through a cached table pointer that is about to go
        // has to be one that the TLB's count still catches (E6).
        if what == Flush::Space {
            self.tables.invalidate(space_id, what);
        }
        self.tlb.invalidate(space_id, what);
    }

    /// Drops everything that this CPU caches.
    pub(crate) fn flush_all(&self) {
        self.tables.invalidate_all();
        self.tlb.invalidate_all();
    }

    /// Resets the CPU: nothing cached, in no space.
    pub(crate) fn begin(&self) {
        self.flush_all();
        self.own.place.forget();
    }

    /// Begins the section of an access and serves the requests posted before it.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Inside<'_> {
        let even = self.own.slot.load(Relaxed);
        // Not only in debug builds: the end of the inner access would hide the outer one from shootdowns (E10).
        assert!(even.is_multiple_of(2), "accesses do not nest");
        // Release: a remover that reads this value instead of the even one before it still sees all of the access
        // that has ended. On x86 the instruction is the same.
        self.own.slot.store(even + 1, Release);
        // E5, E7.
        barrier::light();
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

/// Counts of one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CpuStats {
    /// Page walks: accesses that missed the TLB.
    pub walks: u64,
    /// Flushes served from its mailbox.
    pub served: u64,
    /// Mailbox overflows, each of which flushed all translations.
    pub overflows: u64,
}

/// Why a thread cannot be bound to a CPU, or a CPU cannot enter an address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BindError {
    /// The machine has no such CPU.
    Unknown(CpuId),
    /// Another thread is bound to that CPU.
    Taken(CpuId),
    /// The calling thread is already bound to a CPU, of this or another machine.
    Bound,
    /// The CPU runs in another address space.
    Elsewhere,
    /// The address space belongs to another machine.
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
