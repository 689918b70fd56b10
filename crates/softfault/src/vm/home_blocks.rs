//! Home blocks at the beginning: each CPU searches a share of its node's memory first. The changes to them
//! when memory comes or goes is in `frame/home_blocks.rs`.

use super::refusal::nr_blocks_of;
use crate::addr::{BLOCK_FRAMES, BlockId, BlockRange, Pfn};
use crate::cpu::CpuData;
use crate::frame::home_blocks::{neighbours, set_neighbourhoods};
use crate::frame::{FEW_BLOCKS, Frames, Memory};
use crate::machine::{CpuId, MAX_NODES, Machine, MemoryNode};
use crate::mem::FrameArray;

impl<M: Machine> Memory<M> {
    /// The node that a frame belongs to; `None` if the machine has no such frame.
    pub fn node_of(&self, pfn: Pfn) -> Option<MemoryNode> {
        let range = self.machine.frames().iter().position(|r| r.holds(pfn.0.into()))?;
        Some(self.machine.node_of_range(range))
    }
}

impl Frames {
    /// Gives each CPU home blocks: whole shares of its node, block groups of one row, with about as
    /// many free frames as the others' there. CPUs of a node without memory share that of the first node that
    /// has some; memory of a node without CPUs is in nobody's, and found by a CPU that looks
    /// farther.
    pub(super) fn deal_out<M: Machine>(&self, machine: &M, cpus: &FrameArray<CpuData>) {
        let nr_free: [u64; MAX_NODES] = core::array::from_fn(|node| {
            let is_there = node < machine.nr_nodes();
            if is_there {
                self.block_groups_of(machine, node).map(|block_group| self.nr_free_in(&block_group)).sum()
            } else {
                0
            }
        });
        let first = nr_free.iter().position(|nr| *nr > 0).unwrap_or(0);
        let node_of = |cpu: usize| {
            let node = usize::from(machine.node_of_cpu(CpuId(cpu as u16)).0);
            if nr_free[node] > 0 { node } else { first }
        };
        for (node, nr_free) in nr_free.into_iter().enumerate().filter(|(_, nr)| *nr > 0) {
            let members = || (0..cpus.len()).filter(|cpu| node_of(*cpu) == node);
            let nr_members = members().count() as u64;
            let mut block_groups = self.block_groups_of(machine, node).peekable();
            let mut nr_before = 0;
            for (i, cpu) in members().enumerate() {
                let (home_range, nr) = self
                    .next_home_range(&mut block_groups, |nr| (nr_before + nr) * nr_members < nr_free * (i as u64 + 1));
                nr_before += nr;
                cpus.at(cpu).locality.home.set(home_range.to_word());
            }
        }
        let nr_cluster = self.nr_cluster as usize;
        for (i, cpu) in cpus.iter().enumerate() {
            let first = neighbours(i, nr_cluster, cpus.len(), node_of).next();
            cpu.locality.first_of_cluster.set(first.unwrap_or(i) as u64);
        }
        set_neighbourhoods(cpus, nr_blocks_of(machine.frames()), node_of, &mut || ());
    }

    /// Takes block groups as long as it `wants_more` than so many free frames; gives the largest part of
    /// them that is adjacent, and the number of frames that are dealt then. The rest, which
    /// memory of another node cuts off, belongs to no home blocks.
    fn next_home_range(
        &self,
        block_groups: &mut core::iter::Peekable<impl Iterator<Item = BlockRange>>,
        wants_more: impl Fn(u64) -> bool,
    ) -> (BlockRange, u64) {
        let start = block_groups.peek().map_or(self.blocks.names().end, |block_group| block_group.start);
        let none = BlockRange { start, end: start };
        let (mut largest, mut home_range, mut nr_in_home_range, mut nr_dealt) = ((none, 0), none, 0, 0);
        // Half of the next one: else a node of as many block groups as CPUs, one of which is not
        // whole, would leave the last CPU without.
        while let Some(block_group) =
            block_groups.next_if(|block_group| wants_more(nr_dealt + self.nr_free_in(block_group) / 2))
        {
            if block_group.start != home_range.end {
                (home_range, nr_in_home_range) = (BlockRange { end: block_group.start, ..block_group }, 0);
            }
            home_range.end = block_group.end;
            let nr = self.nr_free_in(&block_group);
            (nr_dealt, nr_in_home_range) = (nr_dealt + nr, nr_in_home_range + nr);
            if nr_in_home_range >= largest.1 {
                largest = (home_range, nr_in_home_range);
            }
        }
        (largest.0, nr_dealt)
    }

    /// The block groups with memory of a node, or with none, without what is another node's at
    /// their ends.
    fn block_groups_of<M: Machine>(&self, machine: &M, node: usize) -> impl Iterator<Item = BlockRange> {
        let is_far = move |b: &BlockId| {
            let block = BlockRange { start: *b, end: BlockId(b.0 + 1) };
            self.node_of(machine, &block).is_some_and(|of| of != node)
        };
        self.block_groups().filter_map(move |block_group| {
            let is_near = |b: &BlockId| !is_far(b);
            let (first, last) = (block_group.iter().find(is_near)?, block_group.iter().rev().find(is_near)?);
            Some(BlockRange { start: first, end: BlockId(last.0 + 1) })
        })
    }

    /// The block groups, as many together as make a share.
    fn block_groups(&self) -> impl Iterator<Item = BlockRange> {
        let (summary, step) = (&self.blocks.summary, self.blocks.summary.nr_block_groups_in_share());
        let last = move |first: u32| summary.blocks_of((first + step).min(summary.nr_block_groups()) - 1);
        let firsts = (0..summary.nr_block_groups()).step_by(step as usize);
        firsts.map(move |first| BlockRange { end: last(first).end, ..summary.blocks_of(first) })
    }

    fn nr_free_in(&self, block_group: &BlockRange) -> u64 {
        let summary = &self.blocks.summary;
        let exactly = |blocks: BlockRange| -> u64 { blocks.iter().map(|b| self.blocks.at(b).nr_free()).sum() };
        if self.blocks.nr() <= FEW_BLOCKS || block_group.start >= block_group.end {
            return exactly(*block_group);
        }
        // One word says whether all of it is free, or in use.
        let [first, last] = [block_group.start.0, block_group.end.0 - 1].map(|b| summary.block_group_of(BlockId(b)));
        let free_in = |of: u32| {
            let all = summary.blocks_of(of);
            let part = BlockRange { start: all.start.max(block_group.start), end: all.end.min(block_group.end) };
            let nr_all = |blocks: &BlockRange| u64::from(blocks.end.0 - blocks.start.0) * BLOCK_FRAMES;
            match summary.nr_used(of) {
                0 => nr_all(&part),
                // Memory that has not been needed yet looks like a hole.
                nr_used if nr_used == nr_all(&all) && self.is_deferred(part.start) => nr_all(&part),
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

#[cfg(test)]
#[path = "home_blocks_tests.rs"]
mod tests;
