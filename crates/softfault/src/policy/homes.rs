//! Which home blocks CPUs take in memory that comes, and keep when memory goes.
//!
//! Blocks are dealt in shares (`Summary::nr_blocks_in_share`): the summaries of a share are in lines of
//! their own, so that each share should be one CPU's.

use crate::addr::{BlockId, BlockRange};
use core::ops::Range;

/// The home blocks that remain when some go: the larger side.
pub(crate) fn without(home: BlockRange, gone: &BlockRange) -> BlockRange {
    if home.common(gone).is_empty() {
        return home;
    }
    let below = BlockRange { start: home.start, end: gone.start.max(home.start) };
    let above = BlockRange { start: gone.end.min(home.end), end: home.end };
    if above.extent() > below.extent() { above } else { below }
}

/// Whether a CPU leaves so many home blocks for its part of the new ones: it would have more than twice as many.
pub(crate) const fn leaves(nr_home_blocks: u64, nr_new: u64, nr_cpus: u64) -> bool {
    nr_home_blocks == 0 || nr_new / nr_cpus > 2 * nr_home_blocks
}

/// The part of taker `i` in so many shares: none may be left for the last takers.
pub(crate) fn part(nr_shares: u64, nr_takers: u64, i: u64) -> Range<u64> {
    if nr_takers >= nr_shares {
        i.min(nr_shares)..(i + 1).min(nr_shares)
    } else {
        i * nr_shares / nr_takers..(i + 1) * nr_shares / nr_takers
    }
}

/// Home blocks that end or begin in a share which memory that comes shares with them grow by this part of it.
pub(crate) fn grown(home: BlockRange, new: &BlockRange, nr_in_share: u32) -> BlockRange {
    if home.is_empty() || new.is_empty() {
        return home;
    }
    let last_share = |range: &BlockRange| (range.end.0 - 1) / nr_in_share;
    let first_share = |range: &BlockRange| range.start.0 / nr_in_share;
    if home.end <= new.start && last_share(&home) == first_share(new) {
        let end = BlockId((first_share(new) + 1).saturating_mul(nr_in_share));
        BlockRange { end: new.end.min(end), ..home }
    } else if new.end <= home.start && first_share(&home) == last_share(new) {
        BlockRange { start: new.start.max(BlockId(last_share(new) * nr_in_share)), ..home }
    } else {
        home
    }
}

/// Pages of a pool for each CPU from which on they come from the home blocks of all CPUs. A smaller pool lies together, so that
/// 1 GiB can still be found beside it. A guess.
pub(crate) const POOL_PAGES_TO_SPREAD: u64 = 16;

/// The CPU in whose home blocks a pool of `nr` pages takes its page `i`, `None` for the CPU that asks: each CPU finds as many pages
/// in its home blocks, and frames for its tables beside them.
pub(crate) fn of_pool_page(i: u64, nr: u64, nr_cpus: u64) -> Option<usize> {
    (nr / nr_cpus >= POOL_PAGES_TO_SPREAD).then_some((i % nr_cpus) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u32, end: u32) -> BlockRange {
        BlockRange { start: BlockId(start), end: BlockId(end) }
    }

    #[test]
    fn the_larger_side_stays() {
        let cases = [
            (range(0, 8), range(8, 16), range(0, 8)),
            (range(8, 16), range(0, 8), range(8, 16)),
            (range(0, 64), range(16, 32), range(32, 64)),
            (range(0, 64), range(40, 48), range(0, 40)),
            (range(8, 16), range(8, 12), range(12, 16)),
            (range(8, 16), range(12, 32), range(8, 12)),
        ];
        for (home, gone, left) in cases {
            assert_eq!(without(home, &gone), left, "{home:?} without {gone:?}");
        }
        assert!(without(range(8, 16), &range(0, 64)).is_empty());
        assert_eq!(without(range(8, 8), &range(0, 64)), range(8, 8));
    }

    #[test]
    fn parts_are_all_shares_once() {
        for nr_shares in 0..20 {
            for nr_takers in 1..20 {
                let parts: std::vec::Vec<_> = (0..nr_takers).map(|i| part(nr_shares, nr_takers, i)).collect();
                assert_eq!(
                    parts.iter().cloned().flatten().collect::<std::vec::Vec<_>>(),
                    (0..nr_shares).collect::<std::vec::Vec<_>>()
                );
                let [least, most] =
                    [u64::min, u64::max].map(|f| parts.iter().map(|p| p.end - p.start).reduce(f).unwrap());
                assert!(most - least <= 1, "{parts:?}");
            }
        }
    }

    #[test]
    fn few_home_blocks_are_left_for_many() {
        assert!(leaves(0, 1, 64) && leaves(16, 64 * 33, 64));
        assert!(!leaves(16, 64 * 32, 64) && !leaves(1, 64, 64));
    }

    #[test]
    fn a_share_that_comes_in_parts_is_of_one_cpu() {
        assert_eq!(grown(range(0, 64), &range(64, 256), 128), range(0, 128));
        assert_eq!(grown(range(0, 64), &range(64, 96), 128), range(0, 96));
        assert_eq!(grown(range(200, 256), &range(64, 192), 128), range(128, 256));
        for other in [range(128, 192), range(64, 64)] {
            assert_eq!(grown(range(0, 64), &other, 128), range(0, 64), "{other:?}");
        }
        assert_eq!(grown(range(64, 64), &range(64, 128), 128), range(64, 64));
    }
}
