//! Held frames, and the last-resort turn: what an allocation does before it is refused.
//!
//! Frames that were claimed and are not in use yet (those of a refill on their way to a
//! frame cache, a fault's preallocation, a table reserve, a block that compaction empties) stand in
//! no bitmap and in no frame cache. Whoever has such frames counts as a holder from
//! before the first claim until the last frame is in use or back (I28). Each CPU
//! has a word for that, so that a refill writes no shared line. The holder ends on
//! the word on which it began, whichever CPU it runs on by then.
//!
//! A holder never waits for frames. An allocation that fails therefore gives back
//! what its caller holds first, and then takes its last-resort turn ([`LastResort`]), where it
//! is refused only if nobody else held anything while it looked. Nothing is reclaimed
//! for it here: that is up to who was refused (`space/reclaim.rs`). One caller at a time
//! has the turn, in the order in which they asked: two that claim and give back in
//! turn would otherwise refuse, or delay, each other for ever. Whoever needs several
//! frames gets all of them in one turn ([`obtain_all`](Memory::obtain_all)).
//!
//! A refusal takes a bounded number of attempts, whatever other programs do. Daemons
//! claim nothing while somebody has the turn. After [`ATTEMPTS_BEFORE_FREEZE`] attempts the
//! owner of the turn asks for a freeze. From then on whoever finds no frame in the CPU's
//! frame cache within a section gives back what it holds and waits for a turn. Holds that had
//! begun end: their owners wait for nobody who waits for frames. A new one needs a check
//! that was made before, one per CPU at most, or a frame that was in a frame cache; an attempt
//! during a freeze that is alone empties the frame caches. An attempt during a freeze is in vain
//! only if one of these holds ended during it.
//!
//! Locks on entry: none, no section, no frames that are counted here.

use super::held::{HOLDERS, Held};
use super::want::{Fill, Search};
use super::{Frames, Memory, OutOfFrames};
use crate::addr::Pfn;
use crate::machine::{CpuId, CpuSet, Machine};
use crate::pace::Pace;
use crate::sync::{self, Ordering};

/// Last-resort attempts before the others have to stand back. A guess: most holds are
/// refills, which end within a few, and nobody has to be delayed for these.
pub(super) const ATTEMPTS_BEFORE_FREEZE: u32 = 16;

impl<M: Machine> Memory<M> {
    /// One frame, the caller's alone, which is counted as held. The caller holds
    /// nothing else.
    pub(crate) fn obtain_held(&self, fill: Fill) -> Result<(Pfn, Held<'_>), OutOfFrames> {
        self.frames.count_down(OutOfFrames::Frame)?;
        self.surely(&mut |search| {
            let held = self.hold();
            match self.try_obtain(fill, search) {
                Ok(pfn) => Ok((pfn, held)),
                Err(e) => {
                    held.in_vain();
                    Err(e)
                }
            }
        })
    }

    /// Attempts an allocation until it succeeds, or fails while no frame is out of
    /// sight. A failed attempt keeps nothing.
    pub(crate) fn surely<T>(
        &self,
        attempt: &mut dyn FnMut(Search) -> Result<T, OutOfFrames>,
    ) -> Result<T, OutOfFrames> {
        if !self.frames.is_frozen()
            && let Ok(found) = attempt(Search::Blocks)
        {
            return Ok(found);
        }
        self.last_resort().attempt(0, attempt)
    }

    /// Several allocations, all or none, which are counted as held. `get` gives back
    /// what it got where one is refused. The caller holds nothing else.
    pub(crate) fn obtain_all<T>(
        &self,
        get: &mut dyn FnMut(&Source<'_, M>) -> Result<T, OutOfFrames>,
    ) -> Result<(T, Held<'_>), OutOfFrames> {
        if !self.frames.is_frozen() {
            let held = self.hold();
            if let Ok(all) = get(&self.source()) {
                return Ok((all, held));
            }
        }
        // Two that take the last frames by turns would both be refused: one at a
        // time, and whoever waits for that holds none.
        let turn = self.last_resort();
        let held = self.hold();
        let all = get(&turn.source())?;
        Ok((all, held))
    }

    /// For a holder, who may be refused while others have frames.
    pub(crate) fn source(&self) -> Source<'_, M> {
        Source { vm: self, turn: None }
    }

    /// The turn of an allocation that may be refused. The caller holds nothing.
    pub(crate) fn last_resort(&self) -> LastResort<'_, M> {
        let turn = self.frames.turns.fetch_add(1, Ordering::Relaxed);
        while self.frames.nr_turns_over.load(Ordering::Acquire) != turn {
            self.machine.relax();
        }
        LastResort(self)
    }
}

/// Where a holder gets one frame after another.
pub(crate) struct Source<'a, M: Machine> {
    vm: &'a Memory<M>,
    /// Of a caller who has the turn, and waits for what others hold.
    turn: Option<&'a LastResort<'a, M>>,
}

impl<M: Machine> Source<'_, M> {
    pub(crate) fn frame(&self, fill: Fill) -> Result<Pfn, OutOfFrames> {
        self.vm.frames.count_down(OutOfFrames::Frame)?;
        self.attempt(OutOfFrames::Frame, &mut |search| self.vm.try_obtain(fill, search))
    }

    /// Looks whether so many single frames are free.
    pub(crate) fn look_for(&self, nr_frames: u64) -> Result<(), OutOfFrames> {
        self.attempt(OutOfFrames::frames(nr_frames), &mut |search| self.vm.look_for(nr_frames, search))
    }

    fn attempt<T>(
        &self,
        wanted: OutOfFrames,
        attempt: &mut dyn FnMut(Search) -> Result<T, OutOfFrames>,
    ) -> Result<T, OutOfFrames> {
        match self.turn {
            None if self.vm.frames.is_frozen() => Err(wanted),
            None => attempt(Search::Blocks),
            Some(turn) => turn.attempt(1, attempt),
        }
    }
}

/// The only allocation that waits for frames, until this is dropped. It may become
/// a holder itself: the others wait for nothing, or for this turn with nothing held.
#[must_use]
pub(crate) struct LastResort<'vm, M: Machine>(&'vm Memory<M>);

/// Who may hold frames, at one moment.
pub(super) struct Holders {
    /// The CPUs on which somebody may.
    marked: CpuSet,
    /// Of those: the holders, and those that have ended.
    sum: u64,
}

impl<M: Machine> LastResort<'_, M> {
    /// For the owner of the turn as the only holder.
    pub(crate) fn source(&self) -> Source<'_, M> {
        Source { vm: self.0, turn: Some(self) }
    }

    /// As [`surely`](Memory::surely), for a caller who is `nr_own` of the holders.
    pub(crate) fn attempt<T>(
        &self,
        nr_own: u64,
        attempt: &mut dyn FnMut(Search) -> Result<T, OutOfFrames>,
    ) -> Result<T, OutOfFrames> {
        let mut nr_attempts = 0;
        loop {
            if nr_attempts == ATTEMPTS_BEFORE_FREEZE {
                self.0.frames.freeze.store(1, Ordering::Relaxed);
            }
            nr_attempts += 1;
            let seen = self.holders();
            let is_alone = seen.sum & HOLDERS == nr_own;
            match attempt(if is_alone { Search::Everywhere } else { Search::Blocks }) {
                Err(e) if is_alone && self.are_still(&seen) && !self.0.next_section() => return Err(e),
                Err(_) => self.0.machine.relax(),
                found => return found,
            }
        }
    }

    pub(super) fn holders(&self) -> Holders {
        sync::fence();
        let marked = self.0.frames.marked();
        self.0.frames.begin_count(&marked);
        Holders { marked, sum: self.sum(&marked) }
    }

    /// Whether nobody has held a frame since. All words grow, so that equal sums mean equal
    /// words. On a CPU that has been marked since then no hold has begun but in vain;
    /// none of the others has lost its mark (`unmark`).
    fn are_still(&self, before: &Holders) -> bool {
        sync::fence();
        let memory = self.0;
        let is_idle = |id: CpuId| memory.cpu(id).held.load(Ordering::Acquire) == memory.cpu(id).held_before.get();
        memory.frames.marked().iter().all(|id| before.marked.contains(id) || is_idle(id))
            && self.sum(&before.marked) == before.sum
    }

    fn sum(&self, marked: &CpuSet) -> u64 {
        let mut pace = Pace::new(&self.0.machine);
        marked.iter().fold(0, |sum, id| {
            pace.step();
            sum.wrapping_add(self.0.cpu(id).held.load(Ordering::Acquire))
        })
    }
}

impl<M: Machine> Drop for LastResort<'_, M> {
    fn drop(&mut self) {
        let Frames { freeze, nr_turns_over, .. } = &self.0.frames;
        freeze.store(0, Ordering::Relaxed);
        sync::unlock(nr_turns_over, nr_turns_over.get() + 1);
    }
}
