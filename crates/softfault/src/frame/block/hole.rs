//! The block that stands for each block of a hole: all of its frames are in use, and stay (I50).
//!
//! Locks on entry: none.

use super::BlockData;
use crate::addr::BLOCK_FRAMES;
use crate::frame::class::FIXED;
use crate::frame::folio::FolioData;
use crate::frame::generations::AGE_WORDS;
use crate::frame::runs::BLOCK_WORDS;
use crate::frame::tails::Tails;
use crate::sync::Word;

const STATE: u64 = FIXED | BLOCK_FRAMES;

impl BlockData {
    pub(in crate::frame) const fn of_no_memory() -> BlockData {
        BlockData {
            state: Word::new(STATE),
            folio: FolioData::none(),
            used: [const { Word::new(!0) }; BLOCK_WORDS],
            dirty: [const { Word::new(0) }; BLOCK_WORDS],
            tails: Tails::none(),
            age: [const { Word::new(0) }; AGE_WORDS],
        }
    }

    /// Makes a block of zeroes that nobody sees yet look like that.
    pub(in crate::frame) fn hide(&self) {
        self.used.iter().for_each(|word| word.set(!0));
        self.state.set(STATE);
    }

    /// Whether nobody has written it.
    pub(in crate::frame) fn is_of_no_memory(&self) -> bool {
        self.state.get() == STATE
            && self.folio.is_none()
            && self.used.iter().all(|word| word.get() == !0)
            && self.dirty.iter().chain(&self.age).all(|word| word.get() == 0)
            && self.tails.is_none()
    }
}
