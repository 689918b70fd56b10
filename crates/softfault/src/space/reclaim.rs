//! Reclaim: how callers react when frames are refused or memory is low.
//!
//! The allocator only refuses. Two callers react, with no lock, entry or section held: a fault
//! between two turns, and an operation that has dropped the writer lock and starts again. The
//! functions that free memory are in higher layers (`compact`, `shrink`) and are passed to `Vm`
//! when it is made.
//!
//! ```text
//! reclaiming held   clean folios are dropped; none? huge pages of zeroes are split     frames were freed: again
//! nothing held      too few? dirty folios are written and dropped; the machine may never return       writers.rs
//! reclaiming held   the search again, in the same blocks, for what was still being written
//! next              none? the blocks behind these, where there are files, until all were searched: then the caller is refused
//! ```
//!
//! Locks on entry: none, no section. Takes the lock `reclaiming`.

use super::Vm;
use super::vm::Shortage;
#[cfg(any(test, feature = "hooks"))]
use crate::addr::Pfn;
use crate::frame::{HugeFrame, OutOfFrames};
use crate::machine::{FrameRange, Machine};
use crate::policy::huge::{Effort, HugeAdvice};
use crate::sync::{self, Ordering};

pub(super) mod reclaiming;
pub(crate) mod retries;
mod surplus_room;
pub(crate) mod writers;

use retries::{NR_RETRIES, Next, Retries, Sweep, nr_of_progress};
use writers::Search;

/// How often a caller that was refused lets others run until one that writes has dropped something: longer than for its own writes,
/// since one that blocks has the pages already. A guess.
const MOST_WAITS_FOR_OTHERS: u32 = 1_000_000;

/// An error that may say that frames were refused.
pub(crate) trait FrameRefusal {
    /// The error for this refusal.
    fn of(refused: OutOfFrames) -> Self;

    /// The frames that were refused, if that is the reason.
    fn refused_frames(&self) -> Option<OutOfFrames>;
}

impl FrameRefusal for OutOfFrames {
    fn of(refused: OutOfFrames) -> OutOfFrames {
        refused
    }

    fn refused_frames(&self) -> Option<OutOfFrames> {
        Some(*self)
    }
}

/// Implements [`FrameRefusal`] for an operation's error with the variant `OutOfFrames`.
macro_rules! frame_refusal {
    ($name:ident) => {
        impl From<$crate::frame::OutOfFrames> for $name {
            fn from(refused: $crate::frame::OutOfFrames) -> $name {
                $name::OutOfFrames(refused)
            }
        }
        impl From<$crate::space::tree::OutOfNodes> for $name {
            fn from(refused: $crate::space::tree::OutOfNodes) -> $name {
                $name::OutOfFrames(refused.into())
            }
        }
        impl $crate::space::reclaim::FrameRefusal for $name {
            fn of(refused: $crate::frame::OutOfFrames) -> $name {
                $name::OutOfFrames(refused)
            }
            fn refused_frames(&self) -> Option<$crate::frame::OutOfFrames> {
                match self {
                    $name::OutOfFrames(refused) => Some(*refused),
                    #[allow(unreachable_patterns)] // of an error with no other reason
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use frame_refusal;

impl<M: Machine> Vm<M> {
    /// Calls `attempt`, and calls it again after a refusal of frames if memory could be reclaimed,
    /// a few times. A refused attempt has kept nothing, and the result of a successful one holds
    /// nothing. Afterwards reacts to low memory, as a fault that allocated does.
    pub(crate) fn with_reclaim<T, E: FrameRefusal>(&self, attempt: &mut dyn FnMut() -> Result<T, E>) -> Result<T, E> {
        let done = self.until_reclaimed(attempt)?;
        self.reclaim_if_low();
        Ok(done)
    }

    /// Like `with_reclaim`, for results that are held (I28): the caller reacts to low memory later,
    /// when it holds nothing.
    pub(crate) fn until_reclaimed<T, E: FrameRefusal>(
        &self,
        attempt: &mut dyn FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut retries = Retries::default();
        loop {
            let before = self.nr_reclaimed();
            let done = attempt();
            match done.as_ref().err().and_then(FrameRefusal::refused_frames) {
                Some(refused) if self.reclaim(&mut retries, before, refused) => {}
                _ => return done,
            }
        }
    }

    /// Number of reclaims that freed frames. Read before an attempt that may be refused.
    pub(crate) fn nr_reclaimed(&self) -> u64 {
        self.nr_reclaimed.load(Ordering::Acquire)
    }

    /// Reclaims memory for a caller that was refused and holds nothing. Returns whether it may
    /// start again: frames were freed since there were `before` reclaims, by this CPU or another; or it makes its last attempt.
    ///
    /// One CPU at a time reclaims. Another one that was refused waits for it: it would rarely find
    /// a huge page left to split, but finds the freed frames. If it is refused again, that reclaim
    /// was too small, and it reclaims itself. During a write it holds nothing: the storage may not answer.
    #[cold]
    pub(crate) fn reclaim(&self, retries: &mut Retries, before: u64, refused: OutOfFrames) -> bool {
        self.assert_outside();
        let Some(nr_left) = retries.nr.checked_sub(1) else { return false };
        retries.nr = nr_left;
        let Some(nr_frames) = nr_to_free(refused, self.nr_total_pages.get()) else { return false };
        let is_first = nr_left + 1 == NR_RETRIES;
        let by_another = || self.nr_reclaimed() != before;
        let mut sweep = Sweep::new();
        loop {
            let reaction = self.reclaiming.lock(&self.machine);
            if is_first && by_another() {
                return true;
            }
            if let Some(at) = sweep.from {
                self.clean_cursor.store(at, Ordering::Relaxed);
            }
            let search = Search {
                from: self.clean_cursor.load(Ordering::Relaxed),
                nr_blocks: self.tunables.shrink_blocks_direct,
                nr_frames,
            };
            let nr_freed = self.shrink(search.nr_blocks, nr_frames, Shortage::Refused);
            // It ends early where many mappings were visited in vain.
            let nr_clean = self.clean_cursor.load(Ordering::Relaxed).wrapping_sub(search.from);
            drop(reaction);
            if !self.has_file_objects() {
                return nr_freed > 0 || by_another();
            }
            let (nr_written, nr_searched) = if nr_freed >= nr_of_progress(refused) {
                (0, search.nr_blocks)
            } else {
                self.write_and_shrink(&search, &mut sweep)
            };
            if nr_freed + nr_written > 0 || by_another() {
                retries.note_progress(refused);
                return true;
            }
            let nr_searched = nr_searched.min(nr_clean);
            let has_next = match sweep.note_nothing(search.from, nr_searched, self.frames.blocks.nr()) {
                Next::Search => true,
                // Their folios were passed over. If they end, these can be looked at.
                Next::Wait => self.wait_for_other_writers(before),
                Next::End => false,
            };
            if !has_next {
                return retries.end();
            }
        }
    }

    /// Writes dirty folios and drops them. Returns the number of frames freed, and that of the blocks searched.
    fn write_and_shrink(&self, search: &Search, sweep: &mut Sweep) -> (u64, u64) {
        let written = (self.reclaim.write_dirty)(self, search);
        // A caller claims the storage first, and then its folios are not dirty: that was seen before.
        sync::fence();
        // Pages under way may lie in blocks that were searched before.
        if written.has_skipped || written.was_under_way || self.writers.has_others(written.claim.as_ref()) {
            sweep.note_skipped();
        }
        if !written.was_under_way {
            return (written.nr_freed, written.nr_blocks);
        }
        let _reaction = self.reclaiming.lock(&self.machine);
        // The first search has moved it past them.
        self.clean_cursor.store(search.from, Ordering::Relaxed);
        let nr_freed = self.shrink(search.nr_blocks, search.nr_frames, Shortage::Refused);
        (written.nr_freed + nr_freed, written.nr_blocks)
    }

    /// Waits while others write and nobody has freed frames since there were so many reclaims, a bounded time. Returns whether one
    /// of them has ended that.
    fn wait_for_other_writers(&self, nr_reclaimed: u64) -> bool {
        for _ in 0..MOST_WAITS_FOR_OTHERS {
            let is_written = self.writers.has_any();
            if self.nr_reclaimed() != nr_reclaimed || !is_written {
                return true;
            }
            self.machine.relax();
        }
        false
    }

    /// Frees frames, under the lock. Returns their number.
    fn shrink(&self, nr_blocks: u64, nr_frames: u64, shortage: Shortage) -> u64 {
        let nr_freed = (self.reclaim.shrink)(self, nr_blocks, nr_frames, shortage);
        if nr_freed > 0 {
            // Release: a CPU that reads the count finds the frames.
            self.nr_reclaimed.fetch_add(1, Ordering::Release);
        }
        nr_freed
    }

    /// Called at the end of a fault or an operation that allocated, with nothing held: frees some
    /// frames if memory is low and no other CPU does so. Later calls continue until as many frames
    /// are free as the watermark `high`, or nothing was found. Then the next CPU that begins a
    /// block sets the flag again.
    #[inline]
    pub(crate) fn reclaim_if_low(&self) {
        let is_low = &self.frames.is_low;
        if is_low.load(Ordering::Relaxed) != 0 && self.reclaiming.is_free() && is_low.swap(0, Ordering::Relaxed) != 0 {
            self.react();
        }
    }

    #[cold]
    fn react(&self) {
        let reaction = self.reclaiming.lock(&self.machine);
        let nr_frames = self.nr_to_high();
        if nr_frames == 0 {
            self.fill_reserve(reaction.pressure);
            return;
        }
        let nr_freed = self.shrink(self.tunables.shrink_blocks, nr_frames, Shortage::Low);
        if self.nr_to_high() > 0 && nr_freed > 0 {
            self.frames.is_low.store(1, Ordering::Relaxed);
        }
    }

    /// Frees what is set aside in these frames, and returns how many.
    pub(crate) fn free_reserve_in(&self, range: &FrameRange) -> u64 {
        self.free_set_aside_in(self.reclaiming.lock(&self.machine).pressure, range)
    }

    /// Sets so many frames aside again.
    pub(crate) fn refill_reserve(&self, nr: u64) {
        self.set_aside_again(self.reclaiming.lock(&self.machine).pressure, nr);
    }

    /// Frees what is set aside beyond the watermark `min`.
    pub(crate) fn trim_reserve(&self) {
        self.free_beyond_min(self.reclaiming.lock(&self.machine).pressure);
    }

    /// Takes a frame of the reserve, as a reaction would.
    #[cfg(any(test, feature = "hooks"))]
    pub(crate) fn take_reserved(&self) -> Option<Pfn> {
        self.frames.take_reserved(self.reclaiming.lock(&self.machine).pressure)
    }

    /// A huge frame for a fault, which has little time. The caller may count as a holder: nothing
    /// here waits for frames.
    pub(crate) fn obtain_huge_for_fault(&self, advice: HugeAdvice) -> Result<HugeFrame, OutOfFrames> {
        // An injected failure counts as a refusal: no huge frame is made in its place.
        if let Some(huge) = self.obtain_huge_if_free()? {
            return Ok(huge);
        }
        let effort = self.huge_now().defrag().effort(advice);
        (self.reclaim.compact)(self, effort, &self.tunables.compact_fault).ok_or(OutOfFrames::huge::<M::Format>())
    }

    /// Makes a huge frame for a collapse, which has time, and leaves it free; another CPU may take
    /// it first. Called with no lock held, because compaction takes long.
    pub(crate) fn make_huge_for_collapse(&self) -> Result<(), OutOfFrames> {
        // Held: others have to expect that the frame becomes free, until it has.
        let _held = self.hold_unless_last_resort().ok_or(OutOfFrames::huge::<M::Format>())?;
        let made = (self.reclaim.compact)(self, Effort::Direct, &self.tunables.compact_background);
        let huge = made.ok_or(OutOfFrames::huge::<M::Format>())?;
        self.give_back_huge(huge.first, huge.content);
        Ok(())
    }
}

/// Number of frames after which a reclaim may end; `None` if there can never be enough.
fn nr_to_free(refused: OutOfFrames, nr_total: u64) -> Option<u64> {
    match refused {
        // The number of frames needed after it is unknown.
        OutOfFrames::Frame => Some(u64::MAX),
        OutOfFrames::Frames(nr_frames) => Some(u64::from(nr_frames)).filter(|nr| *nr <= nr_total),
        // Any frame may be the missing one of a run.
        OutOfFrames::Block(order) => Some(u64::MAX).filter(|_| order.nr_pages() <= nr_total),
    }
}

#[cfg(test)]
#[path = "reclaim_tests.rs"]
mod tests;
