//! How much is free, and what is counted.
//!
//! Locks on entry: none.

use super::Memory;
#[cfg(any(test, feature = "hooks"))]
use crate::account::Event;
use crate::account::{NR_EVENTS, VmStat};
use crate::machine::{CpuId, Machine, Tick};
use crate::pace::Pace;
use crate::sync::Ordering;
use crate::table::format::huge_order;

impl<M: Machine> Memory<M> {
    /// Frames that a huge entry maps.
    pub(crate) const NR_SUB_FRAMES: u64 = huge_order::<M::Format>().nr_pages();

    /// Frames that descriptors are kept for: one past the highest.
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
        VmStat { nr_free_pages: self.nr_free_pages(), nr_total_pages: self.nr_total_pages, events }
    }

    /// Free frames, those in per-CPU groups included. Adds the counts of all blocks, a word
    /// each, and answers other CPUs meanwhile.
    pub(crate) fn nr_free_pages(&self) -> u64 {
        let mut pace = Pace::new(&self.machine);
        let mut nr_free = 0;
        for block in self.frames.blocks.iter() {
            pace.step();
            nr_free += block.nr_free();
        }
        for id in 0..self.machine.nr_cpus() {
            pace.step();
            nr_free += self.cpu(CpuId(id as u16)).nr_in_groups();
        }
        nr_free
    }

    /// How often a block of 2 MiB has become wholly free: when it has grown, a
    /// collapse that found none may be tried again.
    pub fn nr_blocks_emptied(&self) -> u64 {
        self.frames.nr_emptied.load(Ordering::Relaxed)
    }

    /// Wakes whoever parks at the number of blocks emptied, if it has grown since
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
