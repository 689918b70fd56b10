//! Frames for what has to leave a block: from blocks that are partly used, the
//! fuller ones first. A block that is wholly free stays so: using it up to make
//! another would gain nothing. Where none is left nothing is relieved: relief splits
//! huge pages, and compaction is there to make them.
//!
//! Locks on entry: none, no section.

use crate::addr::{BLOCK_FRAMES, BlockId, Pfn};
use crate::frame::{Content, word_base};
use crate::machine::{Machine, Tick};
use crate::space::Vm;

/// Passes over the blocks: those fuller than the one to be emptied, all, all with
/// those that CPUs take their small frames from or what stays is in.
const NR_PASSES: usize = 3;
const NR_WORDS: usize = 8;
/// Words or blocks that are looked at between two questions whether to go on.
const STEPS_PER_QUESTION: u32 = 256;

/// Frames claimed, at most a word of a bitmap at a time. What is left goes back.
pub(super) struct Targets<'a, M: Machine> {
    vm: &'a Vm<M>,
    source: BlockId,
    /// Free frames of the source when it was chosen.
    source_free: u64,
    /// Frames that will be asked for at most.
    nr_wanted: u64,
    /// Place of the next word to look at: pass, block after the source, word.
    at: (usize, u64, usize),
    base: u64,
    mask: u64,
    zero: u64,
    pub(super) nr_claimed: u64,
}

impl<'a, M: Machine> Targets<'a, M> {
    pub(super) fn new(vm: &'a Vm<M>, source: BlockId, source_free: u64) -> Self {
        let nr_wanted = BLOCK_FRAMES - source_free;
        Targets { vm, source, source_free, nr_wanted, at: (0, 1, 0), base: 0, mask: 0, zero: 0, nr_claimed: 0 }
    }

    /// A frame that is the caller's alone; `None` if there is none, or if `go_on`,
    /// which is asked now and then, says so.
    pub(super) fn next(&mut self, go_on: &mut dyn FnMut() -> bool) -> Option<Pfn> {
        if self.mask == 0 && !self.claim_word(go_on) {
            return None;
        }
        let bit = self.mask & self.mask.wrapping_neg();
        self.mask &= !bit;
        self.nr_wanted = self.nr_wanted.saturating_sub(1);
        Some(Pfn(self.base as u32 + bit.trailing_zeros()))
    }

    /// One that was not used.
    pub(super) fn put_back(&mut self, pfn: Pfn) {
        self.nr_wanted += 1;
        if self.base == u64::from(pfn.0) & !63 {
            // Nothing is known of its content any more.
            self.mask |= 1 << (pfn.0 % 64);
            self.zero &= !(1 << (pfn.0 % 64));
        } else {
            self.vm.frames.release_one(pfn, Content::Unknown);
        }
    }

    fn claim_word(&mut self, go_on: &mut dyn FnMut() -> bool) -> bool {
        let nr_blocks = self.vm.frames.blocks.nr();
        let mut nr_seen = 0u32;
        let (pass, step, w) = &mut self.at;
        while *pass < NR_PASSES {
            if *step >= nr_blocks {
                (*pass, *step, *w) = (*pass + 1, 1, 0);
                continue;
            }
            nr_seen = nr_seen.wrapping_add(1);
            self.vm.machine.tick(Tick::Step);
            if nr_seen.is_multiple_of(STEPS_PER_QUESTION) && !go_on() {
                return false;
            }
            let b = self.vm.frames.blocks.around(u64::from(self.source.0) + *step);
            let block = self.vm.frames.blocks.at(b);
            let nr_free = block.nr_free();
            let limit = if *pass == 0 { self.source_free } else { BLOCK_FRAMES };
            let is_left = *pass < NR_PASSES - 1 && (block.is_reserved() || block.is_fixed());
            if nr_free == 0 || nr_free >= limit || *w == NR_WORDS || is_left {
                (*step, *w) = (*step + 1, 0);
                continue;
            }
            let word = *w;
            *w += 1;
            let (mask, zero) = block.claim_some(word, self.nr_wanted.clamp(1, 64));
            if mask != 0 {
                self.base = word_base(b, word);
                (self.mask, self.zero) = (mask, zero);
                self.nr_claimed += u64::from(mask.count_ones());
                return true;
            }
        }
        false
    }
}

impl<M: Machine> Drop for Targets<'_, M> {
    fn drop(&mut self) {
        for (mask, content) in [(self.mask & self.zero, Content::Zero), (self.mask & !self.zero, Content::Unknown)] {
            if mask != 0 {
                self.vm.frames.release_word(self.base, mask, content);
            }
        }
    }
}
