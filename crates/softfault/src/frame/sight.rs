//! Free frames that nobody can find for a moment, and what that means for those
//! who find none.
//!
//! Frames that were claimed and are not in use yet (a refill on its way to its
//! group, a fault's kit, a table reserve, a block that compaction empties) stand in
//! no bitmap and in no group. Whoever has such frames counts as a holder from
//! before the first claim until the last frame is in use or back (I28). Each CPU
//! has a word for that, so that a refill writes no shared line. The holder ends on
//! the word on which it began, whichever CPU it runs on by then.
//!
//! A holder never waits for frames. An allocation that fails therefore gives back
//! what its caller holds first, and then calls [`surely`](Vm::surely), which refuses
//! only if nobody held anything while it looked. One caller at a time is in there:
//! two that claim and give back in turn would otherwise refuse, or delay, each other
//! for ever. Daemons claim nothing while somebody is in there.
//!
//! Locks on entry: none, no section, no frames that are counted here.

use super::{Fill, Frames, OutOfFrames};
use crate::addr::Pfn;
use crate::machine::Machine;
use crate::pace::Pace;
use crate::sync::{self, Ordering, Word};
use crate::vm::Vm;

/// `CpuData::held`: holders in bits 0..16, above them how many have ended.
const HOLDERS: u64 = 0xffff;

/// Where an attempt looks for frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Search {
    /// In the CPU's own group and in the blocks.
    Blocks,
    /// In other CPUs' groups and in underused huge pages, too. Only while nobody else
    /// holds frames: a thief would keep a refill from getting what it has claimed.
    Everywhere,
}

/// Free frames may be out of sight until this is dropped.
#[must_use]
pub(crate) struct Held<'vm>(&'vm Word);

impl Held<'_> {
    /// Ends without a trace: nothing was claimed.
    pub(crate) fn in_vain(self) {
        self.0.fetch_sub(1, Ordering::Release);
        core::mem::forget(self);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // One holder less, one more that has ended.
        self.0.fetch_add(HOLDERS, Ordering::Release);
    }
}

impl<M: Machine> Vm<M> {
    /// Counts the caller as a holder. Called before its first claim, or in the
    /// section in which a frame left the CPU's group.
    pub(crate) fn hold(&self) -> Held<'_> {
        let word = &self.cpu(self.machine.this_cpu()).held;
        word.fetch_add(1, Ordering::AcqRel);
        Held(word)
    }

    /// One frame, the caller's alone, which is counted as held. The caller holds
    /// nothing else.
    pub(crate) fn obtain_held(&self, fill: Fill) -> Result<(Pfn, Held<'_>), OutOfFrames> {
        self.frames.count_down()?;
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
        if let Ok(found) = attempt(Search::Blocks) {
            return Ok(found);
        }
        self.in_need().attempt(0, attempt)
    }

    /// The turn of an allocation that may be refused. The caller holds nothing.
    pub(crate) fn in_need(&self) -> InNeed<'_, M> {
        while self.frames.in_need.swap(1, Ordering::Acquire) != 0 {
            self.machine.relax();
        }
        InNeed(self)
    }
}

/// The only allocation that waits for frames, until this is dropped. It may become
/// a holder itself: the others wait for nothing, or for this turn with nothing held.
#[must_use]
pub(crate) struct InNeed<'vm, M: Machine>(&'vm Vm<M>);

impl<M: Machine> InNeed<'_, M> {
    /// As [`surely`](Vm::surely), for a caller who is `nr_own` of the holders.
    pub(crate) fn attempt<T>(
        &self,
        nr_own: u64,
        attempt: &mut dyn FnMut(Search) -> Result<T, OutOfFrames>,
    ) -> Result<T, OutOfFrames> {
        loop {
            let before = self.holders();
            let is_alone = before & HOLDERS == nr_own;
            match attempt(if is_alone { Search::Everywhere } else { Search::Blocks }) {
                // All words grow, so that equal sums mean equal words.
                Err(e) if is_alone && self.holders() == before => return Err(e),
                Err(_) => self.0.machine.relax(),
                found => return found,
            }
        }
    }

    /// The sum of the holders now, and of those that have ended.
    fn holders(&self) -> u64 {
        sync::fence();
        let mut pace = Pace::new(&self.0.machine);
        self.0.cpus.iter().fold(0, |sum, cpu| {
            pace.step();
            sum.wrapping_add(cpu.held.load(Ordering::Acquire))
        })
    }
}

impl<M: Machine> Drop for InNeed<'_, M> {
    fn drop(&mut self) {
        sync::unlock(&self.0.frames.in_need, 0);
    }
}

impl Frames {
    /// Whether an allocation is about to be refused. A hint for those who would
    /// claim frames only to give them back.
    pub(crate) fn is_anybody_in_need(&self) -> bool {
        self.in_need.load(Ordering::Relaxed) != 0
    }
}
