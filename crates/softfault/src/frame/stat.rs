//! Counts of free frames, and counters.
//!
//! Each CPU counts the frames that it claims from the blocks less those that it gives back to them,
//! wherever they came from, in a word that no other CPU writes. The frames that were free at first less the sum
//! is what the bitmaps say is free (I43). So counting all of memory reads the CPUs and no block,
//! and no fault writes an additional line. Frames of deferred sections are free from the beginning, so
//! that nothing is counted when one comes. Added memory is counted once all of it is there.
//!
//! Locks on entry: none.

use super::{FrameDesc, FrameState, Memory};
#[cfg(any(test, feature = "hooks"))]
use crate::account::Event;
use crate::account::{NR_EVENTS, VmStat};
use crate::addr::Pfn;
use crate::machine::{CpuId, Machine, Tick};
use crate::pace::Pace;
use crate::sync::Ordering;
use crate::table::format::huge_order;

impl<M: Machine> Memory<M> {
    /// The use of a frame, if the number is one of the machine's memory. May be out of date at once.
    ///
    /// Locks on entry: no section.
    pub(crate) fn state_of(&self, pfn: Pfn) -> Option<FrameState> {
        let section = self.section();
        self.frames.find_desc(section.inside(), pfn).map(FrameDesc::state)
    }

    /// Frames that a huge entry maps.
    pub(crate) const NR_SUB_FRAMES: u64 = huge_order::<M::Format>().nr_pages();

    /// One past the number of the highest frame, or of the highest that may be added. There may be
    /// holes below.
    pub fn nr_frames(&self) -> u64 {
        self.frames.descs.len() as u64
    }

    /// Reads all counters. Exact at rest; otherwise each within what happened
    /// while it was read.
    pub fn vmstat(&self) -> VmStat {
        self.call_anywhere();
        let mut events = [0; NR_EVENTS];
        for id in 0..self.machine.nr_cpus() {
            self.machine.tick(Tick::Step);
            let cpu = self.cpu(CpuId(id as u16));
            for (sum, word) in events.iter_mut().zip(&cpu.events) {
                *sum = word.get().wrapping_add(*sum);
            }
        }
        let nr_total_pages = self.nr_total_pages.load(Ordering::Relaxed);
        VmStat { nr_free_pages: self.nr_free_pages(), nr_total_pages, events }
    }

    /// Free frames, those in per-CPU frame caches included. Answers other CPUs meanwhile.
    pub(crate) fn nr_free_pages(&self) -> u64 {
        let mut pace = Pace::new(&self.machine);
        let mut nr_free = self.nr_free_at_first;
        for id in 0..self.machine.nr_cpus() {
            pace.step();
            let cpu = self.cpu(CpuId(id as u16));
            nr_free = nr_free.wrapping_sub(cpu.batches.nr_taken.get()).wrapping_add(cpu.nr_in_caches());
        }
        // Frames that one CPU claims and another gives back meanwhile make it any number.
        (nr_free as i64).max(0) as u64
    }

    /// Frames that are free in blocks, as the CPUs have counted. Exact at rest.
    pub(crate) fn nr_free_as_counted(&self) -> u64 {
        let nr_there = self.nr_free_at_first - self.frames.deferred.nr_pages();
        self.cpus.iter().fold(nr_there, |nr, cpu| nr.wrapping_sub(cpu.batches.nr_taken.get()))
    }

    /// How often a block of 2 MiB has become wholly free: when it has grown, a
    /// collapse that found none may be tried again.
    pub fn nr_blocks_emptied(&self) -> u64 {
        self.frames.nr_emptied.load(Ordering::Relaxed)
    }

    /// Wakes the CPUs that park at the number of blocks emptied, if it has grown since
    /// it was `before`: once an operation, however much it freed.
    pub(crate) fn tell_of_blocks(&self, before: u64) {
        if self.nr_blocks_emptied() != before {
            self.machine.unpark(&self.frames.nr_emptied);
        }
    }

    /// The counter of an event; a hook.
    #[cfg(any(test, feature = "hooks"))]
    pub fn event(&self, event: Event) -> u64 {
        self.vmstat().get(event)
    }
}

#[cfg(test)]
#[path = "stat_tests.rs"]
mod tests;
