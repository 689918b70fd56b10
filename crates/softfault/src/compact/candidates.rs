//! The blocks among which compaction chooses.
//!
//! Locks on entry: none.

use crate::addr::BlockId;
use crate::policy::compact::BlockSummary;

/// Blocks among which the policy chooses at a time.
pub(super) const NR_CANDIDATES: usize = 8;
/// Blocks of a window with the most free frames, best first.
#[derive(Default)]
pub(super) struct Candidates {
    pub(super) numbers: [BlockId; NR_CANDIDATES],
    pub(super) blocks: [BlockSummary; NR_CANDIDATES],
    pub(super) nr: usize,
    pub(super) nr_free: u64,
    /// Blocks of the window that were visited, and the start of the next window.
    pub(super) nr_looks: u64,
    pub(super) end: BlockId,
}

impl Candidates {
    pub(super) fn offer(&mut self, b: BlockId, nr_free: u64) {
        let at = self.blocks[..self.nr].iter().position(|block| block.nr_free < nr_free).unwrap_or(self.nr);
        if at == NR_CANDIDATES {
            return;
        }
        self.nr = (self.nr + 1).min(NR_CANDIDATES);
        self.blocks[at..self.nr].rotate_right(1);
        self.numbers[at..self.nr].rotate_right(1);
        self.numbers[at] = b;
        self.blocks[at] = BlockSummary { nr_free, ..BlockSummary::default() };
    }
}
