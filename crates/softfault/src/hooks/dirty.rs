//! How much of free memory a test has left dirty.

use crate::frame::BlockData;
use crate::machine::Machine;
use crate::space::Vm;

impl<M: Machine> Vm<M> {
    /// Counts the free frames whose dirty bit is set, by the word of their block's
    /// bitmap: what [`check_free_is_zero`](Vm::check_free_is_zero) has to tell from
    /// the others. Call it at rest.
    pub fn nr_dirty_by_word(&self) -> [u64; 8] {
        let dirty = |block: &BlockData, w: usize| block.free_word(w) & block.dirty[w].get();
        let nr_in = |w| self.frames.blocks.iter().map(|block| u64::from(dirty(block, w).count_ones())).sum();
        core::array::from_fn(nr_in)
    }
}
