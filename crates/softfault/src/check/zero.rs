//! I20: memory that is recorded as zero is.
//!
//! At rest.
#![allow(unsafe_code)] // the promise is the caller's

use super::Broken;
use crate::addr::Pfn;
use crate::frame::{BLOCK_WORDS, word_base};
use crate::machine::{CpuId, Machine};
use crate::mem;
use crate::space::Vm;
use crate::sync::Word;

impl<M: Machine> Vm<M> {
    /// I20: frames that are recorded as zero are zero, and so is the zero frame.
    pub(super) fn check_zero(&self) -> Result<(), Broken> {
        self.check_is_zero(self.frames.zero)?;
        self.check_huge_zero()?;
        for id in 0..self.machine.nr_cpus() {
            let cpu = self.cpu(CpuId(id as u16));
            for cache in [&cpu.zeroed, &cpu.fixed, &cpu.shared] {
                let (base, mask) = (cache.base.get() as u32, cache.mask.get());
                (0..64).filter(|i| mask & 1 << i != 0).try_for_each(|i| self.check_is_zero(Pfn(base + i)))?;
            }
        }
        Ok(())
    }

    /// I20 of free memory: reads every free frame whose dirty bit is clear. Takes as
    /// long as reading the memory, so [`check`](Vm::check) leaves it out.
    ///
    /// # Errors
    ///
    /// The first frame that is not zero.
    ///
    /// # Safety
    ///
    /// At rest, as [`check`](Vm::check).
    pub unsafe fn check_free_is_zero(&self) -> Result<(), Broken> {
        for b in self.frames.blocks.there() {
            let block = self.frames.blocks.at(b);
            for w in 0..BLOCK_WORDS {
                let clean = block.free_word(w) & !block.dirty[w].get();
                let base = word_base(b, w) as u32;
                (0..64).filter(|i| clean & 1 << i != 0).try_for_each(|i| self.check_is_zero(Pfn(base + i)))?;
            }
        }
        Ok(())
    }

    pub(super) fn check_is_zero(&self, pfn: Pfn) -> Result<(), Broken> {
        let words: &[Word; 512] = mem::view(&self.machine, pfn, 0);
        // One look at a line, not at each word: this is most of what a long soak does.
        let is_zero = words.chunks(8).all(|line| line.iter().fold(0, |bits, w| bits | w.get()) == 0);
        if is_zero { Ok(()) } else { Err(Broken::NotZero(pfn)) }
    }
}
