//! The heavy barrier: every other thread of the process executes a full fence. The
//! threads pay only when the barrier is used (E7).
//!
//! Its light counterpart is a plain store with a compiler fence, in the core's
//! sections and in this crate's accesses. `barrier/tests.rs` is the litmus test of the
//! pair on the host.

use core::sync::atomic::{Ordering, compiler_fence, fence};
use rustix::thread::{CpuSet, MembarrierCommand, membarrier, membarrier_query, sched_getaffinity, sched_setaffinity};

/// The implementation of the heavy barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Barrier {
    /// `Membarrier` where the host has it, else `Walk`.
    Auto,
    /// `membarrier(2)`, private and expedited: an interrupt to each CPU that runs
    /// a thread of this process, about 9 us on two virtual CPUs.
    Membarrier,
    /// The calling thread moves itself to each CPU in turn, which makes that CPU
    /// switch threads. Slow, but offered by every Linux; the threads of the
    /// process must not be confined to CPUs that the caller may not use.
    Walk,
}

impl Barrier {
    /// Registers the process and returns the barrier to use; `None` if the host lacks the
    /// requested one.
    pub(crate) fn choose(self) -> Option<Barrier> {
        match self {
            Barrier::Walk => Some(Barrier::Walk),
            Barrier::Membarrier if register() => Some(Barrier::Membarrier),
            Barrier::Membarrier => None,
            Barrier::Auto if register() => Some(Barrier::Membarrier),
            Barrier::Auto => Some(Barrier::Walk),
        }
    }

    /// Executes the barrier; the caller executes a full fence as well.
    pub(crate) fn pass(self) {
        fence(Ordering::SeqCst);
        if cfg!(miri) {
            return;
        }
        if self == Barrier::Membarrier && membarrier(MembarrierCommand::PrivateExpedited).is_ok() {
            return;
        }
        // Also the way out if the host takes membarrier away after it was
        // registered, as a seccomp filter can.
        walk();
    }
}

/// The light half: the compiler moves nothing across it. Miri has no `membarrier(2)` and no CPUs: there it
/// is a full fence, and so is the heavy half.
#[inline(always)]
pub(crate) fn light() {
    if cfg!(miri) { fence(Ordering::SeqCst) } else { compiler_fence(Ordering::SeqCst) }
}

fn register() -> bool {
    if cfg!(miri) {
        return true;
    }
    membarrier_query().contains_command(MembarrierCommand::PrivateExpedited)
        && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
}

fn walk() {
    let home = sched_getaffinity(None);
    for cpu in 0..CpuSet::MAX_CPU {
        let mut there = CpuSet::new();
        there.set(cpu);
        // Refused for a CPU that is not there or not ours: no thread of the
        // process runs on it.
        let _ = sched_setaffinity(None, &there);
    }
    if let Ok(home) = home {
        let _ = sched_setaffinity(None, &home);
    }
    fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests;
