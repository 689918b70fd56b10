//! Surplus pages of the pools of huge pages: those that come from free memory when a reservation finds too few, and go when
//! nobody needs them. Beside `pool_counts.rs`.
//!
//! ```text
//! reserve   enough are unreserved ─▶ claimed
//!           else: gathering ─▶ as many blocks as are missing seem free? ─▶ held ─▶ page after page ─▶ the rest claimed
//!           ─▶ the pages counted, and put into the pool
//! refused   before a block is taken; or, where others took blocks after that look, the pages go back to free memory
//! ```
//! Nobody is refused a page that a reservation takes and does not keep. An allocation that finds too few frames waits for the
//! hold (I28). The look takes nothing: so a reservation that cannot be granted leaves free blocks to those that do not wait, such as
//! faults that want a huge page. Other reservations wait for `gathering`, a spinlock for both pools: under it a page is on its way
//! between free memory and a pool, so that neither has it. A change of a pool's size takes it, too, for each page. The holder never
//! waits. A pool that grows and has to wait for memory does so without it.
//!
//! A page that came while another one was put back may be one too many. The CPU that has made it looks, and it goes.
//!
//! Locks on entry: none, no section. The caller may hold frames, so it waits for none. Takes `gathering`, last.

use super::pool_words::NoHugePages;
use super::{FrameList, Memory, PoolId};
use crate::account::Event;
use crate::addr::Pfn;
use crate::lock::Spin;
use crate::machine::{LockKind, Machine};
use crate::pace::Pace;
use crate::sync::{self, Ordering};

impl<M: Machine> Memory<M> {
    /// Claims so many pages, all or none. Takes surplus pages from free memory if that is allowed.
    ///
    /// # Errors
    ///
    /// [`NoHugePages`]; nothing has changed.
    pub(crate) fn hugetlb_reserve(&self, id: PoolId, nr: u64) -> Result<(), NoHugePages> {
        let pool = self.pool(id);
        if pool.try_reserve(nr) {
            return Ok(());
        }
        let _gathering = self.gathering();
        // Without a limit above 0 nobody brings pages. During a freeze nobody begins to hold frames. A page may have been on
        // its way back.
        if pool.most_surplus() == 0 || self.frames.is_frozen() {
            return if pool.try_reserve(nr) { Ok(()) } else { Err(NoHugePages) };
        }
        let held = self.hold();
        let (reserved, nr_brought) = self.gather(id, nr);
        if nr_brought == 0 {
            held.in_vain();
        }
        reserved
    }

    /// Locks the way between free memory and the pools.
    pub(super) fn gathering(&self) -> Spin<'_, M> {
        Spin::lock(LockKind::Gathering, &self.frames.gathering, &self.machine)
    }

    /// Reserves with pages from free memory, and returns how many it took. The caller has `gathering`, and counts as a holder. The
    /// pages stay its own until all are there: then they go back without frames for descriptors, and nobody else takes them.
    fn gather(&self, id: PoolId, nr: u64) -> (Result<(), NoHugePages>, u64) {
        let (pool, mut brought) = (self.pool(id), FrameList::EMPTY);
        let reserved = loop {
            let nr_missing = nr - brought.nr();
            if pool.try_reserve(nr_missing) {
                break self.count_surplus(id, brought.nr(), nr_missing);
            }
            let nr_wanted = nr_missing.saturating_sub(pool.nr_unreserved());
            if brought.nr() == 0 && nr_wanted > 0 && self.look_for_surplus(id, nr_wanted).is_err() {
                break Err(NoHugePages);
            }
            // Some were put back meanwhile.
            if nr_wanted == 0 {
                continue;
            }
            match self.bring_surplus(id) {
                Ok(first) => brought.push(&self.frames, first),
                Err(refused) => break Err(refused),
            }
        };
        let nr_brought = brought.nr();
        let mut pace = Pace::new(&self.machine);
        while let Some(first) = brought.pop(&self.frames) {
            pace.step();
            if reserved.is_ok() {
                // The claim is the caller's.
                self.pool_put(id, first);
            } else {
                let is_gone = self.pool_release(id, first);
                debug_assert!(is_gone.is_ok(), "it has its descriptors");
            }
        }
        // After the counts: a CPU that puts a page back looks for surplus pages after that.
        sync::fence();
        let nr_surplus = if reserved.is_ok() { nr_brought } else { 0 };
        for _ in 0..nr_surplus {
            if pool.nr_unreserved() == 0 || !self.trim(id) {
                break;
            }
        }
        (reserved, nr_brought)
    }

    /// Counts pages that the caller has brought. Where they would be too many, returns its claim to `nr_claimed` others.
    fn count_surplus(&self, id: PoolId, nr: u64, nr_claimed: u64) -> Result<(), NoHugePages> {
        if nr == 0 || self.pool(id).gain_surplus(nr) {
            return Ok(());
        }
        self.pool(id).unreserved.fetch_add(nr_claimed, Ordering::AcqRel);
        Err(NoHugePages)
    }

    /// Checks that there seems to be memory for so many pages.
    fn look_for_surplus(&self, id: PoolId, nr: u64) -> Result<(), NoHugePages> {
        let room = self.pool(id).most_surplus().saturating_sub(self.pool(id).nr_surplus());
        if nr > room {
            return Err(NoHugePages);
        }
        if self.seems_to_have(id.order(), nr) {
            return Ok(());
        }
        self.count(Event::HtlbBuddyAllocFail, 1);
        Err(NoHugePages)
    }

    /// Takes a page from free memory. It comes before its count: a count of a page that does not come would be taken for one that
    /// is there, by a page that is put back, or by a pool that grows.
    fn bring_surplus(&self, id: PoolId) -> Result<Pfn, NoHugePages> {
        let found = self.pool_bring_if_found(id, None);
        self.count(if found.is_ok() { Event::HtlbBuddyAllocSuccess } else { Event::HtlbBuddyAllocFail }, 1);
        found.map_err(|_| NoHugePages)
    }

    /// Returns a free surplus page without a claim to free memory, if there is one.
    pub(crate) fn trim_surplus(&self, id: PoolId) -> bool {
        if self.pool(id).nr_surplus() == 0 {
            return false;
        }
        let _gathering = self.gathering();
        self.trim(id)
    }

    /// Does the same, for the owner of `gathering`. The count comes first: no caller may be refused a page that is about to stay.
    pub(super) fn trim(&self, id: PoolId) -> bool {
        let pool = self.pool(id);
        while pool.lose_surplus() {
            let claimed = pool.try_reserve(1);
            if claimed && self.release_surplus(id, self.pool_take(id)) {
                return true;
            }
            pool.regain_surplus();
            // A CPU that has made a page unreserved meanwhile has perhaps seen no surplus.
            sync::fence();
            if claimed || pool.nr_unreserved() == 0 {
                return false;
            }
        }
        false
    }

    /// Returns a page that the caller owns, and that is not counted, to free memory, or else to the pool.
    pub(super) fn release_surplus(&self, id: PoolId, first: Pfn) -> bool {
        let is_gone = self.pool_release(id, first).is_ok();
        if !is_gone {
            self.add_free(id, first);
        }
        is_gone
    }
}

#[cfg(test)]
#[path = "pool_surplus_tests.rs"]
mod tests;
