//! Room for surplus pages, where a pool was refused some.
//!
//! ```text
//! refused   the pool takes what is free and whole: its callers hold frames      frame/pool_surplus.rs
//! room      nothing is held: memory is compacted until as many blocks are whole as are missing
//! again     others may have taken the blocks: a bounded number of times
//! ```
//! Linux compacts and reclaims in the allocation of a surplus page. Pages of 1 GiB get no room here: to empty a GiB looks at the
//! descriptors of all memory, which is the price of a pool's size, not of a mapping.
//!
//! Locks on entry: none, no section.

use crate::addr::Order;
use crate::frame::{Content, FrameList, PoolId};
use crate::machine::Machine;
use crate::pace;
use crate::policy::huge::Effort;
use crate::space::Vm;

/// How often a reservation begins again. A guess: others take blocks that were made for it.
const MOST_ATTEMPTS: u32 = 3;

impl<M: Machine> Vm<M> {
    /// Calls `get` again after it was `refused` pages of the pool for so many base pages, and there is room for them now.
    pub(crate) fn with_room_for_surplus<T, E: PartialEq>(
        &self,
        pool: Option<PoolId>,
        nr_pages: u64,
        refused: E,
        get: &mut dyn FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        for _ in 1..MOST_ATTEMPTS {
            let got = get();
            let has_room = |pool: PoolId| self.make_room_for_surplus(pool, nr_pages.div_ceil(pool.order().nr_pages()));
            if got.as_ref().err() != Some(&refused) || !pool.is_some_and(has_room) {
                return got;
            }
        }
        get()
    }

    /// Makes room for what `nr` pages of the pool lack, if so many surplus pages may come. Whether to ask the pool again.
    pub(crate) fn make_room_for_surplus(&self, id: PoolId, nr: u64) -> bool {
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
        if id == PoolId::Of2M {
            self.empty_blocks(nr_missing);
        }
        self.seems_to_have(id.order(), nr_missing)
    }

    /// Compacts until so many blocks are whole, or no more can be emptied. Those that are whole stay this CPU's meanwhile, or the next
    /// compaction would move pages into them; so it counts as a holder, and ends for an allocation that waits for holders.
    fn empty_blocks(&self, nr: u64) {
        let Some(_held) = self.hold_unless_last_resort() else { return };
        let mut emptied = FrameList::EMPTY;
        while emptied.nr() < nr && !self.frames.is_last_resort_active() {
            pace::answer(&self.machine);
            if self.seems_to_have(Order::PMD, nr - emptied.nr()) {
                break;
            }
            match (self.reclaim.compact)(self, Effort::Direct, &self.tunables.compact_background) {
                Some(huge) => emptied.push(&self.frames, huge.first),
                None => break,
            }
        }
        while let Some(first) = emptied.pop(&self.frames) {
            self.give_back_huge(first, Content::Unknown);
        }
    }
}
