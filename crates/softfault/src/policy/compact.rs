//! Decides which block to empty, and when to defer another attempt.
//!
//! Values and pure functions; the mechanism in `compact/` checks every frame before it moves it.

use crate::setters::setters;

/// The budget of one compaction, in work: the result does not depend on the load of the machine. The first limit that is reached
/// ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CompactBudget {
    /// Partly used blocks that are visited.
    pub nr_blocks: u64,
    /// Frames whose descriptors are read.
    pub nr_scanned: u64,
    /// Frames that are moved.
    pub nr_migrated: u64,
    /// Mappings of an object, in all spaces, that may be visited for one of its pages. Pages of objects
    /// with more mappings do not move; with 0, no page of an object does.
    pub nr_mappings: u64,
    /// Whether private pages of spaces with subscribers move. These are told, and may sleep.
    pub moves_subscribed: bool,
    /// Steps of searches. A step is a place at which a space may map a frame, a mapping of an object that is visited, or four
    /// blocks that may have a target frame. It takes 15 to 40 ns in warm caches. The last batch of pages may exceed it. As many steps of
    /// other CPUs' walks are waited for, counted apart: a budget that suffices alone also suffices beside others whose walks are no longer.
    pub nr_steps: u64,
}

setters!(CompactBudget {
    with_nr_blocks: nr_blocks = u64,
    with_nr_scanned: nr_scanned = u64,
    with_nr_migrated: nr_migrated = u64,
    with_nr_mappings: nr_mappings = u64,
    with_moves_subscribed: moves_subscribed = bool,
    with_nr_steps: nr_steps = u64,
});

impl CompactBudget {
    /// For a fault: what clearing a huge page costs a few times over. A guess. Pages of objects
    /// stay: a move of one waits for a grace period of all CPUs. So do private pages of spaces
    /// with subscribers: a fault waits for none of another space.
    pub const FAULT: CompactBudget = CompactBudget {
        nr_blocks: 512,
        nr_scanned: 4096,
        nr_migrated: 256,
        nr_mappings: 0,
        moves_subscribed: false,
        nr_steps: 8192,
    };
    /// For one step of a daemon, and for a call that wants a huge page. A guess. After this many blocks
    /// without success the next attempt continues with the blocks after them, so that the cost of one
    /// attempt does not grow with memory.
    pub const BACKGROUND: CompactBudget = CompactBudget {
        nr_blocks: 512,
        nr_scanned: 65_536,
        nr_migrated: 2048,
        nr_mappings: u64::MAX,
        moves_subscribed: true,
        nr_steps: 262_144,
    };
}

/// A block of 512 frames that could be emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct BlockSummary {
    /// Frames that are free.
    pub nr_free: u64,
    /// Frames in use.
    pub nr_used: u64,
    /// Frames of these that look movable. Counting ends at the first one that does not.
    pub nr_movable: u64,
    /// Already tried without success.
    pub is_tried: bool,
}

/// The question: the candidates and the remaining budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactQuestion<'a> {
    /// Blocks with the most free frames that were found.
    pub blocks: &'a [BlockSummary],
    /// Known free frames, in these blocks and others. There may be more.
    pub nr_free: u64,
    /// Frames that may still be moved.
    pub nr_migrated: u64,
}

/// The answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CompactPlan {
    /// Empty this one of the blocks.
    Empty(usize),
    /// None is worth it.
    GiveUp,
}

/// Chooses the block with the fewest frames to move, among those whose frames all look movable, have
/// room elsewhere and are within the budget.
pub(crate) fn cheapest(question: &CompactQuestion<'_>) -> CompactPlan {
    let is_worth = |block: &BlockSummary| {
        !block.is_tried
            && block.nr_movable == block.nr_used
            && block.nr_used <= question.nr_migrated
            && block.nr_used <= question.nr_free.saturating_sub(block.nr_free)
    };
    let worth = question.blocks.iter().enumerate().filter(|(_, block)| is_worth(block));
    match worth.min_by_key(|(_, block)| block.nr_used) {
        Some((i, _)) => CompactPlan::Empty(i),
        None => CompactPlan::GiveUp,
    }
}

/// Longest pause: 64 requests.
const SHIFT_MAX: u64 = 6;

/// The number of requests to skip after failed ones: doubled with each failure. Fits one word.
///
/// Source: the idea is Linux's `compact_defer_shift`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Deferral {
    /// Requests passed over since the last failure.
    pub nr_passed: u32,
    /// log2 of the requests to pass over; 0 is none.
    pub shift: u32,
}

impl Deferral {
    /// As it is kept.
    pub fn from_word(word: u64) -> Deferral {
        Deferral { nr_passed: word as u32, shift: ((word >> 32) & 63) as u32 }
    }
    /// To keep it.
    pub fn to_word(self) -> u64 {
        u64::from(self.nr_passed) | u64::from(self.shift) << 32
    }
    /// Decides whether one more request is tried. Returns the new state, too.
    pub fn ask(self) -> (bool, Deferral) {
        let nr_passed = self.nr_passed.saturating_add(1);
        (u64::from(nr_passed) >= 1 << self.shift, Deferral { nr_passed, ..self })
    }
    /// It was tried without success.
    pub fn failed(self) -> Deferral {
        Deferral { nr_passed: 0, shift: (self.shift + 1).min(SHIFT_MAX as u32) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(nr_free: u64, nr_movable: u64) -> BlockSummary {
        BlockSummary { nr_free, nr_used: 512 - nr_free, nr_movable, is_tried: false }
    }

    fn ask(blocks: &[BlockSummary], nr_free: u64, nr_migrated: u64) -> CompactPlan {
        cheapest(&CompactQuestion { blocks, nr_free, nr_migrated })
    }

    #[test]
    fn the_fewest_frames_to_move() {
        let blocks = [block(100, 412), block(500, 12), block(511, 0), block(499, 13)];
        assert_eq!(ask(&blocks, 2000, 512), CompactPlan::Empty(1), "the third has one that cannot be moved");
        assert_eq!(ask(&blocks, 2000, 12), CompactPlan::Empty(1));
        assert_eq!(ask(&blocks, 2000, 11), CompactPlan::GiveUp, "more than may be moved");
        let tried = [BlockSummary { is_tried: true, ..blocks[1] }, blocks[3]];
        assert_eq!(ask(&tried, 2000, 512), CompactPlan::Empty(1));
    }

    #[test]
    fn not_without_room_elsewhere() {
        assert_eq!(ask(&[block(256, 256)], 511, 512), CompactPlan::GiveUp);
        assert_eq!(ask(&[block(256, 256)], 512, 512), CompactPlan::Empty(0));
        assert_eq!(ask(&[block(256, 256)], 0, 512), CompactPlan::GiveUp, "counts that cannot be");
        assert_eq!(ask(&[block(0, 512)], 4096, 512), CompactPlan::Empty(0), "a full block, whose pages fill holes");
        assert_eq!(ask(&[block(0, 512)], 511, 512), CompactPlan::GiveUp);
        assert_eq!(ask(&[], 4096, 512), CompactPlan::GiveUp);
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        let mut now = Deferral::default();
        assert!(now.ask().0);
        for pause in [2, 4, 8, 16, 32, 64, 64, 64] {
            now = now.failed();
            let mut nr_asked = 0;
            loop {
                nr_asked += 1;
                let (go, next) = now.ask();
                now = Deferral::from_word(next.to_word());
                assert_eq!(now, next);
                if go {
                    break;
                }
            }
            assert_eq!(nr_asked, pause);
        }
    }
}
