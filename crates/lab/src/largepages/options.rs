//! The command line of `softfault largepages`, and the check of available memory.

use crate::bench::{Against, Need, Repeated, defaults, parse_gib};
use crate::clearing::parse_order;
use crate::error::LabError;
use crate::os;
use crate::stage::{PAGE_BYTES, PIECE_BYTES};
use clap::Args;
use softfault::clear::ClearOrder;

const GIB: f64 = (1u64 << 30) as f64;
/// Size of the memory of the program of 2011.
const DEFAULT_GIB: f64 = 3.0;
/// Below this the default is not made smaller: better to say that there is no memory.
const SMALLEST_GIB: f64 = 0.25;

const HELP: &str = "\
Measurement
  The program of 2011 that demonstrated transparent huge pages: a memset of fresh memory, which faults in each
  page, two more memsets of the same memory, then two passes that write one byte in each 4,096. It runs on the
  hosted machine and on this host's Linux, with 4 KiB pages (off), 2 MiB pages (on), and 2 MiB pages of a pool
  (hugetlb), in a random order within each repetition. The program works on at most 2 MiB at a time.

Rows
  memset of fresh memory    page faults and stores; all zeroing is timed
  second, third memset      stores only: the cost of TLB misses for a memset
  a byte in each 4,096      \"random access tlb miss\" in 2011. It is a stride, which the CPU prefetches, so
                            cheaper than random access
  the same again

Columns
  off, on    milliseconds of the program's CPU time: the median over the repetitions, and in brackets
             (slowest - fastest) / median
  on, zeroed as on, with all free blocks zeroed by an idle CPU (Vm::zero_ahead) before the clock starts. No
             zeroing is timed: say so in every comparison
  hugetlb    2 MiB pages of a pool, which are promised to the mapping. On Linux with --host-pool only: its pool is
             grown for the experiment, and put back at the end, also when that is interrupted
  2011       as printed in 2011 for 3 GiB, the mean of two runs

Not like for like
  Ours has no trap: the first row is one handle_fault call for each page, a walk to its frame, and the stores.
  The later rows run none of the library: they show the speed of this CPU on memory that the host maps with
  pages of the same size. The second table, from an emulated TLB, shows what our page tables would cost. Linux
  runs in memory that it has just freed.

Clearing
  `runs` and `forward` leave the page in the caches, which suits a program that then writes all of it. The core
  cannot know that at the first touch. Its default is `calibrated`: the order that a short measurement finds
  best for a program that touches little more than the faulting address (see softfault clear-huge).

The emulated TLB
  One store to each page, twice, through a TLB of --tlb-entries translations of either size.
  lookups    pages accessed
  misses     lookups that needed a page walk, in the first pass (cold) and in the second
  loads      table entries that hardware without paging-structure caches reads: native, in a guest that its
             hypervisor maps with 4 KiB pages (nested 4K), and with 2 MiB pages (nested 2M). A nested walk has
             two dimensions: 24 loads with 4 KiB pages on both sides, 19 with 2 MiB on one, 15 on both.

JSON
  One object per line: first the rows: experiment, system, thp, row, gib, reps, huge_share (the share
  that huge pages map), seconds, spread, seconds_2011 (of the same setting, 3 GiB); then the passes, row
  tlb_cold and tlb_second: lookups, misses, loads, loads_nested_4k, loads_nested_2m; then the ratios, row
  ratio_to_linux_on, ratio_to_off, ratio_zeroed_to_linux_on: the speed of our memset of fresh
  memory with huge pages relative to the other; and ratio_hugetlb_to_linux, the same for pages of a pool,
  relative to those of Linux's pool (with --host-pool). Each has spread. thp is off, on, on_zeroed or hugetlb. If
  Linux's pool cannot be grown, its first row has no seconds, and why. Keys that do not apply to a line are null. All lines have value and unit.

Examples:
  softfault largepages
  softfault largepages --size 0.5 --reps 7 --plot largepages.svg
  softfault largepages --host-pool                         as root: beside Linux's hugetlb pages, too
  softfault largepages --size 1 --tlb-entries 64 --json | jq -r 'select(.misses) | [.thp, .row, .misses] | @tsv'";

/// The command line of `softfault largepages`.
#[derive(Args, Debug, Clone)]
#[command(after_help = HELP, mut_args(defaults("3", "2011", "the time of each row")))]
pub struct Options {
    /// Memory of the program in GiB, fractions allowed [default: 3, or less if memory is short]
    #[arg(short, long, value_name = "GIB", value_parser = parse_gib)]
    pub size: Option<f64>,
    /// Entries of the emulated TLB
    #[arg(long, value_name = "N", default_value = "1536", value_parser = clap::value_parser!(u32).range(4..=1 << 20))]
    pub tlb_entries: u32,
    /// Order of clearing our huge pages, or `calibrated`
    #[arg(long, value_name = "ORDER", default_value = "runs", value_parser = parse_clearing)]
    pub clear_order: Clearing,
    /// System to compare with
    #[arg(long, value_enum, default_value = "linux")]
    pub against: Against,
    /// Also on pages of the host's pool: needs root, and changes the size of that pool meanwhile
    #[arg(long)]
    pub host_pool: bool,
    #[command(flatten)]
    pub repeated: Repeated,
}

/// In which order huge pages are cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clearing {
    /// Always in this one.
    In(ClearOrder),
    /// In the one that a short measurement finds best.
    Calibrated,
}

fn parse_clearing(text: &str) -> Result<Clearing, String> {
    if text == "calibrated" {
        return Ok(Clearing::Calibrated);
    }
    parse_order(text).map(Clearing::In).map_err(|wanted| format!("{wanted}, calibrated"))
}

impl Options {
    /// Whether the program also runs on the host's Linux.
    pub fn with_linux(&self) -> bool {
        self.against == Against::Linux
    }

    /// Bytes of an arena for that many pages: 2 % for tables and descriptors, and
    /// what CPUs hold ahead of need.
    pub fn arena_bytes(nr_pages: u64) -> u64 {
        let bytes = nr_pages * PAGE_BYTES;
        (bytes + bytes / 50 + (64 << 20)).next_multiple_of(PIECE_BYTES)
    }

    /// Whether it also runs on pages of the host's pool.
    pub fn with_host_pool(&self) -> bool {
        self.with_linux() && self.host_pool
    }

    /// Bytes that the host has to have: two arenas, Linux's copy, and the host's pool.
    fn needed_bytes(&self, nr_pages: u64) -> u64 {
        let nr_copies = u64::from(self.with_linux()) + u64::from(self.with_host_pool());
        2 * Self::arena_bytes(nr_pages) + nr_copies * nr_pages * PAGE_BYTES
    }

    /// Pages of the program: whole huge pages, and no more than memory allows.
    pub fn settle(&self) -> Result<u64, LabError> {
        self.settle_in(os::available_bytes().unwrap_or(u64::MAX))
    }

    fn settle_in(&self, available: u64) -> Result<u64, LabError> {
        let pages_of = |gib: f64| (gib * GIB / PIECE_BYTES as f64) as u64 * (PIECE_BYTES / PAGE_BYTES);
        let fits = |gib: f64| self.needed_bytes(pages_of(gib)) <= available;
        let gib = self.size.unwrap_or(DEFAULT_GIB);
        if pages_of(gib) == 0 {
            let wanted = "should be one huge page of 2 MiB at least: 0.002".into();
            return Err(LabError::Argument { name: "--size", given: gib.to_string(), wanted });
        }
        if fits(gib) {
            return Ok(pages_of(gib));
        }
        let needed = self.needed_bytes(pages_of(gib));
        let smaller = (1..12).rev().map(|quarters| f64::from(quarters) / 4.0).find(|gib| fits(*gib));
        match (self.size, smaller) {
            (None, Some(smaller)) if smaller >= SMALLEST_GIB => {
                eprintln!(
                    "softfault: --size {smaller} instead of {gib}: that needs {:.1} GiB of memory, and {:.1} are available",
                    needed as f64 / GIB,
                    available as f64 / GIB
                );
                Ok(pages_of(smaller))
            }
            _ => Err(Need::of("--size", gib, needed).refusal(available)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::typed;

    fn options(text: &str) -> Options {
        typed(&format!("largepages {text}"))
    }

    #[test]
    fn the_default_shrinks_where_memory_is_short_and_a_wish_does_not() {
        let gib = |n: f64| (n * GIB) as u64;
        let pages = |n: f64| gib(n) / PAGE_BYTES;
        assert_eq!(options("").settle_in(u64::MAX).ok(), Some(pages(3.0)));
        assert_eq!(options("").settle_in(gib(4.0)).ok(), Some(pages(1.25)));
        assert_eq!(options("--host-pool").settle_in(gib(4.0)).ok(), Some(pages(0.75)));
        assert!(options("").settle_in(gib(0.5)).is_err());
        assert!(options("--size 3").settle_in(gib(4.0)).is_err());
        assert_eq!(options("--size 0.5").settle_in(gib(4.0)).ok(), Some(pages(0.5)));
        assert_eq!(options("--size 0.0021").settle_in(gib(4.0)).ok(), Some(512), "whole huge pages");
        assert!(options("--size 0.001").settle_in(gib(4.0)).is_err());
    }
}
