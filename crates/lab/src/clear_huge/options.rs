//! The command line of `softfault clear-huge`, and the values derived from it.

use super::place::DISTANCES;
use super::streamer;
use super::work::Work;
use crate::bench::{Against, Need, Repeated, defaults};
use crate::clearing::{HUGE_BYTES, NR_SUBPAGES, each_once, parse_order};
use clap::Args;
use softfault::clear::ClearOrder;

const HELP: &str = "\
Measurement
  A 2 MiB page that is in no cache is cleared as a fault on one of its 512 sub-pages (the target) would
  clear it. Then all 64 lines of one sub-page are loaded in a random order; each load depends on the previous
  one. Each repetition runs every order and distance once, in a random sequence: first with the machine idle,
  then while another CPU reads and writes 128 MiB repeatedly.

Orders
  forward   from start to end
  converge  of 2017: the farthest sub-pages first, then from both ends inwards, the target last
  runs      of January 2026: right of the target, left of it, then the target and two neighbours on each side
  hybrid    far sub-pages past the caches (non-temporal stores), then 8 neighbours on each side, the target last
  touch     this host's Linux: a store to fresh memory under MADV_HUGEPAGE; the trap is included

Columns
  GB/s      10^9 bytes cleared (with --copy: copied) per second, by the median time
  us        the median time; one sample for each repetition and distance
  spread    (third quartile - first) / median
  x converge, x linux
            GB/s over that of converge, of Linux: median of the ratios of samples of the same repetition
  +0 .. +256
            nanoseconds per line, loaded from the sub-page at that distance to the right of the target, or
            to the left where the page ends before it
  near      share of the target and 8 sub-pages on each side that a modelled last-level cache (1.25 MiB, one
            thread's share in 2017; 20 ways, LRU) holds after the clear
  kept      share of that cache's earlier content that it still holds

Copying (--copy)
  The same orders for a copy-on-write of 2 MiB; source and destination advance together. `4 KiB` copies only the
  sub-page that is written. `linux cow` is a store to a huge page shared with a child, with the trap: Linux splits
  the mapping and copies 4 KiB. `touched` counts bytes read and written.

JSON
  One object per line, nothing else on standard output. Keys: experiment, metric (clear, copy or first_touch),
  system, order, load (idle or streaming), target, distance (null unless first_touch), threads, bytes,
  bytes_touched, near_resident, kept_resident, ratio_to_converge, ratio_to_linux, value, unit, spread.

Examples:
  softfault clear-huge
  softfault clear-huge --orders converge,hybrid --target 256 --reps 51
  softfault clear-huge --copy
  softfault clear-huge --plot touches.svg
  softfault clear-huge --json | jq -r 'select(.metric == \"clear\") | [.order, .load, .value] | @tsv'";

/// The command line of `softfault clear-huge`.
#[derive(Args, Debug, Clone)]
#[command(after_help = HELP, mut_args(defaults("21", "2017", "the first touches over the distance")))]
pub struct Options {
    /// Clearing orders, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "forward,converge,runs,hybrid", value_parser = parse_order)]
    orders: Vec<ClearOrder>,
    /// Copy instead of clear; also copy one 4 KiB sub-page
    #[arg(long)]
    pub copy: bool,
    /// Index of the sub-page that faults
    #[arg(long, value_name = "INDEX", default_value = "0", value_parser = clap::value_parser!(u64).range(0..NR_SUBPAGES))]
    pub target: u64,
    /// Number of 2 MiB pages to clear in turn
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u64).range(4..=1 << 20))]
    pub folios: u64,
    /// System to compare with
    #[arg(long, value_enum, default_value = "linux")]
    pub against: Against,
    #[command(flatten)]
    pub repeated: Repeated,
    /// Run as the process that forks, on this CPU (the command starts itself with this option)
    #[arg(long, value_name = "CPU", hide = true)]
    pub worker: Option<usize>,
}

impl Options {
    /// The orders as given, each once.
    pub fn orders(&self) -> Vec<ClearOrder> {
        each_once(&self.orders)
    }
    /// Returns the work that uses the order.
    pub fn work(&self, how: ClearOrder) -> Work {
        if self.copy { Work::Copy(how) } else { Work::Clear(how) }
    }
    /// The runs, in the order of the output.
    pub fn works(&self, with_linux: bool) -> Vec<Work> {
        let linux = if self.copy { Work::LinuxCow } else { Work::Linux };
        let ours = self.orders().into_iter().map(|how| self.work(how));
        ours.chain(self.copy.then_some(Work::CopySubpage)).chain(with_linux.then_some(linux)).collect()
    }
    /// Whether to run Linux.
    pub fn with_linux(&self) -> bool {
        self.against == Against::Linux
    }
    /// Ours, Linux's, and what the other CPU streams through.
    pub fn memory(&self) -> Need {
        let bytes = (self.folios + DISTANCES.len() as u64 + 1) * HUGE_BYTES + streamer::BYTES as u64;
        Need::of("--folios", self.folios, bytes)
    }
}
