//! Blocks without memory: nothing of any kind, at all levels, from the very beginning.
//!
//! Locks on entry: none; no other CPU knows of the trees yet.

use super::{FEW_BLOCKS, Kind, NOTHING, Place, Summary, USED};
use crate::addr::{BLOCK_FRAMES, BlockRange};
use core::ops::Range;

impl Summary {
    /// Leaves out a hole, before and after which there is memory, or an end of it. Writes a word
    /// for each kind and 64 blocks, and as much above: no block is looked at.
    pub(crate) fn leave_out(&self, hole: &BlockRange) {
        let mut part = hole.start.0..hole.end.0;
        for level in 0..self.nr_levels {
            if part.is_empty() {
                return;
            }
            let rows = part.start / self.width(level)..part.end.div_ceil(self.width(level));
            rows.clone().for_each(|row| self.leave_out_of(Place { level, row, bit: 0 }, &part));
            let has_some = |row: u32| self.bits(Kind::Any, Place { level, row, bit: 0 }) != 0;
            let start = rows.start + u32::from(has_some(rows.start));
            part = start..rows.end - u32::from(rows.end > start && has_some(rows.end - 1));
        }
    }

    fn leave_out_of(&self, at: Place, part: &Range<u32>) {
        let first = at.row * self.width(at.level);
        let bits = part.start.max(first) - first..part.end.min(first + self.width(at.level)) - first;
        let nr_bits = bits.end - bits.start;
        let mask = NOTHING >> (64 - nr_bits) << bits.start;
        for kind in Kind::ALL.into_iter().filter(|kind| !kind.is_rare()) {
            let word = self.word(kind, at);
            word.set(word.get() | mask);
        }
        if at.level == 0 && u64::from(self.nr_blocks) > FEW_BLOCKS {
            self.rows.at(at.row as usize).0[USED].add_owned(u64::from(nr_bits) * BLOCK_FRAMES);
        }
    }
}
