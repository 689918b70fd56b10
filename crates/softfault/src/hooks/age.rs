//! Memory that looks as it does after a long day: for measurements and tests.

use crate::addr::{BLOCK_FRAMES, BlockId, Pfn};
use crate::frame::{BLOCK_WORDS, FrameKind, word_base};
use crate::hash::mix;
use crate::machine::Machine;
use crate::space::Vm;

impl<M: Machine> Vm<M> {
    /// Takes random free frames out of use permanently, so that about `free_of_64` in each 64 stay
    /// free: no two free frames need be adjacent any more, and refills come in ones and twos. There
    /// is no free list that could be shuffled; scattered bits are what age does to bitmaps.
    ///
    /// Call it at rest. Gives the number of frames taken.
    pub fn age(&self, free_of_64: u32, seed: u64) -> u64 {
        self.call();
        self.steal_caches();
        let mut state = seed;
        let mut nr_taken = 0;
        for b in self.frames.blocks.there() {
            for w in 0..BLOCK_WORDS {
                let keep = random_bits(&mut state, free_of_64);
                let out = self.frames.blocks.at(b).free_word(w) & !keep;
                nr_taken += self.withhold(b, w, out);
            }
        }
        nr_taken
    }

    /// Takes one random free frame out of use permanently in `percent` of the blocks, each picked
    /// by chance: memory with as much free as before and few or no blocks that are whole.
    ///
    /// Call it at rest. Gives the number of frames taken.
    pub fn hold_one_in_each_block(&self, percent: u32, seed: u64) -> u64 {
        self.call();
        self.steal_caches();
        let mut state = seed;
        let mut nr_taken = 0;
        for b in self.frames.blocks.there() {
            let (chance, at) = (splitmix(&mut state) % 100, splitmix(&mut state) % BLOCK_FRAMES);
            if chance >= u64::from(percent) {
                continue;
            }
            let words = (0..=BLOCK_WORDS).map(|i| ((at / 64) as usize + i) % BLOCK_WORDS);
            let from = |i: usize, bits: u64| if i == 0 { bits & !0 << (at % 64) } else { bits };
            let free = words.enumerate().map(|(i, w)| (w, from(i, self.frames.blocks.at(b).free_word(w))));
            let found = free.into_iter().find(|(_, bits)| *bits != 0);
            nr_taken += found.map_or(0, |(w, bits)| self.withhold(b, w, bits & bits.wrapping_neg()));
        }
        nr_taken
    }

    /// The frames `mask` of word `w` in block `b`, which are free.
    fn withhold(&self, b: BlockId, w: usize, mask: u64) -> u64 {
        if mask == 0 || self.frames.blocks.at(b).claim_exact(w, mask).is_none() {
            return 0;
        }
        self.count_taken(mask.count_ones().into());
        let base = word_base(b, w);
        for i in (0..64).filter(|i| mask & 1 << i != 0) {
            self.frames.desc(Pfn((base + i) as u32)).assign(FrameKind::Reserved, 0, 0, 0);
        }
        u64::from(mask.count_ones())
    }
}

/// Each bit set with the chance `of_64` in 64.
fn random_bits(state: &mut u64, of_64: u32) -> u64 {
    (0..64).filter(|_| (splitmix(state) & 63) < u64::from(of_64)).fold(0, |bits, i| bits | 1 << i)
}

/// The next number of a sequence that repeats (SplitMix64).
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mix(*state)
}
