//! Counts of TLB lookups and misses, and of the loads that the misses would cost hardware.
//!
//! The owner of a CPU counts with plain loads and stores in its own cache line, without a
//! lock. A reset stores the current counts; later readings subtract them. So a reset by
//! another thread does not race with the owner.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use softfault::table::format::Format;
use std::sync::{Mutex, PoisonError};

/// Levels of the deepest format.
const MAX_LEVELS: usize = 5;

/// The running counts of one CPU, written by its owner.
#[derive(Default)]
pub(crate) struct Counters {
    lookups: AtomicU64,
    walks: AtomicU64,
    /// Walks that found a translation, by the level of its entry.
    found: [AtomicU64; MAX_LEVELS],
}

#[inline(always)]
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
}

impl Counters {
    #[inline(always)]
    pub(crate) fn lookup(&self) {
        count(&self.lookups);
    }
    pub(crate) fn walk(&self) {
        count(&self.walks);
    }
    pub(crate) fn found_at(&self, level: u8) {
        count(&self.found[usize::from(level)]);
    }
    /// Walks since the CPU was made.
    pub(crate) fn walks(&self) -> u64 {
        self.walks.load(Relaxed)
    }
    fn read(&self) -> Counts {
        Counts {
            lookups: self.lookups.load(Relaxed),
            walks: self.walks(),
            found: core::array::from_fn(|level| self.found[level].load(Relaxed)),
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Counts {
    lookups: u64,
    walks: u64,
    found: [u64; MAX_LEVELS],
}

/// The counts of a CPU at its last reset.
#[derive(Default)]
pub(crate) struct Baseline(Mutex<Counts>);

impl Baseline {
    pub(crate) fn reset(&self, counters: &Counters) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = counters.read();
    }

    pub(crate) fn stats<F: Format>(&self, counters: &Counters) -> TlbStats {
        let (base, now) = (*self.0.lock().unwrap_or_else(PoisonError::into_inner), counters.read());
        let (lookups, misses) = (now.lookups.wrapping_sub(base.lookups), now.walks.wrapping_sub(base.walks));
        let mut stats = TlbStats { lookups, misses, ..TlbStats::default() };
        for level in 0..F::LEVELS {
            let nr = now.found[usize::from(level)].wrapping_sub(base.found[usize::from(level)]);
            let nr_read = F::LEVELS - level;
            stats.loads += nr * u64::from(nr_read);
            stats.loads_nested_small += nr * nested_loads(nr_read, F::LEVELS);
            stats.loads_nested_huge += nr * nested_loads(nr_read, F::LEVELS - 1);
        }
        stats
    }
}

/// Memory loads of a two-dimensional walk. The guest's walk reads `nr_guest` entries. A
/// walk of the hypervisor's `nr_host` levels first translates the address of each entry
/// and of the data.
pub const fn nested_loads(nr_guest: u8, nr_host: u8) -> u64 {
    (nr_guest as u64 + 1) * (nr_host as u64 + 1) - 1
}

/// Counts of a CPU's TLB since the last
/// [`reset_tlb_stats`](crate::Hosted::reset_tlb_stats).
///
/// Loads are those of hardware without paging-structure caches, for walks that found a
/// translation. A walk that ended in a page fault counts only as a miss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct TlbStats {
    /// Accesses to a page, each with one TLB lookup.
    pub lookups: u64,
    /// Lookups that needed a walk: nothing cached, or the first store through a clean
    /// entry.
    pub misses: u64,
    /// Table entries read by the walks: with four levels 4 for a page of 4 KiB,
    /// 3 for one of 2 MiB.
    pub loads: u64,
    /// The same in a guest whose hypervisor maps it by 4 KiB pages: 24 and 19.
    pub loads_nested_small: u64,
    /// The same in a guest whose hypervisor maps it by 2 MiB pages: 19 and 15.
    pub loads_nested_huge: u64,
}

#[cfg(test)]
mod tests;
