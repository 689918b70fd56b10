//! Frees 1 GiB, for a page of a pool: what is in the way moves, pages of 2 MiB of a pool among it.
//!
//! ```text
//! look     a GiB in which no page seems to stay, and for whose pages there seems to be room       the highest first
//! empty    as memory that is to go (offline.rs) ─▶ all of it is free memory again
//! ```
//! Another CPU may take a part of it before the caller does: it looks again. Programs do without the free frames of that GiB for
//! so long; the emptying ends when an allocation is about to be refused. Nothing is reclaimed.
//!
//! Locks on entry: none, no section. Takes the lock of memory that is emptied.

use super::MigrateRefusal;
use crate::addr::{BlockId, Order, Pfn};
use crate::frame::PoolId;
use crate::machine::{FrameRange, Machine};
use crate::pace::Pace;
use crate::space::Vm;

/// A frame of a GiB that may be emptied.
enum Looks {
    Free,
    Moves,
    Stays,
}

impl<M: Machine> Vm<M> {
    /// Makes 1 GiB free by moving pages. Returns whether one was.
    pub(crate) fn empty_gib(&self) -> bool {
        let nr_frames = Order::PUD.nr_pages();
        let all = (0..self.nr_frames() / nr_frames).rev();
        all.map(|run| FrameRange { first: Pfn((run * nr_frames) as u32), nr_frames })
            .any(|range| self.may_be_emptied(&range) && self.empty(range).is_ok())
    }

    /// Whether it seems so.
    fn may_be_emptied(&self, range: &FrameRange) -> bool {
        let mut pace = Pace::new(&self.machine);
        let mut nr_used = 0;
        for pfn in (range.first.0..).take(range.nr_frames as usize).map(Pfn) {
            pace.step();
            match self.look_at_frame(pfn) {
                Looks::Free => {}
                Looks::Moves => nr_used += 1,
                Looks::Stays => return false,
            }
        }
        let nr_free_elsewhere = self.nr_free_pages().saturating_sub(range.nr_frames - nr_used);
        // Programs go on meanwhile: memory elsewhere should not get short.
        nr_used > 0 && nr_used + self.frames.watch.marks().high_pages <= nr_free_elsewhere
    }

    fn look_at_frame(&self, pfn: Pfn) -> Looks {
        let refused = match self.check_movable(pfn) {
            Err(MigrateRefusal::Hugetlb) => match self.pool_of(pfn) {
                Some(PoolId::Of2M) => self.look_at_pool_page(BlockId::of(pfn).first_frame(), Order::PMD).err(),
                // One of 1 GiB would change places with this one.
                _ => return Looks::Stays,
            },
            // Each of its frames counts its own pins.
            Err(MigrateRefusal::HugePage) if self.state_of(pfn).is_some_and(|state| state.pins() > 0) => {
                Some(MigrateRefusal::Pinned)
            }
            looks => looks.err(),
        };
        match refused {
            None => Looks::Moves,
            Some(MigrateRefusal::NotInUse) => Looks::Free,
            Some(MigrateRefusal::Pinned) => Looks::Stays,
            Some(refusal) if refusal.may_pass() => Looks::Moves,
            Some(_) => Looks::Stays,
        }
    }
}
