//! Searches through the trees: up to the first row with something, and down again.
//!
//! Locks on entry: none.

use super::{Kind, NOTHING, Place, Summary};
use crate::addr::{BlockId, BlockRange};

impl Summary {
    /// Whether any block has something of the kind.
    pub(crate) fn has(&self, kind: Kind) -> bool {
        let root = Place { level: self.nr_levels - 1, row: 0, bit: 0 };
        self.bits(kind, root) != 0
    }

    /// Whether all of these blocks have something: as many words as they are in.
    pub(crate) fn have_all(&self, kind: Kind, blocks: &BlockRange) -> bool {
        let mut next = blocks.start;
        while next < blocks.end {
            let at = self.place_of(next);
            let nr = (self.width(0) - at.bit).min(blocks.end.0 - next.0);
            let wanted = (NOTHING >> (64 - nr)) << at.bit;
            if self.bits(kind, at) & wanted != wanted {
                return false;
            }
            next.0 += nr;
        }
        true
    }

    /// The first of these blocks, in their order, that has something.
    pub(crate) fn first_in(&self, kind: Kind, blocks: &BlockRange) -> Option<BlockId> {
        if blocks.start >= blocks.end {
            return None;
        }
        self.find_after(kind, blocks.start).filter(|b| blocks.contains(*b))
    }

    /// The last of them.
    pub(crate) fn last_in(&self, kind: Kind, blocks: &BlockRange) -> Option<BlockId> {
        if blocks.start >= blocks.end {
            return None;
        }
        self.find_before(kind, BlockId(blocks.end.0 - 1)).filter(|b| blocks.contains(*b))
    }

    fn find_after(&self, kind: Kind, from: BlockId) -> Option<BlockId> {
        let (mut at, mut from_above) = (self.place_of(from), false);
        loop {
            let has = self.bits(kind, at) & (NOTHING << at.bit);
            if from_above && has == 0 {
                self.withdraw_row(kind, at);
            }
            let lowest = has.trailing_zeros();
            from_above = has != 0;
            at = match (has, at.level) {
                (0, _) => self.above_row(at, at.row.checked_add(1)?)?,
                (_, 0) => return Some(BlockId(at.row * self.block_group() + lowest)),
                _ => Place { level: at.level - 1, row: at.row * self.width(at.level) + lowest, bit: 0 },
            };
        }
    }

    fn find_before(&self, kind: Kind, from: BlockId) -> Option<BlockId> {
        let (mut at, mut from_above) = (self.place_of(from), false);
        loop {
            let has = self.bits(kind, at) & (NOTHING >> (63 - at.bit));
            if from_above && has == 0 {
                self.withdraw_row(kind, at);
            }
            let highest = has.checked_ilog2().unwrap_or(0);
            from_above = has != 0;
            at = match (has, at.level) {
                (0, _) => self.above_row(at, at.row.checked_sub(1)?)?,
                (_, 0) => return Some(BlockId(at.row * self.block_group() + highest)),
                _ => Place { level: at.level - 1, row: at.row * self.width(at.level) + highest, bit: 63 },
            };
        }
    }
}
