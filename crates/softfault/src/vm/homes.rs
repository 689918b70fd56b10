//! Who looks for frames where first: each CPU has a zone of its own in the memory of its node.

use super::refusal::nr_blocks_of;
use crate::addr::{BLOCK_FRAMES, BlockId, BlockRange, Pfn};
use crate::cpu::CpuData;
use crate::frame::{FEW_BLOCKS, Frames, Memory};
use crate::machine::{CpuId, MAX_NODES, Machine, MemoryNode};
use crate::mem::FrameArray;
use crate::policy::share;

impl<M: Machine> Memory<M> {
    /// The node that a frame belongs to; `None` if the machine has no such frame.
    pub fn node_of(&self, pfn: Pfn) -> Option<MemoryNode> {
        let range = self.machine.frames().iter().position(|r| r.holds(pfn.0.into()))?;
        Some(self.machine.node_of_range(range))
    }
}

impl Frames {
    /// Gives each CPU a zone of whole shares of its node, tracts of one row, with about as many free frames as
    /// the others' there. CPUs of a node without memory share that of the first node that
    /// has some; memory of a node without CPUs is in no zone, and found by whoever looks
    /// farther.
    pub(super) fn deal_out<M: Machine>(&self, machine: &M, cpus: &FrameArray<CpuData>) {
        let nr_free: [u64; MAX_NODES] = core::array::from_fn(|node| {
            let is_there = node < machine.nr_nodes();
            if is_there { self.tracts_of(machine, node).map(|tract| self.nr_free_in(&tract)).sum() } else { 0 }
        });
        let first = nr_free.iter().position(|nr| *nr > 0).unwrap_or(0);
        let home = |cpu: usize| {
            let node = usize::from(machine.node_of_cpu(CpuId(cpu as u16)).0);
            if nr_free[node] > 0 { node } else { first }
        };
        for (node, nr_free) in nr_free.into_iter().enumerate().filter(|(_, nr)| *nr > 0) {
            let members = || (0..cpus.len()).filter(|cpu| home(*cpu) == node);
            let nr_members = members().count() as u64;
            let mut tracts = self.tracts_of(machine, node).peekable();
            let mut nr_before = 0;
            for (i, cpu) in members().enumerate() {
                let (zone, nr) =
                    self.next_zone(&mut tracts, |nr| (nr_before + nr) * nr_members < nr_free * (i as u64 + 1));
                nr_before += nr;
                let cpu = cpus.at(cpu);
                cpu.home.zone_start.set(zone.start.0.into());
                cpu.home.zone_end.set(zone.end.0.into());
            }
        }
        let nr_sharers =
            share::sharers(nr_blocks_of(machine.frames()), cpus.len() as u64, share::BLOCKS_FOR_WHAT_STAYS) as usize;
        for (i, cpu) in cpus.iter().enumerate() {
            // Of so many neighbours, those of the same node.
            let near = |nr: usize| {
                let first = i / nr * nr;
                (first..(first + nr).min(cpus.len())).filter(|other| home(*other) == home(i))
            };
            cpu.home.first_of_team.set(near(self.nr_team as usize).next().unwrap_or(i) as u64);
            let zones = near(nr_sharers).map(|other| cpus.at(other).zone());
            let home = from_first_to_last(zones).unwrap_or(cpu.zone());
            cpu.home.home_start.set(home.start.0.into());
            cpu.home.home_end.set(home.end.0.into());
        }
    }

    /// Takes tracts as long as it `wants_more` than so many free frames; gives the largest part of
    /// them that is adjacent, and the number of frames that are dealt then. The rest, which
    /// memory of another node cuts off, is in no zone.
    fn next_zone(
        &self,
        tracts: &mut core::iter::Peekable<impl Iterator<Item = BlockRange>>,
        wants_more: impl Fn(u64) -> bool,
    ) -> (BlockRange, u64) {
        let start = tracts.peek().map_or(self.blocks.names().end, |tract| tract.start);
        let none = BlockRange { start, end: start };
        let (mut largest, mut zone, mut nr_in_zone, mut nr_dealt) = ((none, 0), none, 0, 0);
        // Half of the next one: else a node of as many tracts as CPUs, one of which is not
        // whole, would leave the last CPU without.
        while let Some(tract) = tracts.next_if(|tract| wants_more(nr_dealt + self.nr_free_in(tract) / 2)) {
            if tract.start != zone.end {
                (zone, nr_in_zone) = (BlockRange { end: tract.start, ..tract }, 0);
            }
            zone.end = tract.end;
            let nr = self.nr_free_in(&tract);
            (nr_dealt, nr_in_zone) = (nr_dealt + nr, nr_in_zone + nr);
            if nr_in_zone >= largest.1 {
                largest = (zone, nr_in_zone);
            }
        }
        (largest.0, nr_dealt)
    }

    /// The tracts with memory of a node, or with none, without what is another node's at
    /// their ends.
    fn tracts_of<M: Machine>(&self, machine: &M, node: usize) -> impl Iterator<Item = BlockRange> {
        let is_far = move |b: &BlockId| {
            let block = BlockRange { start: *b, end: BlockId(b.0 + 1) };
            self.node_of(machine, &block).is_some_and(|of| of != node)
        };
        self.tracts().filter_map(move |tract| {
            let is_near = |b: &BlockId| !is_far(b);
            let (first, last) = (tract.iter().find(is_near)?, tract.iter().rev().find(is_near)?);
            Some(BlockRange { start: first, end: BlockId(last.0 + 1) })
        })
    }

    /// The tracts, as many together as make a share.
    fn tracts(&self) -> impl Iterator<Item = BlockRange> {
        let (summary, step) = (&self.blocks.summary, self.blocks.summary.nr_tracts_in_share());
        let last = move |first: u32| summary.blocks_of((first + step).min(summary.nr_tracts()) - 1);
        let firsts = (0..summary.nr_tracts()).step_by(step as usize);
        firsts.map(move |first| BlockRange { end: last(first).end, ..summary.blocks_of(first) })
    }

    fn nr_free_in(&self, tract: &BlockRange) -> u64 {
        let summary = &self.blocks.summary;
        let exactly = |blocks: BlockRange| -> u64 { blocks.iter().map(|b| self.blocks.at(b).nr_free()).sum() };
        if self.blocks.nr() <= FEW_BLOCKS || tract.start >= tract.end {
            return exactly(*tract);
        }
        // What is all free, or all in use, is told by a word.
        let [first, last] = [tract.start.0, tract.end.0 - 1].map(|b| summary.tract_of(BlockId(b)));
        let free_in = |of: u32| {
            let all = summary.blocks_of(of);
            let part = BlockRange { start: all.start.max(tract.start), end: all.end.min(tract.end) };
            let nr_all = |blocks: &BlockRange| u64::from(blocks.end.0 - blocks.start.0) * BLOCK_FRAMES;
            match summary.nr_used(of) {
                0 => nr_all(&part),
                // Memory that has not been needed yet looks like a hole.
                nr_used if nr_used == nr_all(&all) && self.is_left_for_later(part.start) => nr_all(&part),
                nr_used if nr_used == nr_all(&all) => 0,
                _ => exactly(part),
            }
        };
        (first..=last).map(free_in).sum()
    }

    /// The node of the first frame in these blocks; `None` where the machine has none there.
    fn node_of<M: Machine>(&self, machine: &M, blocks: &BlockRange) -> Option<usize> {
        let [start, end] = [blocks.start, blocks.end].map(|b: BlockId| u64::from(b.first_frame().0));
        let parts = machine.frames().iter().enumerate().filter(|(_, r)| u64::from(r.first.0) < end && start < r.end());
        let (range, _) = parts.min_by_key(|(_, r)| r.first)?;
        Some(usize::from(machine.node_of_range(range).0))
    }
}

/// What lies between the ends of these, of those that are not empty.
fn from_first_to_last(zones: impl Iterator<Item = BlockRange>) -> Option<BlockRange> {
    zones
        .filter(|zone| zone.start < zone.end)
        .reduce(|all, zone| BlockRange { start: all.start.min(zone.start), end: all.end.max(zone.end) })
}

#[cfg(test)]
#[path = "homes_tests.rs"]
mod tests;
