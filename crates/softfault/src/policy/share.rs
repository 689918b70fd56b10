//! Decides how many CPUs share blocks when there are few blocks per CPU.
//!
//! A block with a frame in use cannot become a huge page. If each CPU began blocks of its own, many
//! CPUs would leave no whole block in a small memory, even with few frames in use.
//!
//! Source: LLFree (USENIX ATC 2023) reserves a tree of blocks for each CPU and kind of
//! frame, and reserves for fewer CPUs where memory has not enough trees; Linux takes over
//! whole pageblocks of another mobility only where there is none of its own left.

/// Blocks for each cluster of CPUs that takes small frames from the same one. With four, at
/// most a quarter of memory is begun for want of sharing. A guess: a block that CPUs share
/// costs a transfer in 64 faults.
pub(crate) const BLOCKS_FOR_PAGES: u64 = 4;

/// The same for what cannot be moved, which spoils a block until it goes, but is wanted a few
/// times in 512 faults, and taken eight frames at a time: 3 % of memory. A guess.
pub(crate) const BLOCKS_FOR_WHAT_STAYS: u64 = 32;

/// Memory of so few blocks is a model's, or a test's.
const FEW_BLOCKS: u64 = 2;

/// The smallest number of CPUs that together have so many blocks: all, if these have not.
pub(crate) const fn sharers(nr_blocks: u64, nr_cpus: u64, nr_wanted: u64) -> u64 {
    if nr_blocks == 0 {
        return nr_cpus;
    }
    let nr = (nr_cpus * nr_wanted).div_ceil(nr_blocks);
    if nr > nr_cpus { nr_cpus } else { nr }
}

/// CPUs that take small frames from the same block. In memory of so few blocks that nobody
/// finds one that is free for long, each CPU has its own.
pub(crate) const fn cluster(nr_blocks: u64, nr_cpus: u64) -> u64 {
    if nr_blocks <= FEW_BLOCKS { 1 } else { sharers(nr_blocks, nr_cpus, BLOCKS_FOR_PAGES) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_share_only_where_blocks_are_few() {
        let all =
            |nr_blocks, nr_cpus| [BLOCKS_FOR_PAGES, BLOCKS_FOR_WHAT_STAYS].map(|n| sharers(nr_blocks, nr_cpus, n));
        // 256 MiB.
        assert_eq!([all(128, 1), all(128, 32), all(128, 64), all(128, 512)], [[1, 1], [1, 8], [2, 16], [16, 128]]);
        // 4 GiB, 32 GiB.
        assert_eq!([all(2048, 512), all(16_384, 512)], [[1, 8], [1, 1]]);
        assert_eq!([all(0, 4), all(1, 4), all(3, 512)], [[4, 4], [4, 4], [512, 512]]);
        assert_eq!([cluster(1, 4), cluster(2, 4), cluster(3, 4), cluster(128, 64)], [1, 1, 4, 2]);
    }

    #[test]
    fn every_cluster_has_what_it_wants_and_none_is_larger_than_it_must_be() {
        for nr_cpus in 1..=512u64 {
            for nr_blocks in [1, 2, 31, 32, 33, 127, 128, 513, 4096, 1 << 23] {
                for nr_wanted in [BLOCKS_FOR_PAGES, BLOCKS_FOR_WHAT_STAYS] {
                    let nr = sharers(nr_blocks, nr_cpus, nr_wanted);
                    assert!(nr == nr_cpus || nr_blocks * nr >= nr_wanted * nr_cpus);
                    assert!((1..=nr_cpus).contains(&nr));
                    assert!(nr == 1 || nr_blocks * (nr - 1) < nr_wanted * nr_cpus);
                }
            }
        }
    }
}
