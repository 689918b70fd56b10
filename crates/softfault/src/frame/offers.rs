//! The state of a block in one word, and what a block in that state offers.
//!
//! Frames in use, bits 0..16 (a hint between operations, exact at rest); tag of the CPU that has
//! reserved it, bits 16..32 (a CPU, or the first of a cluster, plus 1; compaction); marks of classes
//! (`class.rs`) that have taken frames since the block was wholly free, bits 32, 34 and 35; whether a
//! frame that is not zero was given back since all were zero, bit 33 (a hint); how many
//! orders of runs it has lost, bits 36..40; of one with marks, whether its runs have been looked
//! for, bit 40: until then the summaries are not told as they go; of a page of a pool, bits 41..43:
//! `block/pool.rs`. Zero is a block that is wholly free, so that
//! blocks need no line written before they are first used.

use super::class::{CLASS_MARKS, Class};
use super::runs::RUN_ORDER;
use super::summary::Kind;
use crate::addr::BLOCK_FRAMES;

pub(super) const COUNT: u64 = 0xffff;
pub(super) const RESERVED_SHIFT: u32 = 16;
pub(super) const RESERVED: u64 = 0xffff << RESERVED_SHIFT;
pub(super) const DIRTY: u64 = 1 << 33;
/// Orders of runs, from 2^8 frames down, of which the last search found none.
pub(super) const LOST_SHIFT: u32 = 36;
pub(super) const LOST: u64 = 0xf << LOST_SHIFT;
/// The summaries name its runs.
pub(super) const SEEN: u64 = 1 << 40;
/// Part of a page of a pool: all of its frames are in use.
pub(super) const POOL: u64 = 1 << 41;
/// The page of a pool has 1 GiB.
pub(super) const POOL_1G: u64 = 1 << 42;
/// Free frames that make a block worth reserving: refills of four frames on average; a
/// line of descriptors taken from another CPU costs about what a refill does. A guess.
pub(super) const ROOM_FRAMES: u64 = 32;

/// Returns the kinds that a block in this state offers, a bit for each. Each change of class asks for this
/// twice, so it is arithmetic; the test has it kind by kind.
pub(super) fn offers(state: u64) -> u32 {
    let nr_free = BLOCK_FRAMES.saturating_sub(state & COUNT);
    if nr_free == 0 {
        return 0;
    }
    let mut bits = Kind::Any.bit();
    let is_whole = nr_free == BLOCK_FRAMES;
    if is_whole {
        bits |= Kind::Empty.bit();
    }
    if state & RESERVED != 0 {
        return bits;
    }
    if is_whole {
        bits |= Kind::Whole.bit();
        if state & DIRTY == 0 {
            bits |= Kind::Ready.bit();
        }
    }
    let run = largest_run(state).min(nr_free.ilog2());
    if state & CLASS_MARKS != 0 {
        let runs = if state & SEEN != 0 { Kind::stays_up_to(run) } else { (nr_free > 1) as u32 * Kind::Unseen.bit() };
        return bits | Class::of_state(state).kind().bit() | runs;
    }
    if !is_whole {
        bits |= Kind::Spare.bit();
    }
    if nr_free >= ROOM_FRAMES {
        bits |= Kind::Room.bit();
    }
    bits | Kind::runs_up_to(run)
}

/// Order of the largest run that the last search found.
#[inline(always)]
fn largest_run(state: u64) -> u32 {
    RUN_ORDER - ((state & LOST) >> LOST_SHIFT) as u32
}

/// Whether 2^order free frames may lie beside each other in a block in this state, no matter which CPU has it.
#[inline(always)]
pub(super) fn has_run(state: u64, order: u32) -> bool {
    order <= largest_run(state) && BLOCK_FRAMES.saturating_sub(state & COUNT) >> order != 0
}

/// Free frames by their highest bit: what the shortcuts tell apart.
#[inline(always)]
fn size_class(state: u64) -> u32 {
    BLOCK_FRAMES.wrapping_sub(state & COUNT).leading_zeros()
}

/// Frames in use, as the summaries count them: exact for a block that is wholly free or
/// wholly used, else by the class of the frames that are free. These are between 2/3 and 4/3
/// of what is counted.
pub(super) fn weight(state: u64) -> u64 {
    let nr_free = BLOCK_FRAMES.saturating_sub(state & COUNT);
    let counted = match nr_free {
        0 | 1 | BLOCK_FRAMES => nr_free,
        _ => 3 << nr_free.ilog2() >> 1,
    };
    BLOCK_FRAMES - counted
}

/// By how much the frames in use have grown between two states, as they are counted.
#[inline(always)]
pub(super) fn more_used(before: u64, after: u64) -> u64 {
    if size_class(before) == size_class(after) { 0 } else { weight(after).wrapping_sub(weight(before)) }
}

/// The kinds that differ between two states. Frames free count by their highest bit.
#[inline(always)]
pub(super) fn changed(before: u64, after: u64) -> u32 {
    let is_same = before & !COUNT == after & !COUNT && size_class(before) == size_class(after);
    if is_same { 0 } else { offers(before) ^ offers(after) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::class::{FIXED, PINNED, SHARED};

    /// Kind by kind, as `summary/kind.rs` says what each means.
    fn offers_one_by_one(state: u64) -> u32 {
        let nr_free = BLOCK_FRAMES.saturating_sub(state & COUNT);
        let is_reserved = state & RESERVED != 0;
        let class = Class::of_state(state);
        let is_movable = state & CLASS_MARKS == 0;
        let is_part = nr_free > 0 && nr_free < BLOCK_FRAMES;
        let has = |kind: Kind| match kind {
            Kind::Any => nr_free > 0,
            Kind::Pool2M | Kind::Pool1G => false,
            Kind::Fixed => nr_free > 0 && class == Class::Fixed && !is_reserved,
            Kind::Pinned => nr_free > 0 && class == Class::Pinned && !is_reserved,
            Kind::Shared => nr_free > 0 && class == Class::Shared && !is_reserved,
            Kind::Empty => nr_free == BLOCK_FRAMES,
            Kind::Spare => is_part && is_movable && !is_reserved,
            Kind::Room => nr_free >= ROOM_FRAMES && is_movable && !is_reserved,
            Kind::Whole => nr_free == BLOCK_FRAMES && !is_reserved,
            Kind::Ready => nr_free == BLOCK_FRAMES && !is_reserved && state & DIRTY == 0,
            Kind::Unseen => nr_free > 1 && !is_movable && !is_reserved && state & SEEN == 0,
            _ if !is_movable && state & SEEN == 0 => false,
            _ => kind
                .run_order()
                .is_some_and(|(order, stays)| stays != is_movable && !is_reserved && has_run(state, order)),
        };
        Kind::ALL.into_iter().filter(|kind| has(*kind)).fold(0, |bits, kind| bits | kind.bit())
    }

    #[test]
    fn all_states_offer_what_each_kind_means() {
        let flags = (0..256).map(|bits: u64| {
            let flag = |bit: u64, flag: u64| if bits & bit != 0 { flag } else { 0 };
            flag(1, FIXED)
                | flag(2, DIRTY)
                | flag(4, 7 << RESERVED_SHIFT)
                | flag(8, PINNED)
                | flag(16, SHARED)
                | flag(32, SEEN)
                | flag(64, POOL)
                | flag(128, POOL | POOL_1G)
        });
        for flags in flags {
            for lost in 0..=u64::from(RUN_ORDER) {
                for used in 0..=BLOCK_FRAMES + 3 {
                    let state = flags | lost << LOST_SHIFT | used;
                    assert_eq!(offers(state), offers_one_by_one(state), "{state:#x}");
                }
            }
        }
    }

    /// A shortcut may not pass over a change.
    #[test]
    fn states_that_offer_different_kinds_differ_for_the_shortcut() {
        let flags = [
            0,
            FIXED,
            SEEN | FIXED,
            DIRTY,
            1 << RESERVED_SHIFT,
            8 << LOST_SHIFT,
            5 << LOST_SHIFT,
            FIXED | DIRTY,
            PINNED,
            SHARED,
            POOL,
            POOL | POOL_1G,
        ];
        for flag in flags {
            for used in 0..=BLOCK_FRAMES {
                for other in
                    [used.saturating_sub(64), used.saturating_sub(1), (used + 1).min(512), (used + 64).min(512)]
                {
                    assert_eq!(changed(flag | used, flag | other), offers(flag | used) ^ offers(flag | other));
                }
                flags.iter().for_each(|to| {
                    assert_eq!(changed(flag | used, to | used), offers(flag | used) ^ offers(to | used));
                });
            }
        }
    }
}
