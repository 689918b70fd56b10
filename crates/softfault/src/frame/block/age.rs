//! Two bits of age for each frame of a block, in two lines: the generation, modulo 4, in which
//! the frame was last seen accessed.
//!
//! ```text
//! age[i]   frame 32 i + n:  bit 0 of its generation in bit n, bit 1 in bit 32 + n
//! ```
//! Both bits of a frame lie in one word, so that they change together: two bitmaps of 512 bits
//! would show a third generation while one of two writers has written one of them.
//!
//! Locks on entry: none.

use super::BlockData;
use crate::frame::generations::Generation;
use crate::sync::Ordering;

const HALF: u64 = u32::MAX as u64;

/// One of the two bits of some frames, for each frame where `generation` has it.
fn spread(frames: u64, generation: Generation) -> u64 {
    let low = if generation.0 & 1 != 0 { frames } else { 0 };
    let high = if generation.0 & 2 != 0 { frames << 32 } else { 0 };
    low | high
}

/// Result of noting a generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Noted {
    /// All of the frames were of it.
    Same,
    Written,
    /// There is another one by now. Some frames may have been written.
    Outdated,
}

impl BlockData {
    /// The frames `mask` of word `w` are of this generation from now on, if it is still to be
    /// noted: asked after a look at what they are of. So a slow CPU takes back no other CPU's note of a
    /// later one. Writes nothing else.
    #[inline]
    pub(crate) fn set_generation(
        &self,
        w: usize,
        mask: u64,
        generation: Generation,
        is_current: &impl Fn() -> bool,
    ) -> Noted {
        let low = self.set_half(2 * w, mask & HALF, generation, is_current);
        self.set_half(2 * w + 1, mask >> 32, generation, is_current).max(low)
    }

    /// By compare-and-swap: others change bits of other frames, or of these.
    #[inline]
    fn set_half(&self, i: usize, frames: u64, generation: Generation, is_current: &impl Fn() -> bool) -> Noted {
        let (both, to) = (frames | frames << 32, spread(frames, generation));
        let mut seen = self.age[i].load(Ordering::Acquire);
        while seen & both != to {
            if !is_current() {
                return Noted::Outdated;
            }
            match self.age[i].compare_exchange(seen, seen & !both | to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Noted::Written,
                Err(now) => seen = now,
            }
        }
        Noted::Same
    }

    /// The frames of word `w` that are of this generation.
    pub(crate) fn of_generation(&self, w: usize, generation: Generation) -> u64 {
        self.half_of(2 * w, generation) | self.half_of(2 * w + 1, generation) << 32
    }

    fn half_of(&self, i: usize, generation: Generation) -> u64 {
        // Bits that agree with the generation's.
        let same = !(self.age[i].load(Ordering::Relaxed) ^ spread(HALF, generation));
        same & same >> 32 & HALF
    }

    /// Changes the generation of the frames `mask` of word `w` from `from` to `to`. An age of another
    /// generation stays as it is.
    pub(crate) fn merge_generation(&self, w: usize, mask: u64, from: Generation, to: Generation) {
        for (i, frames) in [(2 * w, mask & HALF), (2 * w + 1, mask >> 32)] {
            let mut moved = self.half_of(i, from) & frames;
            while moved != 0 {
                let seen = self.age[i].load(Ordering::Relaxed);
                let same = !(seen ^ spread(HALF, from));
                moved = same & same >> 32 & frames;
                let new = seen & !(moved | moved << 32) | spread(moved, to);
                if self.age[i].compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    break;
                }
            }
        }
    }

    /// Returns the generation of one frame.
    pub(crate) fn generation_of(&self, w: usize, bit: u32) -> Generation {
        let word = self.age[2 * w + bit as usize / 32].load(Ordering::Relaxed) >> (bit % 32);
        Generation((word & 1 | word >> 31 & 2) as u8)
    }
}
