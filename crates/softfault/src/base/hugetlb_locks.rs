//! The historic mutexes around faults on pages of a pool: one, or a table.
//!
//! ```text
//! fault    lookup ─▶ leaves the section ─▶ mutex of the page ─▶ lookup, frames, zeroes, entry ─▶ mutex is free
//! ```
//! The word of the page in its object excludes others (`source/fill_large.rs`), with the mutexes and without. So the
//! mutexes are measured, not relied on.
//!
//! A CPU that waits for a mutex holds nothing: no frame, lock, entry or section. So no CPU waits for it, and the holder of
//! the mutex may wait for all that a fault may wait for.
//!
//! Source: 3-hugetlb of 2013: a table of mutexes in place of one, by a hash of the file and the index of the huge page.
//!
//! Locks on entry: none, no section.

use super::Base;
use crate::built::HUGETLB;
use crate::hash::jhash2;
use crate::lock::{WordLock, is_free, lock_word, try_lock_word};
use crate::machine::{LockKind, MAX_CPUS, Machine};
use crate::pace::Pace;
use crate::sync::Word;
use crate::tunables::{HugetlbLocking, Tunables};

/// The largest number of mutexes: as many for each CPU as Linux has today.
const MOST_MUTEXES: usize = 8 * MAX_CPUS;

/// A mutex, in a line of its own, with its statistics. Its holder writes the numbers.
#[repr(C, align(64))]
pub(crate) struct HugetlbMutex {
    lock: Word,
    acquisitions: Word,
    contentions: Word,
    wait_ns: Word,
    pad: [Word; 4],
}

impl HugetlbMutex {
    /// Whether it is free: for checks at rest.
    pub(crate) fn is_free(&self) -> bool {
        is_free(&self.lock)
    }
}

/// The statistics of the mutexes around faults on pages of pools, since the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct HugetlbLockStat {
    /// Mutexes.
    pub mutexes: u64,
    /// Acquisitions.
    pub acquisitions: u64,
    /// Of these, acquisitions that did not succeed at the first try.
    pub contentions: u64,
    /// Time from the first try to the success of these, in nanoseconds.
    pub wait_ns: u64,
}

/// The number of mutexes: a power of two.
pub(crate) fn nr_mutexes(tunables: &Tunables, nr_cpus: usize) -> usize {
    match tunables.hugetlb_locking {
        HugetlbLocking::Lockfree => 0,
        HugetlbLocking::One => 1,
        HugetlbLocking::Table => {
            let default = if nr_cpus == 1 { 1 } else { 2 * nr_cpus };
            let wanted = tunables.hugetlb_mutexes.map_or(default, |nr| usize::try_from(nr).unwrap_or(MOST_MUTEXES));
            wanted.clamp(1, MOST_MUTEXES).next_power_of_two()
        }
    }
}

/// The mutex of a page: the object, and the page's index in pages of its size.
fn place_of(object: u64, index: u64, nr_mutexes: usize) -> usize {
    let [object, index] = [object, index].map(|word| [word as u32, (word >> 32) as u32]);
    jhash2(&[object[0], object[1], index[0], index[1]], 0) as usize & (nr_mutexes - 1)
}

impl<M: Machine> Base<M> {
    /// Whether faults on pages of pools take a mutex.
    #[inline(always)]
    pub(crate) fn has_hugetlb_mutexes(&self) -> bool {
        HUGETLB && self.tunables.hugetlb_locking != HugetlbLocking::Lockfree
    }

    /// Takes the mutex of a page.
    pub(crate) fn lock_hugetlb(&self, object: u64, index: u64) -> WordLock<'_, M> {
        let mutex = self.hugetlb_mutexes.at(place_of(object, index, self.hugetlb_mutexes.len()));
        let lock = try_lock_word(LockKind::PoolMutex, &mutex.lock, &self.machine).unwrap_or_else(|| {
            let begun = self.machine.now_ns();
            let lock = lock_word(LockKind::PoolMutex, &mutex.lock, &self.machine);
            mutex.contentions.add_owned(1);
            mutex.wait_ns.add_owned(self.machine.now_ns().saturating_sub(begun));
            lock
        });
        mutex.acquisitions.add_owned(1);
        lock
    }

    /// The statistics of the mutexes of [`Tunables::hugetlb_locking`](crate::Tunables::hugetlb_locking). Exact when no
    /// fault is in progress. All zero without mutexes. Takes time for each of them, of which there are 4,096 at most.
    pub fn hugetlb_lock_stat(&self) -> HugetlbLockStat {
        self.call_anywhere();
        let mut stat = HugetlbLockStat { mutexes: self.hugetlb_mutexes.len() as u64, ..HugetlbLockStat::default() };
        let mut pace = Pace::new(&self.machine);
        for mutex in self.hugetlb_mutexes.iter() {
            pace.step();
            stat.acquisitions += mutex.acquisitions.get();
            stat.contentions += mutex.contentions.get();
            stat.wait_ns += mutex.wait_ns.get();
        }
        stat
    }
}

#[cfg(test)]
#[path = "hugetlb_locks_tests.rs"]
mod tests;
