//! Room for surplus pages, where a pool was refused some.
//!
//! ```text
//! refused   the pool takes what is free and whole: its callers hold frames      frame/pool_surplus.rs
//! room      nothing is held: memory is compacted until as many blocks are whole as are missing; each is free at once
//! again     others may have taken the blocks: a bounded number of times
//! ```
//! Linux compacts and reclaims in the allocation of a surplus page. Pages of 1 GiB get no room here: to empty a GiB looks at the
//! descriptors of all memory, which is the price of a pool's size, not of a mapping.
//!
//! Locks on entry: none, no section.

use super::retries::Retries;
use crate::frame::PoolId;
use crate::machine::Machine;
use crate::policy::compact::CompactBudget;
use crate::space::Vm;

/// How often a reservation begins again. A guess: others take blocks that were made for it.
const MOST_ATTEMPTS: u32 = 3;

impl<M: Machine> Vm<M> {
    /// Calls `get` again after it was `refused` pages of the pool, and there is room for them now. `nr` counts the pages for which it
    /// needs a claim.
    pub(crate) fn with_room_for_surplus<T, E: PartialEq>(
        &self,
        pool: Option<PoolId>,
        nr: &dyn Fn(PoolId) -> u64,
        refused: E,
        get: &mut dyn FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        for _ in 1..MOST_ATTEMPTS {
            let got = get();
            let has_room = |pool| self.make_room_for_surplus(pool, nr(pool), &self.tunables.compact_background);
            if got.as_ref().err() != Some(&refused) || !pool.is_some_and(has_room) {
                return got;
            }
        }
        get()
    }

    /// Makes room for one page of the pool, once for these retries. Whether to ask the pool again.
    pub(crate) fn make_room_once(&self, retries: &mut Retries, pool: Option<PoolId>, budget: &CompactBudget) -> bool {
        retries.take_surplus() && pool.is_some_and(|pool| self.make_room_for_surplus(pool, 1, budget))
    }

    /// Makes room for what `nr` pages of the pool lack, if so many surplus pages may come. Whether to ask the pool again.
    fn make_room_for_surplus(&self, id: PoolId, nr: u64, budget: &CompactBudget) -> bool {
        self.assert_outside();
        let pool = self.pool(id);
        let nr_missing = nr.saturating_sub(pool.nr_unreserved());
        let nr_may_come = pool.most_surplus().saturating_sub(pool.nr_surplus());
        let is_in_memory = nr_missing.saturating_mul(id.order().nr_pages()) <= self.nr_total_pages.get();
        if nr_may_come == 0 || nr_missing > nr_may_come || !is_in_memory {
            return false;
        }
        // No surplus page comes during a freeze. Its owner waits for holders, of which this CPU is none.
        while self.frames.is_frozen() {
            self.machine.relax();
        }
        let may_compact = id == PoolId::Of2M;
        let has_blocks = || self.seems_to_have(id.order(), nr_missing);
        // Others see each block at once, and the next compaction makes another one.
        let made = |_: &u64| may_compact && !has_blocks() && (self.reclaim.empty_one_more)(self, budget);
        _ = (0..nr_missing).take_while(made).count();
        has_blocks()
    }
}

#[cfg(test)]
#[path = "surplus_room_tests.rs"]
mod tests;
