//! The words of the pools of huge pages, and their changes by one compare-and-swap. `pool_counts.rs` says what they count.
//!
//! Locks on entry: none.

use super::{Memory, PoolId};
use crate::addr::Pfn;
use crate::machine::Machine;
use crate::sync::{Ordering, Word};

const SURPLUS_SHIFT: u32 = 32;
pub(super) const SURPLUS_ONE: u64 = 1 << SURPLUS_SHIFT;

/// The words of one pool, in a line of their own.
#[repr(C, align(64))]
pub(crate) struct Pool {
    /// Persistent pages, 0..32; surplus pages, 32..64.
    pub(super) sizes: Word,
    /// Free pages without a claim.
    pub(super) unreserved: Word,
    /// Limit of surplus pages.
    pub(super) overcommit: Word,
    /// Held during a change of size. Sleeps.
    pub(crate) resize: Word,
}

impl Pool {
    pub(crate) const fn new() -> Pool {
        let [sizes, unreserved, overcommit, resize] = [const { Word::new(0) }; 4];
        Pool { sizes, unreserved, overcommit, resize }
    }

    pub(super) fn sizes(&self) -> Sizes {
        Sizes(self.sizes.load(Ordering::Acquire))
    }

    /// Changes both numbers, unless `f` finds nothing to change.
    pub(super) fn change(&self, f: impl Fn(Sizes) -> Option<u64>) -> bool {
        let mut seen = self.sizes();
        while let Some(to) = f(seen) {
            match self.sizes.compare_exchange(seen.0, to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => seen = Sizes(now),
            }
        }
        false
    }

    pub(super) fn try_reserve(&self, nr: u64) -> bool {
        let mut seen = self.unreserved.load(Ordering::Acquire);
        while seen >= nr {
            match self.unreserved.compare_exchange(seen, seen - nr, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Returns the word of free pages without a claim. For the checker.
    pub(crate) fn nr_unreserved(&self) -> u64 {
        self.unreserved.load(Ordering::Acquire)
    }

    pub(crate) fn nr_surplus(&self) -> u64 {
        self.sizes().surplus()
    }

    /// Limit of surplus pages, and no more than can be counted.
    pub(crate) fn most_surplus(&self) -> u64 {
        self.overcommit.load(Ordering::Acquire).min(SURPLUS_ONE - 1)
    }

    /// Counts surplus pages, unless there would be more than there may be.
    pub(super) fn gain_surplus(&self, nr: u64) -> bool {
        let most = self.most_surplus();
        self.change(|seen| (seen.surplus() + nr <= most).then(|| seen.0 + nr * SURPLUS_ONE))
    }

    pub(super) fn lose_surplus(&self) -> bool {
        self.change(|seen| (seen.surplus() > 0).then(|| seen.0 - SURPLUS_ONE))
    }

    /// Makes a surplus page a persistent one, if there is one.
    pub(super) fn keep_surplus(&self) -> bool {
        self.change(|seen| (seen.surplus() > 0).then(|| seen.0 - SURPLUS_ONE + 1))
    }

    /// Takes the loss back: the page stays.
    pub(super) fn regain_surplus(&self) {
        self.sizes.fetch_add(SURPLUS_ONE, Ordering::AcqRel);
    }
}

/// The first word of a pool, taken apart.
#[derive(Clone, Copy)]
pub(super) struct Sizes(pub(super) u64);

impl Sizes {
    pub(super) fn persistent(self) -> u64 {
        self.0 & (SURPLUS_ONE - 1)
    }
    pub(super) fn surplus(self) -> u64 {
        self.0 >> SURPLUS_SHIFT
    }
}

/// Whether the caller has a claim to a page of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    Reserved,
    Nothing,
}

/// The pool has no page to give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoHugePages;

impl<M: Machine> Memory<M> {
    pub(crate) fn pool(&self, pool: PoolId) -> &Pool {
        &self.frames.pools[pool as usize]
    }

    /// Puts a page that the caller owns into its pool, free and without a claim.
    pub(super) fn add_free(&self, id: PoolId, first: Pfn) {
        self.pool_put(id, first);
        self.pool(id).unreserved.fetch_add(1, Ordering::AcqRel);
    }
}
