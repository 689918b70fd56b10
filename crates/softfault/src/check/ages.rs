//! I47: ages are those of generations that there have been and that nobody will take for the
//! next one.

use super::Broken;
use crate::addr::Pfn;
use crate::frame::{BLOCK_WORDS, OLDEST_AGE, word_base};
use crate::machine::Machine;
use crate::space::Vm;

impl<M: Machine> Vm<M> {
    /// I47: of pages. Frames of other kinds that were claimed have any age.
    pub(crate) fn check_ages(&self) -> Result<(), Broken> {
        let frames = &self.frames;
        let nr_generations = frames.ages.now().generation();
        for b in frames.blocks.there() {
            let is_passed = frames.ages.cursor().is_some_and(|cursor| b < cursor);
            let oldest = u64::from(if is_passed { OLDEST_AGE - 1 } else { OLDEST_AGE }).min(nr_generations) as u32;
            for w in 0..BLOCK_WORDS {
                let too_old = frames.idle_in(b, w, oldest + 1);
                let pages = (0..64).filter(|i| too_old & 1 << i != 0).map(|i| Pfn(word_base(b, w) as u32 + i));
                if let Some(wrong) = pages.into_iter().find(|pfn| self.nr_user_pages(*pfn) > 0) {
                    return Err(Broken::WrongAge(wrong));
                }
            }
        }
        Ok(())
    }
}
