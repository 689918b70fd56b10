//! The slow half of getting one frame: claim a word of the CPU's block, zero,
//! hand to the group. Runs outside every section.
//!
//! What will stay where it is (tables, nodes) comes from blocks of its own, so that
//! the others can be emptied when a huge frame is wanted: one table in each block
//! would spoil all of them. As much manners as reservations are.
//!
//! Order of places to look, so that nobody is told "out of frames" while there
//! is one: the own block, an unreserved one of the own zone with some, any
//! unreserved one with plenty, any unreserved one, blocks that others reserved,
//! and last the groups of other CPUs.

use super::block::BLOCK_WORDS;
use super::{Frames, OutOfFrames, Search};
use crate::addr::Pfn;
use crate::cpu::{ATTENTION_INJECT, ATTENTION_THIEF, CpuData};
use crate::machine::{CpuId, CpuSet, Machine};
use crate::mem;
use crate::sync::{self, Ordering};
use crate::vm::Vm;
use core::ops::Range;

/// Free frames that make a block worth reserving at once: a word's worth.
const WORD: u64 = 64;
/// And in the own zone: refills of four frames on average; a line of descriptors
/// taken from another CPU costs about what a refill does. A guess.
const WORTH_STAYING: u64 = 32;

/// What the caller will do with the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fill {
    /// It has to be all zero.
    Zeroed,
    /// It will be overwritten.
    Raw,
    /// It has to be all zero, and cannot be moved once it is in use.
    Fixed,
}

/// Up to 64 frames that were just claimed.
struct Claim {
    base: u64,
    mask: u64,
    zero: u64,
}

impl<M: Machine> Vm<M> {
    /// One frame, the caller's alone. Called with nothing held: it may wait for
    /// frames that others hold.
    pub(crate) fn obtain(&self, fill: Fill) -> Result<Pfn, OutOfFrames> {
        self.frames.count_down()?;
        self.surely(&mut |search| self.try_obtain(fill, search))
    }

    /// The same for a caller who is counted as a holder: it does not wait for
    /// others, and may fail while they have frames.
    pub(crate) fn obtain_as_holder(&self, fill: Fill, search: Search) -> Result<Pfn, OutOfFrames> {
        self.frames.count_down()?;
        self.try_obtain(fill, search)
    }

    pub(super) fn try_obtain(&self, fill: Fill, search: Search) -> Result<Pfn, OutOfFrames> {
        loop {
            {
                let section = self.section();
                let cpu = section.cpu();
                if cpu.attention.load(Ordering::Acquire) & ATTENTION_THIEF == 0 {
                    if let Some(pfn) = cpu.group(fill).pop() {
                        return Ok(pfn);
                    }
                } else {
                    drop(section);
                    self.machine.relax();
                    continue;
                }
            }
            self.refill(fill, search)?;
        }
    }

    /// Gives back a frame that is the caller's alone. `fill` says what is known
    /// of its content.
    pub(crate) fn give_back(&self, pfn: Pfn, fill: Fill) {
        self.frames.desc(pfn).clear();
        if fill != Fill::Raw {
            let section = self.section();
            let cpu = section.cpu();
            if cpu.attention.load(Ordering::Acquire) == 0 && cpu.group(fill).put(pfn) {
                return;
            }
        }
        self.frames.release_one(pfn, fill != Fill::Raw);
    }

    fn refill(&self, fill: Fill, search: Search) -> Result<(), OutOfFrames> {
        let batch = self.tunables.zero_batch;
        // A table is wanted once in 512 faults.
        let mut most = if fill == Fill::Fixed { batch / 8 } else { batch }.clamp(1, 64);
        let (claim, is_new_block, held) = loop {
            let held = self.hold();
            // Stealing waits, and the CPU may be another one afterwards.
            let id = self.machine.this_cpu();
            let cpu = self.cpu(id);
            let block = cpu.block.get();
            if let Some(claim) = self.frames.claim(cpu, id, fill, most) {
                break (claim, block != cpu.block.get(), held);
            }
            held.in_vain();
            // What was stolen may be gone again before it is claimed; then it is
            // in somebody's group, and worth another round, by ones.
            most = 1;
            if search == Search::Blocks || !self.steal_groups() && self.shrink_underused(u64::MAX) == 0 {
                return Err(OutOfFrames);
            }
            self.machine.relax();
        };
        if fill != Fill::Raw {
            for_each_run(claim.mask & !claim.zero, |first, nr| {
                mem::zero_frames(&self.machine, Pfn((claim.base + first) as u32), nr);
            });
        }
        // Their descriptors are about to be written one by one; scattered ones
        // would each be waited for. Asked for together, they arrive together.
        for_each_bit(claim.mask, |i| mem::prefetch(self.frames.desc(Pfn((claim.base + i) as u32))));
        let (base, left) = self.swap_group(fill, claim.base, claim.mask);
        if left != 0 {
            self.frames.release_word(base, left, fill != Fill::Raw);
        }
        drop(held);
        if is_new_block && self.underused_above().is_some() && self.is_low() {
            self.shrink_underused(self.tunables.shrink_blocks);
        }
        Ok(())
    }

    /// Whether there are fewer free frames than the low watermark. Looks at as many
    /// blocks as it takes to count that many, on from where this CPU found its last
    /// one.
    fn is_low(&self) -> bool {
        let blocks = &self.frames.blocks;
        let start = self.cpu(self.machine.this_cpu()).search.get() as usize % blocks.len();
        let mut left = self.tunables.low_watermark_pages;
        for b in (start..blocks.len()).chain(0..start) {
            let nr_free = blocks.at(b).nr_free();
            if nr_free >= left {
                return false;
            }
            left -= nr_free;
        }
        true
    }

    /// Puts frames into this CPU's group; gives those that were there. Not while a
    /// thief has the group in its hands (I10).
    fn swap_group(&self, fill: Fill, base: u64, mask: u64) -> (u64, u64) {
        loop {
            {
                let section = self.section();
                let cpu = section.cpu();
                if cpu.attention.load(Ordering::Acquire) & ATTENTION_THIEF == 0 {
                    return cpu.group(fill).replace(base, mask);
                }
            }
            self.machine.relax();
        }
    }

    /// Empties the groups of all CPUs into the blocks; whether there was
    /// anything. One thief at a time; a CPU that wants its group meanwhile waits
    /// outside its section.
    pub(crate) fn steal_groups(&self) -> bool {
        while self.thief.swap(1, Ordering::Acquire) != 0 {
            self.machine.relax();
        }
        for cpu in self.cpus.iter() {
            cpu.attention.fetch_or(ATTENTION_THIEF, Ordering::SeqCst);
        }
        self.grace(&CpuSet::first(self.machine.nr_cpus()));
        let held = self.hold();
        let mut found = false;
        for cpu in self.cpus.iter() {
            for (group, zeroed) in [(&cpu.zeroed, true), (&cpu.raw, false), (&cpu.fixed, true)] {
                let (base, mask) = group.replace(0, 0);
                if mask != 0 {
                    found = true;
                    self.frames.release_word(base, mask, zeroed);
                }
            }
            cpu.attention.fetch_and(!ATTENTION_THIEF, Ordering::Release);
        }
        if found {
            drop(held)
        } else {
            held.in_vain()
        }
        sync::unlock(&self.thief, 0);
        found
    }

    /// From now on the `n`-th allocation fails, counted from 0, and all after it;
    /// `None` switches it off. For tests.
    pub fn fail_allocation(&self, n: Option<u64>) {
        self.frames.inject.store(n.unwrap_or(u64::MAX), Ordering::SeqCst);
        for id in 0..self.machine.nr_cpus() {
            let attention = &self.cpu(CpuId(id as u16)).attention;
            match n {
                Some(_) => attention.fetch_or(ATTENTION_INJECT, Ordering::SeqCst),
                None => attention.fetch_and(!ATTENTION_INJECT, Ordering::SeqCst),
            };
        }
    }
}

impl CpuData {
    #[inline(always)]
    pub(crate) fn group(&self, fill: Fill) -> &super::GroupData {
        match fill {
            Fill::Zeroed => &self.zeroed,
            Fill::Raw => &self.raw,
            Fill::Fixed => &self.fixed,
        }
    }
}

impl Frames {
    /// One allocation; fails if an injected failure says so.
    pub(super) fn count_down(&self) -> Result<(), OutOfFrames> {
        let left = self.inject.load(Ordering::Relaxed);
        if left == u64::MAX {
            return Ok(());
        }
        if left == 0 {
            return Err(OutOfFrames);
        }
        self.inject.store(left - 1, Ordering::Relaxed);
        Ok(())
    }

    fn claim(&self, cpu: &CpuData, id: CpuId, fill: Fill, most: u64) -> Option<Claim> {
        if fill == Fill::Fixed
            && let Some(claim) = self.claim_fixed(cpu, most)
        {
            return Some(claim);
        }
        loop {
            let block = cpu.block.get();
            if block == 0 {
                if self.reserve_next(cpu, id) {
                    continue;
                }
                return (0..self.blocks.len()).find_map(|b| self.claim_in(b, 0, most).map(|(_, claim)| claim));
            }
            let b = block as usize - 1;
            if let Some((w, claim)) = self.claim_in(b, cpu.word.get() as usize, most) {
                cpu.word.set(w as u64);
                return Some(claim);
            }
            self.blocks.at(b).unreserve();
            cpu.block.set(0);
        }
    }

    /// From the block that the CPU used last for what stays, another such block of
    /// its zone, a new one there; then the same of all.
    fn claim_fixed(&self, cpu: &CpuData, most: u64) -> Option<Claim> {
        let zone = cpu.zone_start.get() as usize..cpu.zone_end.get() as usize;
        let all = 0..self.blocks.len();
        let last = (cpu.fixed_block.get() as usize).checked_sub(1);
        let places = [(&zone, true), (&zone, false), (&all, true), (&all, false)];
        // From the end, since pages are taken from the start.
        let others = places.into_iter().flat_map(|(blocks, fixed)| blocks.clone().rev().map(move |b| (b, fixed)));
        last.map(|b| (b, true)).into_iter().chain(others).find_map(|(b, fixed)| {
            let block = self.blocks.at(b);
            let least = if fixed { 1 } else { WORD };
            if block.nr_free() < least || block.is_fixed() != fixed || !fixed && block.is_reserved() {
                return None;
            }
            let (_, claim) = self.claim_in(b, 0, most)?;
            block.set_fixed();
            cpu.fixed_block.set(b as u64 + 1);
            Some(claim)
        })
    }

    /// Some frames of block `b`, from word `from` on.
    fn claim_in(&self, b: usize, from: usize, most: u64) -> Option<(usize, Claim)> {
        let block = self.blocks.at(b);
        (from..BLOCK_WORDS).find_map(|w| {
            let (mask, zero) = block.claim_some(w, most);
            (mask != 0).then(|| (w, Claim { base: (b * 512 + w * 64) as u64, mask, zero }))
        })
    }

    /// Finds the CPU a block. Its zone comes first, unless little is left there: a
    /// frame that this CPU gave back has its descriptor, and its neighbour's, in this
    /// CPU's cache.
    fn reserve_next(&self, cpu: &CpuData, id: CpuId) -> bool {
        let zone = cpu.zone_start.get() as usize..cpu.zone_end.get() as usize;
        let all = 0..self.blocks.len();
        [(&zone, WORD, false), (&zone, WORTH_STAYING, false), (&all, WORD, false), (&all, 1, false), (&all, 1, true)]
            .into_iter()
            .any(|(blocks, least, also_fixed)| self.reserve_in(cpu, id, blocks, least, also_fixed))
    }

    /// The same among some blocks, on from where the last search ended.
    fn reserve_in(&self, cpu: &CpuData, id: CpuId, blocks: &Range<usize>, least: u64, also_fixed: bool) -> bool {
        let search = cpu.search.get() as usize;
        let start = if blocks.contains(&search) { search } else { blocks.start };
        let found = (start..blocks.end).chain(blocks.start..start).find(|b| {
            let block = self.blocks.at(*b);
            block.nr_free() >= least && (also_fixed || !block.is_fixed()) && block.reserve(u64::from(id.0) + 1)
        });
        if let Some(b) = found {
            cpu.block.set(b as u64 + 1);
            cpu.word.set(0);
            cpu.search.set((b + 1) as u64);
        }
        found.is_some()
    }

    pub(crate) fn release_one(&self, pfn: Pfn, zeroed: bool) {
        self.release_word(u64::from(pfn.0) & !63, 1 << (pfn.0 & 63), zeroed);
    }

    pub(crate) fn release_word(&self, base: u64, mask: u64, zeroed: bool) {
        if self.blocks.at((base / 512) as usize).release((base / 64 % 8) as usize, mask, zeroed) {
            self.nr_emptied.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Calls `f` with the number of each set bit.
fn for_each_bit(mut mask: u64, mut f: impl FnMut(u64)) {
    while mask != 0 {
        f(u64::from(mask.trailing_zeros()));
        mask &= mask - 1;
    }
}

/// Calls `f(first, length)` for each run of set bits.
fn for_each_run(mut mask: u64, mut f: impl FnMut(u64, u64)) {
    while mask != 0 {
        let first = mask.trailing_zeros();
        let length = (mask >> first).trailing_ones();
        f(u64::from(first), u64::from(length));
        if first + length == 64 {
            return;
        }
        mask &= !0 << (first + length);
    }
}
