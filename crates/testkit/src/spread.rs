//! Chooses the CPUs of a few threads on a machine of many CPUs.
//!
//! Sets of CPUs are words of 64, home blocks and counters are per CPU. So the last
//! CPU and those on both sides of a word's edge come first; a seed draws the rest.

use crate::random::Random;
use softfault::CpuId;

/// The most threads that a test of many CPUs starts.
pub const NR_THREADS: usize = 8;

/// CPUs for at most [`NR_THREADS`] threads, all different; with `nr_cpus` up to that,
/// all of them. Another seed gives others.
///
/// # Panics
///
/// If `nr_cpus` is above 65,536.
pub fn spread(nr_cpus: usize, seed: u64) -> Vec<CpuId> {
    if nr_cpus <= NR_THREADS {
        return (0..nr_cpus).map(cpu).collect();
    }
    let mut random = Random::new(seed);
    let edge = 64 * random.below(nr_cpus.div_ceil(64) as u64) as usize;
    let mut chosen: Vec<usize> = vec![nr_cpus - 1];
    let edges = [edge.wrapping_sub(1), edge, 63, 64];
    let mut candidates = edges.into_iter().filter(|id| *id < nr_cpus);
    while chosen.len() < NR_THREADS {
        let next = candidates.next().unwrap_or_else(|| random.below(nr_cpus as u64) as usize);
        if !chosen.contains(&next) {
            chosen.push(next);
        }
    }
    chosen.into_iter().map(cpu).collect()
}

fn cpu(id: usize) -> CpuId {
    CpuId(u16::try_from(id).expect("a CPU's number fits 16 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_small_machine() {
        assert_eq!(spread(4, 1), [0, 1, 2, 3].map(CpuId));
    }

    #[test]
    fn the_last_and_both_sides_of_an_edge() {
        for seed in 0..20 {
            for nr_cpus in [33, 65, 512] {
                let mut chosen = spread(nr_cpus, seed);
                assert!(chosen.contains(&CpuId(nr_cpus as u16 - 1)));
                assert!(nr_cpus == 33 || chosen.contains(&CpuId(63)) && chosen.contains(&CpuId(64)));
                chosen.sort();
                chosen.dedup();
                assert_eq!(chosen.len(), NR_THREADS);
                assert!(chosen.iter().all(|id| usize::from(id.0) < nr_cpus));
            }
        }
    }
}
