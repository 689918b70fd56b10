//! The trees against a set of blocks.

use super::*;
use crate::addr::Pfn;
use crate::testing::{Plain, in_ranges};
use std::collections::BTreeSet;

/// Blocks and CPUs: one row, block groups of one block, uneven ends, three levels.
const SHAPES: [(u32, usize); 7] = [(1, 1), (64, 1), (65, 1), (100, 64), (512, 512), (4097, 64), (300_000, 2)];

struct Both {
    summary: Summary,
    kind: Kind,
    model: BTreeSet<u32>,
    /// The trees lie in its memory.
    _machine: Plain,
}

impl Both {
    fn new(nr_blocks: u32, nr_cpus: usize) -> Both {
        Both::of(Kind::Room, nr_blocks, nr_cpus)
    }

    /// Memory that nobody has used offers everything but the rare kinds.
    fn of(kind: Kind, nr_blocks: u32, nr_cpus: usize) -> Both {
        let nr_frames = Summary::frames_for(nr_blocks, nr_cpus);
        let machine = in_ranges(nr_frames + 1, &[(0, nr_frames + 1)], 0, 0);
        let summary = Summary::over(&machine, Pfn(1), nr_blocks, nr_cpus);
        let model = if kind.is_rare() { BTreeSet::new() } else { (0..nr_blocks).collect() };
        Both { summary, kind, model, _machine: machine }
    }

    fn set(&mut self, b: u32, has: bool) {
        if has {
            self.model.insert(b);
            self.summary.offer(self.kind, BlockId(b));
        } else {
            self.model.remove(&b);
            self.summary.withdraw(self.kind, BlockId(b), || false);
        }
    }

    fn compare(&self, from: u32, end: u32) {
        let end = end.max(from);
        let name = |b: Option<&u32>| b.map(|b| BlockId(*b));
        let blocks = BlockRange { start: BlockId(from), end: BlockId(end) };
        let mut inside = self.model.range(from..end);
        assert_eq!(self.summary.first_in(self.kind, &blocks), name(inside.clone().next()), "{blocks:?}");
        assert_eq!(self.summary.last_in(self.kind, &blocks), name(inside.next_back()), "{blocks:?}");
    }
}

fn random(state: &mut u64, n: u32) -> u32 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    ((*state >> 33) % u64::from(n)) as u32
}

/// `Spare` is stored the other way round.
#[test]
fn searches_find_what_a_set_finds() {
    let cases = SHAPES.into_iter().flat_map(|shape| [Kind::Room, Kind::Spare].map(|kind| (kind, shape)));
    for (kind, (nr_blocks, nr_cpus)) in cases {
        let mut both = Both::of(kind, nr_blocks, nr_cpus);
        both.compare(0, nr_blocks);
        let mut state = 7;
        for step in 0..4000 {
            let b = random(&mut state, nr_blocks);
            // At first most are taken away, later most come back.
            both.set(b, random(&mut state, 4) == 0 || step > 3000);
            both.compare(random(&mut state, nr_blocks), random(&mut state, nr_blocks + 1));
        }
        // One after the other: the root is asked before any search.
        let left: std::vec::Vec<u32> = both.model.iter().copied().collect();
        for b in left {
            assert!(both.summary.has(kind), "{kind:?}: block {b} is denied");
            both.set(b, false);
        }
        assert!(!both.summary.has(kind), "{kind:?}: each search goes down in vain");
    }
}

#[test]
fn the_last_block_of_all_is_found_from_everywhere_and_none_is_none() {
    for (nr_blocks, nr_cpus) in SHAPES {
        let mut both = Both::new(nr_blocks, nr_cpus);
        both.summary.clear(Kind::Room);
        both.model.clear();
        both.compare(0, nr_blocks);
        for last in [0, nr_blocks / 2, nr_blocks - 1] {
            both.set(last, true);
            for from in [0, last, nr_blocks - 1] {
                both.compare(from, nr_blocks);
            }
            both.set(last, false);
            both.compare(last, nr_blocks);
        }
        let all = BlockRange { start: BlockId(0), end: BlockId(nr_blocks) };
        assert_eq!(both.summary.first_in(Kind::Whole, &all), Some(BlockId(0)), "kinds are apart");
    }
}

#[test]
fn a_second_look_takes_the_withdrawal_back() {
    let both = Both::new(4097, 1);
    both.summary.clear(Kind::Any);
    both.summary.withdraw(Kind::Any, BlockId(4000), || true);
    let all = BlockRange { start: BlockId(0), end: BlockId(4097) };
    assert_eq!(both.summary.first_in(Kind::Any, &all), Some(BlockId(4000)));
}

/// A bit above was cleared late: others had used the word up again.
#[test]
fn a_search_in_vain_takes_back_what_the_bit_above_says() {
    let both = Both::new(4097, 1);
    both.summary.clear(Kind::Any);
    let all = BlockRange { start: BlockId(0), end: BlockId(4097) };
    for search in [Summary::first_in, Summary::last_in] {
        both.summary.offer_at(Kind::Any, both.summary.above(both.summary.place_of(BlockId(2000))));
        assert!(both.summary.has(Kind::Any));
        assert_eq!(search(&both.summary, Kind::Any, &all), None);
        assert!(!both.summary.has(Kind::Any), "each search goes there again");
    }
}

#[test]
fn block_groups_are_as_large_as_cpus_leave_room_for() {
    assert_eq!(
        [widths_of(1, 1), widths_of(3, 4), widths_of(4, 4), widths_of(64, 1)],
        [[1, 64], [1, 64], [1, 64], [64, 64]]
    );
    assert_eq!([widths_of(65, 1), widths_of(255, 64), widths_of(100, 3)], [[32, 2], [3, 64], [33, 64]]);
    // Shares of 69 blocks, of 2,048, of a TiB.
    let large = [widths_of(35_500, 512), widths_of(1 << 20, 512), widths_of(1 << 19, 1)];
    assert_eq!(large, [[34, 2], [45, 45], [64, 64]]);
    assert!(size_of::<SummaryRow>().is_multiple_of(128), "no two block groups share a pair of lines");
    let (starts, nr_levels) = levels_of(1 << 23, [64, 64]);
    assert_eq!((nr_levels, starts), (4, [0, 131_072, 133_120, 133_152, 133_153, 0]));
    assert_eq!(levels_of(1 << 23, widths_of(1 << 23, 512)).1, 4, "16 TiB and 512 CPUs");
}

/// A CPU whose share is smaller than what it has takes the rest from others.
#[test]
fn block_groups_leave_out_hardly_anything_of_a_share() {
    assert_eq!([widths_of(520, 1), widths_of(1000, 1)], [[52, 10], [50, 20]]);
    for share in 1..=64 * 64 {
        // One CPU has all.
        let [block_group, nr_block_groups] = widths_of(share, 1);
        let of_share =
            if nr_block_groups < 64 { block_group * nr_block_groups } else { share / block_group * block_group };
        assert!(
            (share - of_share) * 64 <= share && block_group <= 64 && nr_block_groups <= 64,
            "{share}: {block_group} x {nr_block_groups}"
        );
        assert!(share <= 64 || block_group > 16, "{share}: block groups of {block_group}");
    }
}
