//! Home blocks when memory comes or goes, and the neighbourhoods that are made of them.
//!
//! Home blocks are hints: a CPU that searches those of a moment ago finds nothing in memory that has gone, and
//! looks farther. Both ends are one word, so that no reader finds ends of different times.
//!
//! The cost of a change is a pass over the CPUs, whatever the amount of memory. Clusters stay those of the beginning.
//!
//! Locks on entry: that of resizes, no section.

use super::mem_sections::MEM_SECTION_BLOCK_SHIFT;
use super::{Frames, Memory};
use crate::addr::{BLOCK_FRAMES, BlockId, BlockRange};
use crate::cpu::CpuData;
use crate::machine::{CpuId, CpuSet, Machine};
use crate::mem::FrameArray;
use crate::pace::Pace;
use crate::policy::{homes, share};
use crate::sync::Ordering;

impl<M: Machine> Memory<M> {
    /// Gives CPUs without home blocks, or with few, home blocks in memory that has come.
    pub(super) fn homes_come(&self, added: BlockRange) {
        if let Some(node) = self.node_of_blocks(&added) {
            let is_near = |id: &usize| self.node_of_cpu(*id) == node;
            let new = self.grow_homes(added, &is_near);
            self.deal_homes(new, &is_near);
        }
        self.neighbourhoods_follow();
    }

    /// Gives parts of shares to the CPUs that have the others, and returns the rest.
    fn grow_homes(&self, mut new: BlockRange, is_near: &dyn Fn(&usize) -> bool) -> BlockRange {
        let nr_in_share = self.frames.blocks.summary.nr_blocks_in_share();
        let mut pace = Pace::new(&self.machine);
        for cpu in (0..self.cpus.len()).filter(is_near).map(|id| self.cpus.at(id)) {
            pace.step();
            let home = homes::grown(cpu.home_range(), &new, nr_in_share);
            cpu.locality.home.set(home.to_word());
            // Home blocks of the beginning may lie where there was no memory.
            new = homes::without(new, &home);
        }
        new
    }

    /// Deals shares to the CPUs that want new home blocks.
    fn deal_homes(&self, new: BlockRange, is_near: &dyn Fn(&usize) -> bool) {
        if new.is_empty() {
            return;
        }
        let mut pace = Pace::new(&self.machine);
        let nr_in_share = self.frames.blocks.summary.nr_blocks_in_share();
        let (nr_new, nr_cpus) = (new.extent(), self.cpus.len() as u64);
        let wants = |id: &usize| {
            pace.step();
            is_near(id) && homes::leaves(self.cpus.at(*id).home_range().extent(), nr_new, nr_cpus)
        };
        let mut takers = CpuSet::EMPTY;
        (0..self.cpus.len()).filter(wants).for_each(|id| takers.insert(CpuId(id as u16)));
        let nr_takers = takers.iter().count() as u64;
        let first = new.start.0 / nr_in_share;
        let nr_shares = u64::from(new.end.0.div_ceil(nr_in_share) - first);
        for (i, id) in takers.iter().enumerate() {
            let part = homes::part(nr_shares, nr_takers, i as u64);
            let [start, end] = [part.start, part.end].map(|n| BlockId((first + n as u32).saturating_mul(nr_in_share)));
            let home = BlockRange { start, end }.common(&new);
            if !home.is_empty() {
                self.cpu(id).locality.home.set(home.to_word());
            }
        }
    }

    /// Cuts all CPUs' home blocks, so that none begin or end in memory that has gone.
    pub(super) fn homes_go(&self, gone: BlockRange) {
        let mut pace = Pace::new(&self.machine);
        for cpu in self.cpus.iter() {
            pace.step();
            let home = cpu.home_range();
            if !home.common(&gone).is_empty() {
                let left = self.frames.without_holes_at_ends(homes::without(home, &gone), &mut || pace.step());
                cpu.locality.home.set(left.to_word());
            }
        }
        drop(pace);
        self.neighbourhoods_follow();
    }

    fn neighbourhoods_follow(&self) {
        let nr_blocks = self.nr_total_pages.load(Ordering::Relaxed).div_ceil(BLOCK_FRAMES);
        let mut pace = Pace::new(&self.machine);
        set_neighbourhoods(&self.cpus, nr_blocks, |id| self.node_of_cpu(id), &mut || pace.step());
    }

    fn node_of_cpu(&self, id: usize) -> usize {
        usize::from(self.machine.node_of_cpu(CpuId(id as u16)).0)
    }

    /// The node of memory that comes: known where there is only one, and where it is part of a range of the beginning.
    fn node_of_blocks(&self, blocks: &BlockRange) -> Option<usize> {
        if self.machine.nr_nodes() == 1 {
            return Some(0);
        }
        let [first, end] = [blocks.start, blocks.end].map(|b| u64::from(b.first_frame().0));
        let range = self.machine.frames().iter().position(|r| u64::from(r.first.0) <= first && end <= r.end())?;
        Some(usize::from(self.machine.node_of_range(range).0))
    }

    /// The first CPU whose home blocks begin or end in a section that was removed.
    pub(crate) fn wrong_home(&self) -> Option<CpuId> {
        let is_wrong = |id: &CpuId| {
            let home = self.cpu(*id).home_range();
            let ends = [home.start.0, home.end.0.saturating_sub(1)].map(|b| (b >> MEM_SECTION_BLOCK_SHIFT) as usize);
            !home.is_empty() && ends.into_iter().any(|section| self.frames.is_removed(section))
        };
        (0..self.cpus.len()).map(|id| CpuId(id as u16)).find(is_wrong)
    }
}

impl Frames {
    /// The range without sections at its ends that have no memory; `step` for each that is looked at.
    fn without_holes_at_ends(&self, range: BlockRange, step: &mut dyn FnMut()) -> BlockRange {
        let first_of = |section: u32| BlockId(section << MEM_SECTION_BLOCK_SHIFT);
        let mut has_memory = |section: &u32| {
            step();
            self.is_present(*section as usize) || self.is_deferred(first_of(*section))
        };
        let sections = range.start.0 >> MEM_SECTION_BLOCK_SHIFT..range.end.0.div_ceil(1 << MEM_SECTION_BLOCK_SHIFT);
        let none = BlockRange { end: range.start, ..range };
        if range.is_empty() {
            return none;
        }
        let Some(first) = sections.clone().find(&mut has_memory) else { return none };
        let last = sections.rev().find(&mut has_memory).unwrap_or(first);
        BlockRange { start: first_of(first), end: first_of(last + 1) }.common(&range)
    }
}

/// Returns those of so many neighbours of a CPU, itself among them, that are of its node.
pub(crate) fn neighbours(
    cpu: usize,
    nr: usize,
    nr_cpus: usize,
    node_of: impl Fn(usize) -> usize,
) -> impl Iterator<Item = usize> {
    let first = cpu / nr * nr;
    (first..(first + nr).min(nr_cpus)).filter(move |other| node_of(*other) == node_of(cpu))
}

/// Makes neighbourhoods of home blocks, in a machine of so many blocks; `step` for each CPU.
pub(crate) fn set_neighbourhoods(
    cpus: &FrameArray<CpuData>,
    nr_blocks: u64,
    node_of: impl Fn(usize) -> usize,
    step: &mut dyn FnMut(),
) {
    let nr_sharers = share::sharers(nr_blocks, cpus.len() as u64, share::BLOCKS_FOR_WHAT_STAYS) as usize;
    for (id, cpu) in cpus.iter().enumerate() {
        step();
        let mut near = neighbours(id, nr_sharers, cpus.len(), &node_of);
        let first = near.next().unwrap_or(id);
        // The first one of a neighbourhood makes it, so that each CPU is looked at once.
        if first == id {
            let all = from_first_to_last([id].into_iter().chain(near).map(|other| cpus.at(other).home_range()));
            cpu.locality.neighbourhood.set(all.unwrap_or(cpu.home_range()).to_word());
        } else {
            cpu.locality.neighbourhood.set(cpus.at(first).locality.neighbourhood.get());
        }
    }
}

/// The span of those that are not empty.
fn from_first_to_last(home_ranges: impl Iterator<Item = BlockRange>) -> Option<BlockRange> {
    home_ranges
        .filter(|home| !home.is_empty())
        .reduce(|all, home| BlockRange { start: all.start.min(home.start), end: all.end.max(home.end) })
}

#[cfg(test)]
#[path = "home_blocks_tests.rs"]
mod tests;
