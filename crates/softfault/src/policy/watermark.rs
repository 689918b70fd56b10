//! Computes Linux's three watermarks, and how often a CPU checks whether memory is below one.
//!
//! Source: Linux, Documentation/admin-guide/sysctl/vm.rst, `min_free_kbytes` and
//! `watermark_scale_factor`.

use crate::addr::{BLOCK_FRAMES, PAGE_SIZE};

/// Frames in 1 KiB, the other way round.
const PAGE_KBYTES: u64 = PAGE_SIZE / 1024;
/// Bounds of `min_free_kbytes` where nobody sets it.
const LEAST_KBYTES: u64 = 128;
const MOST_KBYTES: u64 = 262_144;
/// Frames below which nothing is kept free: 1 MiB, of which 128 KiB would be an eighth. So
/// little memory has no use for a reserve, and every frame of it can be had.
const TINY_PAGES: u64 = 256;
/// The denominator of `watermark_scale_factor`.
const SCALE: u64 = 10_000;
/// Its largest value, as on Linux: 30 %.
pub(crate) const MOST_SCALE: u64 = 3_000;

/// Numbers of free frames at which something happens.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Watermarks {
    /// Only the reaction to pressure takes frames when there are no more than this.
    pub min_pages: u64,
    /// Memory is short below this, and is reclaimed.
    pub low_pages: u64,
    /// Reclaim ends when there are so many.
    pub high_pages: u64,
}

impl Watermarks {
    /// Those of memory with `nr_pages` frames to give. `min_free_kbytes` is computed from
    /// these where it is `None`; `scale_factor` is the distance between two watermarks in
    /// ten-thousandths of memory.
    pub fn of(nr_pages: u64, min_free_kbytes: Option<u64>, scale_factor: u64) -> Watermarks {
        if nr_pages < TINY_PAGES && min_free_kbytes.is_none() {
            return Watermarks::default();
        }
        let min_free_kbytes = min_free_kbytes.unwrap_or_else(|| usual_kbytes(nr_pages));
        let min_pages = min_free_kbytes / PAGE_KBYTES;
        let share = (u128::from(nr_pages) * u128::from(scale_factor) / u128::from(SCALE)) as u64;
        let step = share.max(min_pages / 4);
        let low_pages = min_pages.saturating_add(step);
        Watermarks { min_pages, low_pages, high_pages: low_pages.saturating_add(step) }
    }

    /// Frames that each knob counts in.
    pub(crate) const fn kbytes(nr_pages: u64) -> u64 {
        nr_pages.saturating_mul(PAGE_KBYTES)
    }
}

/// 4 times the root of memory in KiB: a larger machine has more CPUs, though not as many
/// times as it has more memory.
fn usual_kbytes(nr_pages: u64) -> u64 {
    Watermarks::kbytes(nr_pages).saturating_mul(16).isqrt().clamp(LEAST_KBYTES, MOST_KBYTES)
}

/// Blocks that a CPU may begin before it looks at free memory again. Each of `nr_cpus` may be
/// about to look: what is taken meanwhile is at most half of what lies between the number that
/// was seen and `high`.
pub fn blocks_to_next_sample(nr_free: u64, high: u64, nr_cpus: u64) -> u64 {
    let spare = nr_free.saturating_sub(high) / 2;
    (spare / BLOCK_FRAMES.saturating_mul(nr_cpus).max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nr_pages: u64) -> [u64; 3] {
        let Watermarks { min_pages, low_pages, high_pages } = Watermarks::of(nr_pages, None, 10);
        [min_pages, low_pages, high_pages]
    }

    /// The first of each is what Linux's formula gives for that many KiB.
    #[test]
    fn they_scale_with_memory_as_linuxs_do() {
        assert_eq!(of(4 << 10), [128, 160, 192], "16 MiB: 512 KiB");
        assert_eq!(of(16 << 10), [256, 320, 384], "64 MiB: 1 MiB");
        assert_eq!(of(1 << 18), [1024, 1286, 1548], "1 GiB: 4 MiB");
        assert_eq!(of(16 << 18), [4096, 8290, 12_484], "16 GiB: 16 MiB");
        assert_eq!(of(1 << 28), [32_768, 301_203, 569_638], "1 TiB: 128 MiB");
        assert_eq!(of(16 << 28)[0], 65_536, "256 MiB at most");
        assert_eq!(of(256)[0], 32, "128 KiB at least");
    }

    #[test]
    fn nothing_is_kept_of_tiny_memory() {
        assert_eq!([of(0), of(64), of(255)], [[0; 3]; 3]);
        let asked = Watermarks::of(64, Some(16), 0);
        assert_eq!([asked.min_pages, asked.low_pages, asked.high_pages], [4, 5, 6], "unless it is asked for");
        assert_eq!(Watermarks::of(1 << 18, Some(0), 0), Watermarks::default());
    }

    #[test]
    fn no_number_overflows() {
        let most = Watermarks::of(u64::MAX, Some(u64::MAX), MOST_SCALE);
        assert!(most.min_pages < most.low_pages && most.low_pages < most.high_pages, "{most:?}");
        assert_eq!(of(u64::MAX)[0], 65_536);
    }

    #[test]
    fn looks_come_more_often_towards_the_watermark() {
        let next = |nr_free| blocks_to_next_sample(nr_free, 1000, 4);
        assert_eq!([next(0), next(1000), next(1001 + 2 * 4 * 512)], [1; 3]);
        assert_eq!(next(1000 + 10 * 2 * 4 * 512), 10);
        // All CPUs together take less than half of the distance.
        assert_eq!(blocks_to_next_sample(1000 + 10 * 2 * 4 * 512, 1000, 40), 1);
    }
}
