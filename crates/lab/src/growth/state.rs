//! Sets the state of memory of any size in the bitmaps of its blocks.
//!
//! The bits of each block are computed; hooks of the core set them and update the summaries.

use super::options::State;
use crate::conflicts::machine::{self, Simulated};
use crate::error::LabError;
use softfault_recorded::hooks::{BlockBits, Holds};
use softfault_recorded::{CpuId, Vm};

/// Blocks that a preparation gets in full memory.
const WORK_BLOCKS: u32 = 4;
/// Blocks that are tried for the last free one.
const MOST_TRIED: u32 = 16;
/// Frames in a free run of aged memory, on average.
const RUN_FRAMES: u64 = 6;
/// Free frames of 64 in a block of aged memory; each is as frequent as the others.
const FREE_OF_64: [u64; 16] = [1, 2, 2, 3, 4, 5, 6, 7, 7, 11, 18, 26, 34, 44, 54, 62];
const NONE: BlockBits = [0; 8];
const ALL: BlockBits = [!0; 8];

/// Brings fresh memory into the state.
pub fn simulate(vm: &Vm<Simulated>, state: State) {
    machine::become_cpu(0);
    match state {
        // Real age is `ageing`.
        State::Fresh | State::AgedReally => {}
        State::Full => vm.take_all(),
        State::Fragmented => (0..vm.nr_blocks()).for_each(|b| vm.take_bits(b, &one_of_16(b))),
        State::Aged => {
            for b in 0..vm.nr_blocks() {
                let (is_fixed, free) = aged(u64::from(b));
                vm.soil_free(b);
                vm.take_bits(b, &free.map(|word| !word));
                if is_fixed {
                    vm.fix_block(b);
                }
            }
        }
    }
}

/// A frame in every 16, so that there is no run of 16.
fn one_of_16(b: u32) -> BlockBits {
    let mut state = u64::from(b);
    std::array::from_fn(|_| (0..4).fold(0, |bits, i| bits | 1 << (16 * i + splitmix(&mut state) % 16)))
}

/// Whether frames stay in the block for ever, and its free frames: as `ageing` leaves memory, in which
/// free frames lie in runs that are short as a rule.
fn aged(b: u64) -> (bool, BlockBits) {
    let mut state = b;
    match splitmix(&mut state) % 64 {
        0..4 => (false, ALL),
        4..6 => (false, NONE),
        kind => {
            let of_64 = FREE_OF_64[(splitmix(&mut state) % FREE_OF_64.len() as u64) as usize];
            (kind < 8, runs(&mut state, of_64))
        }
    }
}

/// Runs of free frames, [`RUN_FRAMES`] long on average, so that about `of_64` of 64 frames are free.
fn runs(state: &mut u64, of_64: u64) -> BlockBits {
    let mut bits = NONE;
    let mut is_free = splitmix(state) % 64 < of_64;
    for frame in 0..512 {
        if is_free {
            bits[frame / 64] |= 1 << (frame % 64);
        }
        // A free run ends with the chance 1 / RUN_FRAMES, a used one so that the shares come out.
        let (chance, of) =
            if is_free { (64 - of_64, (64 - of_64) * RUN_FRAMES) } else { (of_64, (64 - of_64) * RUN_FRAMES) };
        is_free ^= splitmix(state) % of < chance;
    }
    bits
}

/// Full memory that is opened for a moment.
pub struct Full<'vm> {
    vm: &'vm Vm<Simulated>,
    nr_cpus: u16,
}

impl<'vm> Full<'vm> {
    /// Memory in which everything is taken.
    pub fn new(vm: &'vm Vm<Simulated>, nr_cpus: u16) -> Full<'vm> {
        Full { vm, nr_cpus }
    }

    /// Some blocks at home, to prepare a call with.
    pub fn open(&self, cpu: u16) {
        let (home, nr) = (self.vm.home_blocks(CpuId(cpu)), self.vm.nr_blocks());
        let first = home.end.saturating_sub(WORK_BLOCKS + 1);
        (first..first + WORK_BLOCKS).for_each(|b| self.vm.give_bits(b % nr, &ALL, Holds::Anything));
    }

    /// Everything that is free is taken again.
    pub fn close(&self) {
        self.vm.take_all();
    }

    /// The last free frames: a block at the end of the home blocks of the CPU that is farthest away.
    pub fn leave_far_block(&self, cpu: u16) -> Result<(), LabError> {
        self.close();
        let far = if cpu < self.nr_cpus.div_ceil(2) { self.nr_cpus - 1 } else { 0 };
        let end = self.vm.home_blocks(CpuId(far)).end;
        let beyond = (end + MOST_TRIED).min(self.vm.nr_blocks());
        // Tables of calls before may be in the last one, and metadata in all of a small range.
        for block in (end.saturating_sub(MOST_TRIED)..end).rev().chain(end..beyond) {
            self.vm.give_bits(block, &ALL, Holds::Anything);
            if self.vm.free_bits(block) == ALL {
                return Ok(());
            }
            self.vm.take_bits(block, &ALL);
        }
        Err(LabError::subsystem(format!("a block about block {end}"), "should be free, and some of each is in use"))
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_run_of_16_is_left_in_fragmented_memory() {
        for b in 0..100 {
            let taken = one_of_16(b);
            let runs = taken.iter().flat_map(|word| (0..4).map(move |i| word >> (16 * i) & 0xffff));
            assert!(runs.into_iter().all(|run| run.count_ones() == 1));
        }
    }

    #[test]
    fn aged_memory_has_blocks_of_each_kind() {
        let blocks: Vec<_> = (0..1000).map(aged).collect();
        let nr_free = |bits: &BlockBits| bits.iter().map(|w| w.count_ones()).sum::<u32>();
        assert!(blocks.iter().filter(|(fixed, _)| *fixed).count() > 20);
        assert!(blocks.iter().filter(|(_, free)| *free == ALL).count() > 20);
        assert!(blocks.iter().filter(|(_, free)| *free == NONE).count() > 20);
        let free: u32 = blocks.iter().map(|(_, free)| nr_free(free)).sum();
        assert!((130_000..200_000).contains(&free), "{free} of 512,000");
    }
}
