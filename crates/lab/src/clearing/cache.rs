//! A modelled last-level cache: what an order of clearing leaves in it.
//!
//! Sets of 20 lines, the one used longest ago goes first; 1.25 MiB of it are what
//! each hardware thread had to itself in the experiment of 2017. A store brings
//! its line in; one past the caches leaves it out, and puts it out if it is in.
//! No prefetching, no other levels, nobody else: this shows what an order can do
//! at best and at worst, and the machine what it does.

use super::{HUGE_BYTES, NR_SUBPAGES};
use softfault::clear::{ClearOrder, WARM_RADIUS};

const LINE_BYTES: u64 = 64;
const NR_WAYS: usize = 20;
const NR_SETS: u64 = 1024;
const LINES_PER_SUBPAGE: u64 = HUGE_BYTES / NR_SUBPAGES / LINE_BYTES;
/// Cache of a hardware thread in 2017.
pub const CACHE_BYTES: u64 = NR_WAYS as u64 * NR_SETS * LINE_BYTES;
/// Where the page lies that the program used before, in lines.
const ELSEWHERE: u64 = 1 << 40;

/// Content of the cache after a page was cleared.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Residue {
    /// Share of the target and 8 sub-pages on each side.
    pub near: f64,
    /// Share of what filled the cache before.
    pub kept: f64,
    /// Share of the lines of the whole page that are found when it is then
    /// written in sequence from its start.
    pub in_sequence: f64,
}

/// Clears a page whose sub-page `target` faulted, in a cache that is full of
/// something else.
pub fn residue(how: ClearOrder, target: u64) -> Residue {
    let mut cache = Cache::new();
    let before = ELSEWHERE..ELSEWHERE + CACHE_BYTES / LINE_BYTES;
    before.clone().for_each(|line| {
        cache.touch(line);
    });
    for run in how.plan(NR_SUBPAGES, Some(target)) {
        for line in run.indices().flat_map(lines_of) {
            if run.is_streaming {
                cache.put_out(line);
            } else {
                cache.touch(line);
            }
        }
    }
    let near = target.saturating_sub(WARM_RADIUS)..(target + WARM_RADIUS + 1).min(NR_SUBPAGES);
    let (near, kept) = (cache.share(near.flat_map(lines_of)), cache.share(before));
    let nr_found = (0..NR_SUBPAGES).flat_map(lines_of).filter(|line| cache.touch(*line)).count();
    Residue { near, kept, in_sequence: nr_found as f64 / (NR_SUBPAGES * LINES_PER_SUBPAGE) as f64 }
}

fn lines_of(subpage: u64) -> impl Iterator<Item = u64> {
    let first = subpage * LINES_PER_SUBPAGE;
    first..first + LINES_PER_SUBPAGE
}

/// Each set has its lines in the order of use, the latest last.
struct Cache {
    sets: Vec<Vec<u64>>,
}

impl Cache {
    fn new() -> Cache {
        Cache { sets: vec![Vec::with_capacity(NR_WAYS); NR_SETS as usize] }
    }

    fn set(&mut self, line: u64) -> &mut Vec<u64> {
        &mut self.sets[(line % NR_SETS) as usize]
    }

    /// A load or store; whether the line was in.
    fn touch(&mut self, line: u64) -> bool {
        let was_in = self.put_out(line);
        let set = self.set(line);
        if set.len() == NR_WAYS {
            set.remove(0);
        }
        set.push(line);
        was_in
    }

    /// A store past the caches; whether the line was in.
    fn put_out(&mut self, line: u64) -> bool {
        let set = self.set(line);
        let place = set.iter().position(|l| *l == line);
        place.is_some_and(|i| {
            set.remove(i);
            true
        })
    }

    /// Share of these lines that are in.
    fn share(&self, lines: impl Iterator<Item = u64>) -> f64 {
        let (mut nr, mut nr_in) = (0u64, 0u64);
        for line in lines {
            nr += 1;
            nr_in += u64::from(self.sets[(line % NR_SETS) as usize].contains(&line));
        }
        nr_in as f64 / nr as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_used_longest_ago_goes_first() {
        let mut cache = Cache::new();
        let line = |i: u64| 7 + i * NR_SETS;
        (0..NR_WAYS as u64).for_each(|i| assert!(!cache.touch(line(i))));
        assert!(cache.touch(line(0)));
        assert!(!cache.touch(line(NR_WAYS as u64)), "one more than the set holds");
        assert!(!cache.touch(line(1)), "it was the oldest");
        assert!(cache.touch(line(0)) && cache.touch(line(3)));
        assert!(cache.put_out(line(0)) && !cache.touch(line(0)));
        assert!(!cache.touch(8), "another set");
        assert_eq!(CACHE_BYTES, 5 << 18);
    }

    #[test]
    fn converge_and_hybrid_leave_the_target_and_its_neighbours_forward_does_not() {
        assert_eq!(residue(ClearOrder::Forward, 0).near, 0.0);
        for target in [0, 1, 2, 7, 8, 9, 255, 256, 257, 503, 509, 510, 511] {
            assert_eq!(residue(ClearOrder::Converge, target).near, 1.0, "converge {target}");
            assert_eq!(residue(ClearOrder::Hybrid, target).near, 1.0, "hybrid {target}");
        }
        // The target and two neighbours of the nine sub-pages on the right.
        assert_eq!(residue(ClearOrder::Runs, 0).near, 3.0 / 9.0);
    }

    #[test]
    fn hybrid_alone_leaves_what_was_there_before() {
        for how in [ClearOrder::Forward, ClearOrder::Converge, ClearOrder::Runs] {
            assert_eq!(residue(how, 0).kept, 0.0, "{how:?}");
        }
        // 9 sub-pages of 320 that the cache has room for.
        assert_eq!(residue(ClearOrder::Hybrid, 0).kept, 311.0 / 320.0);
    }

    #[test]
    fn written_in_sequence_converge_finds_what_forward_has_lost() {
        assert_eq!(residue(ClearOrder::Forward, 0).in_sequence, 0.0);
        assert_eq!(residue(ClearOrder::Converge, 0).in_sequence, 320.0 / 512.0);
        assert_eq!(residue(ClearOrder::Hybrid, 0).in_sequence, 9.0 / 512.0);
    }
}
