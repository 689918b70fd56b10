//! Holders: CPUs that have claimed frames that are not in use yet. See `last_resort`.

use super::{Frames, Memory};
use crate::addr::OptBlock;
use crate::machine::{CpuId, CpuSet, Machine};
use crate::pace::Pace;
use crate::sync::{Ordering, Word};

/// `CpuData::held`: number of holders in bits 0..16, above it the number of holds that have ended.
pub(super) const HOLDERS: u64 = 0xffff;

/// A hold: its owner may have claimed free frames until this is dropped.
#[must_use]
pub(crate) struct Held<'vm>(&'vm Word);

impl Held<'_> {
    /// Ends a hold that claimed nothing. It is not counted as ended.
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

impl<M: Machine> Memory<M> {
    /// Counts the caller as a holder. Called before its first claim, or in the section in which it
    /// takes a frame out of the CPU's frame cache.
    pub(crate) fn hold(&self) -> Held<'_> {
        let id = self.machine.this_cpu();
        let word = &self.cpu(id).held;
        word.fetch_add(1, Ordering::AcqRel);
        self.frames.mark(id);
        Held(word)
    }

    /// Clears the mark of a CPU whose frame caches the caller has emptied, unless a hold that began
    /// there is still open. Only the owner of the last-resort turn does this, because between the
    /// two steps a holder is invisible. And only for CPUs whose holders it counted before its
    /// attempt: of a hold that began and ended since, only the mark tells.
    pub(super) fn unmark(&self, id: CpuId) {
        if self.frames.counted[usize::from(id.0) / 64].get() & bit_of(id) == 0 {
            return;
        }
        self.frames.marked_cpus[usize::from(id.0) / 64].fetch_and(!bit_of(id), Ordering::AcqRel);
        // A read-modify-write, so that a later count also sees that the mark is gone.
        let cpu = self.cpu(id);
        let held = cpu.held.fetch_add(0, Ordering::AcqRel);
        if held & HOLDERS != 0 {
            self.frames.mark(id);
        } else {
            cpu.held_before.set(held);
        }
    }

    /// Ends the reservations of CPUs whose frame caches were emptied, unless the CPU, or another of
    /// its cluster, has frames again. The CPU notices at its next refill. Only marked CPUs are
    /// checked.
    pub(super) fn end_reservations(&self, robbed: &CpuSet) {
        let mut pace = Pace::new(&self.machine);
        let has_frames = |id: CpuId| self.cpu(id).nr_in_caches() > 0;
        // The CPUs of a cluster are neighbours; sets of neighbours are named by the first CPU.
        let nr_cluster = self.frames.nr_cluster as u16;
        let neighbours = |id: CpuId| CpuId(id.0 / nr_cluster * nr_cluster);
        let (mut robbed_clusters, mut busy_clusters) = (CpuSet::EMPTY, CpuSet::EMPTY);
        robbed.iter().for_each(|id| robbed_clusters.insert(neighbours(id)));
        // A CPU without a mark has no frames.
        for id in self.frames.marked().iter().filter(|id| robbed_clusters.contains(neighbours(*id))) {
            pace.step();
            if has_frames(id) {
                busy_clusters.insert(self.cpu(id).locality.first_of_cluster());
            }
        }
        for id in robbed.iter() {
            pace.step();
            let cpu = self.cpu(id);
            let own = (&cpu.batch_block, u64::from(id.0) + 1, has_frames(id));
            let common = (&cpu.block, cpu.locality.tag(), busy_clusters.contains(cpu.locality.first_of_cluster()));
            for (word, tag, is_kept) in [own, common] {
                if !is_kept && let Some(b) = OptBlock::from_word(word.load(Ordering::Relaxed)).get() {
                    self.frames.blocks.at(b).unreserve(tag);
                }
            }
        }
    }

    /// Like [`hold`](Self::hold), for callers that can do without frames: `None` while another
    /// allocation has the last-resort turn.
    pub(crate) fn hold_unless_last_resort(&self) -> Option<Held<'_>> {
        (!self.frames.is_last_resort_active()).then(|| self.hold())
    }
}

fn bit_of(id: CpuId) -> u64 {
    1 << (id.0 % 64)
}

impl Frames {
    /// Marks a CPU that may have cached or held frames. Called before it gets them.
    #[inline(always)]
    pub(super) fn mark(&self, id: CpuId) {
        if !self.is_marked(id) {
            self.marked_cpus[usize::from(id.0) / 64].fetch_or(bit_of(id), Ordering::AcqRel);
        }
    }

    #[inline(always)]
    pub(super) fn is_marked(&self, id: CpuId) -> bool {
        self.marked_cpus[usize::from(id.0) / 64].load(Ordering::Relaxed) & bit_of(id) != 0
    }

    /// The CPUs that may have cached or held frames.
    pub(super) fn marked(&self) -> CpuSet {
        CpuSet::from_words(core::array::from_fn(|i| self.marked_cpus[i].load(Ordering::Acquire)))
    }

    /// Records the CPUs whose holders the owner of the last-resort turn is about to count.
    pub(super) fn begin_count(&self, marked: &CpuSet) {
        self.counted.iter().zip(marked.words()).for_each(|(word, bits)| word.set(bits));
    }

    /// Whether an allocation has the last-resort turn. A hint for callers that would claim frames
    /// only to free them again.
    pub(crate) fn is_last_resort_active(&self) -> bool {
        self.turns.load(Ordering::Relaxed) != self.nr_turns_over.load(Ordering::Relaxed)
    }

    /// Whether the owner of that turn has asked for a freeze. A hint, too.
    pub(crate) fn is_frozen(&self) -> bool {
        self.freeze.load(Ordering::Relaxed) != 0
    }
}
