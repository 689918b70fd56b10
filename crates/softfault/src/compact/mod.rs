//! Module `compact`: moves used frames so that free ones become adjacent.
//!
//! ```text
//! request ─▶ worth trying again?  policy/compact.rs
//!         ─▶ choose a block       block.rs, scan.rs
//!         ─▶ move its pages out   migrate.rs, subscribed.rs, object.rs, target.rs
//! ```
//! Small private pages can move, and pages of objects, each with its folio unless that fills a
//! block. A block that contains anything else (tables, nodes, pinned pages, huge pages) cannot be
//! emptied. All work is bounded: by a budget of frames and steps of searches, by the entries and VMAs that are
//! visited for one private frame, and by the mappings of an object.
//!
//! An allocation of single frames never compacts. `space/reclaim.rs` calls this through
//! [`Reclaim`](crate::space::vm::Reclaim) for a huge frame that a fault or a collapse
//! wants, and an embedder's daemon calls it ahead of that.
//!
//! `offline` empties memory that is to go, `empty_gib` 1 GiB for a page of a pool. `soft_offline`
//! takes one frame out of use. `single` moves one page of any kind, for the embedder; `pool_page` one of a pool of huge pages.
//!
//! `withdraw` removes a private page's entries, for `poison` and `swap_out`. `object_out` swaps out pages of
//! objects.
//!
//! It uses `rmap` to find and take the entries of a frame, and `frame` for the blocks. Locks on
//! entry: none, no section.

mod announce;
mod attempt;
mod batch;
mod block;
mod candidates;
mod drop_batch;
mod drop_clean;
mod empty_gib;
#[cfg(feature = "files")]
mod evict;
mod migrate;
mod moves;
mod object;
mod object_out;
mod offline;
mod page_out;
mod part;
mod poison;
mod pool_page;
mod refusal;
mod scan;
mod single;
mod soft_offline;
mod split;
mod split_private;
mod subscribed;
mod swap_out;
mod target;
mod withdraw;
pub(crate) mod words;
mod write_dirty;

pub use refusal::{CompactRefusal, MigrateRefusal, OfflineRefusal, PoisonRefusal, SwapRefusal};

use crate::account::Event;
use crate::frame::HugeFrame;
use crate::machine::Machine;
use crate::policy::compact::{CompactBudget, Deferral};
use crate::policy::huge::Effort;
use crate::space::Vm;
use crate::sync::Ordering;
use attempt::Attempt;

impl<M: Machine> Vm<M> {
    /// Makes a huge frame by moving pages away. The caller owns it alone.
    pub(crate) fn compact(&self, budget: &CompactBudget) -> Result<HugeFrame, CompactRefusal> {
        self.compact_by(Attempt::new(self, budget))
    }

    fn compact_by(&self, attempt: Attempt<'_, M>) -> Result<HugeFrame, CompactRefusal> {
        self.count(Event::CompactStall, 1);
        let made = attempt.run();
        self.count(if made.is_ok() { Event::CompactSuccess } else { Event::CompactFail }, 1);
        made.inspect_err(|refusal| self.count(refusal.event(), 1))
    }

    /// Does as much for a huge frame as the caller may: compacts, wakes the daemon, or nothing.
    pub(crate) fn compact_as_far_as(
        &self,
        effort: Effort,
        budget: &CompactBudget,
    ) -> Result<HugeFrame, CompactRefusal> {
        match effort {
            Effort::Nothing => Err(CompactRefusal::NotAsked),
            Effort::Wake => {
                self.compact.wanted.fetch_add(1, Ordering::Relaxed);
                self.machine.unpark(&self.frames.nr_emptied);
                Err(CompactRefusal::NotAsked)
            }
            Effort::Direct => self.compact_unless_deferred(Attempt::new(self, budget)),
        }
    }

    /// Makes one more free block than there are, and returns whether it did. Another CPU may take it first.
    pub(crate) fn empty_one_more(&self, budget: &CompactBudget) -> bool {
        // As for `compact_step`.
        let Some(_held) = self.hold_unless_last_resort() else { return false };
        let made = self.compact_unless_deferred(Attempt::new(self, budget).for_one_more());
        made.map(|huge| self.give_back_huge(huge.first, huge.content)).is_ok()
    }

    fn compact_unless_deferred(&self, attempt: Attempt<'_, M>) -> Result<HugeFrame, CompactRefusal> {
        // Not atomic: CPUs may overwrite each other's updates. The word is a hint.
        let (go, now) = Deferral::from_word(self.compact.deferral.get()).ask();
        self.compact.deferral.set(now.to_word());
        if !go {
            self.count(CompactRefusal::Deferred.event(), 1);
            return Err(CompactRefusal::Deferred);
        }
        let made = self.compact_by(attempt);
        let then = match made {
            Ok(_) => Deferral::default(),
            // Not a failure of the blocks.
            Err(CompactRefusal::LastResort) => now,
            Err(_) => now.failed(),
        };
        self.compact.deferral.set(then.to_word());
        made
    }

    /// Whether a fault has asked for a block since the last call.
    pub fn poll_compaction_request(&self) -> bool {
        self.compact.wanted.get() != 0 && self.compact.wanted.swap(0, Ordering::Relaxed) != 0
    }

    /// Makes one block wholly free, within the budget: one step of an embedder's daemon. The block is
    /// free memory afterwards, for any allocation.
    ///
    /// # Errors
    ///
    /// [`CompactRefusal`]; some pages may have moved.
    pub fn compact_step(&self, budget: &CompactBudget) -> Result<(), CompactRefusal> {
        self.call();
        // The huge frame counts as held until it is given back.
        let _held = self.hold_unless_last_resort().ok_or(CompactRefusal::LastResort)?;
        let huge = self.compact(budget)?;
        self.compact.deferral.set(0);
        let nr_emptied = self.nr_blocks_emptied();
        self.give_back_huge(huge.first, huge.content);
        self.tell_of_blocks(nr_emptied);
        Ok(())
    }
}
