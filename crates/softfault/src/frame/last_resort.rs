//! Held frames, and the last-resort turn: what an allocation does before it is refused.
//!
//! Frames that were claimed and are not in use yet (by a refill, a fault's preallocation, a table
//! reserve, a block that compaction empties) are in no bitmap and in no frame cache. Their owner
//! counts as a holder from before the first claim until the last frame is in use or freed (I28).
//! Each CPU has a word that counts holders, so that a refill writes no shared line. A hold ends on
//! the word on which it began, whichever CPU it runs on by then.
//!
//! A holder never waits for frames. So an allocation that fails first gives back what its caller
//! holds, and then takes a last-resort turn ([`LastResort`]). There it is refused only if no CPU
//! else held frames while it searched. It reclaims nothing; a refused caller may
//! (`space/reclaim.rs`). One caller at a time has the turn, in the order of requests. Otherwise two
//! callers that claim and give back alternately could refuse or delay each other for ever. A caller
//! that needs several frames gets all of them in one turn ([`obtain_all`](Memory::obtain_all)).
//!
//! A refusal takes a bounded number of attempts, whatever other programs do. Daemons claim nothing
//! while an allocation has the turn. After [`ATTEMPTS_BEFORE_FREEZE`] attempts its owner asks for a
//! freeze. From then on a caller that finds no frame in the CPU's frame cache gives back what it
//! holds and waits for a turn. Holds that had begun end, because their owners wait for no CPU that
//! waits for frames. A new hold needs either a check that was made before the freeze, at most one
//! per CPU, or a frame from a frame cache, and the first undisturbed attempt of a freeze empties
//! those. An attempt during a freeze fails only if one of these holds ended during it.
//!
//! Locks on entry: none, no section, no frames that are counted here.

use super::held::{HOLDERS, Held};
use super::want::{Fill, Search};
use super::{Frames, Memory, OutOfFrames};
use crate::addr::Pfn;
use crate::machine::{CpuId, CpuSet, LockKind, Machine, Tick};
use crate::pace::Pace;
use crate::sync::{self, Ordering};

/// Last-resort attempts before a freeze. A guess: most holds are refills, which end within a few
/// attempts and need no freeze.
pub(super) const ATTEMPTS_BEFORE_FREEZE: u32 = 16;

impl<M: Machine> Memory<M> {
    /// Allocates one frame, which counts as held. The caller holds nothing else.
    pub(crate) fn obtain_held(&self, fill: Fill) -> Result<(Pfn, Held<'_>), OutOfFrames> {
        self.frames.count_down(OutOfFrames::Frame)?;
        self.surely(&mut |search| self.hold_one(fill, search))
    }

    /// The same for a caller that can do without: neither waits for a turn nor takes what other CPUs have cached.
    pub(crate) fn obtain_held_if_found(&self, fill: Fill) -> Result<(Pfn, Held<'_>), OutOfFrames> {
        self.frames.count_down(OutOfFrames::Frame)?;
        if self.frames.is_frozen() { Err(OutOfFrames::Frame) } else { self.hold_one(fill, Search::Blocks) }
    }

    /// One attempt.
    fn hold_one(&self, fill: Fill, search: Search) -> Result<(Pfn, Held<'_>), OutOfFrames> {
        let held = self.hold();
        match self.try_obtain(fill, search) {
            Ok(pfn) => Ok((pfn, held)),
            Err(e) => {
                held.in_vain();
                Err(e)
            }
        }
    }

    /// Repeats an allocation until it succeeds, or fails while no other CPU holds frames. A failed
    /// attempt keeps nothing.
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

    /// Makes several allocations, all or none, which count as held. `get` gives back what it got if
    /// one is refused. The caller holds nothing else.
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
        // Two callers that take the last frames alternately would both be refused. So one runs at a
        // time, and a waiter holds nothing.
        let turn = self.last_resort();
        let held = self.hold();
        let all = get(&turn.source())?;
        Ok((all, held))
    }

    /// A source for a holder, which may be refused while others have frames.
    pub(crate) fn source(&self) -> Source<'_, M> {
        Source { vm: self, turn: None }
    }

    /// Takes the last-resort turn. The caller holds nothing.
    pub(crate) fn last_resort(&self) -> LastResort<'_, M> {
        self.machine.tick(Tick::Taking(LockKind::LastResort));
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
    /// Set if the caller has the turn and so waits for held frames.
    turn: Option<&'a LastResort<'a, M>>,
}

impl<M: Machine> Source<'_, M> {
    pub(crate) fn frame(&self, fill: Fill) -> Result<Pfn, OutOfFrames> {
        self.vm.frames.count_down(OutOfFrames::Frame)?;
        self.attempt(OutOfFrames::Frame, &mut |search| self.vm.try_obtain(fill, search))
    }

    /// Checks that so many single frames are free.
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

/// The last-resort turn, until this is dropped. Its owner is the only one that waits for held
/// frames. It may be a holder itself: all others wait for nothing, or for this turn with nothing
/// held.
#[must_use]
pub(crate) struct LastResort<'vm, M: Machine>(&'vm Memory<M>);

/// A snapshot of the holders.
pub(super) struct Holders {
    /// The CPUs that may have holders.
    marked: CpuSet,
    /// On these: holders now, and holds that have ended.
    sum: u64,
}

impl<M: Machine> LastResort<'_, M> {
    /// A source for the owner of the turn, who is the only holder.
    pub(crate) fn source(&self) -> Source<'_, M> {
        Source { vm: self.0, turn: Some(self) }
    }

    /// Like [`surely`](Memory::surely), for a caller that counts as `nr_own` of the holders.
    pub(crate) fn attempt<T>(
        &self,
        nr_own: u64,
        attempt: &mut dyn FnMut(Search) -> Result<T, OutOfFrames>,
    ) -> Result<T, OutOfFrames> {
        self.0.machine.tick(Tick::Taking(LockKind::Frames));
        let found = self.attempt_until(nr_own, attempt);
        self.0.machine.tick(Tick::Released(LockKind::Frames));
        found
    }

    fn attempt_until<T>(
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
            let nr_deferred = self.0.frames.deferred.nr_pages();
            let seen = self.holders();
            let is_alone = seen.sum & HOLDERS == nr_own;
            match attempt(if is_alone { Search::Everywhere } else { Search::Blocks }) {
                Err(e) if is_alone && self.are_still(&seen) && !self.0.has_more_since(nr_deferred) => return Err(e),
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

    /// Whether no CPU has held a frame since. Words only grow, so equal sums mean equal words. On
    /// CPUs marked since then, only unsuccessful holds have begun; no other CPU has lost its mark
    /// (`unmark`).
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
        self.0.machine.tick(Tick::Released(LockKind::LastResort));
    }
}
