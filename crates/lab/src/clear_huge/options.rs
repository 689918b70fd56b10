//! What may be typed after `softfault clear-huge`, and what it comes to.

use super::place::DISTANCES;
use super::streamer;
use super::work::Work;
use crate::bench::{Against, Need, Repeated, defaults};
use crate::clearing::{HUGE_BYTES, NR_SUBPAGES, each_once, parse_order};
use clap::Args;
use softfault::clear::ClearOrder;

const HELP: &str = "\
What is measured
  A 2 MiB page that no cache holds is cleared as a fault on one of its 512 sub-pages (the target) would do
  it; then all 64 lines of one sub-page are loaded in a random order, each load waiting for the one before.
  Every order and every distance is run once in each repetition, in a random order; all of it first with the
  machine idle, then with another CPU reading and writing 128 MiB over and over.

Orders
  forward   from start to end
  converge  of 2017: the farthest sub-pages first, then from both ends inwards, the target last
  runs      of January 2026: right of the target, left of it, then the target and two neighbours on each side
  hybrid    far sub-pages past the caches (non-temporal stores), then 8 neighbours on each side, the target last
  touch     this host's Linux: a store to fresh memory that is advised to be huge, trap and all

Columns
  GB/s      10^9 bytes cleared (with --copy: copied) per second, by the median time
  us        that median; a sample for each repetition and distance
  spread    (third quartile - first) / median
  x converge, x linux
            GB/s over theirs: median of the ratios of samples taken in one repetition
  +0 .. +256
            nanoseconds a line, loaded from the sub-page so far from the target (to the right, or to the left
            where the page ends before that)
  near      share of the target and 8 sub-pages on each side that a modelled last-level cache of 1.25 MiB
            (one thread's share in 2017; 20 ways, least recently used) holds after the clear
  kept      share of what filled that cache before

Copying (--copy)
  The same orders on a copy-on-write of 2 MiB, source in step; and `4 KiB`, the copy of the one sub-page that is
  written; `linux cow` is a store to a huge page that a child shares, trap and all: Linux splits the mapping and
  copies 4 KiB. `touched` counts bytes read and written.

JSON
  One object per line and nothing else on standard output: experiment, metric (clear, copy or first_touch),
  system, order, load (idle or streaming), target, distance (null unless first_touch), threads, bytes,
  bytes_touched, near_resident, kept_resident, ratio_to_converge, ratio_to_linux, value, unit, spread.

Examples:
  softfault clear-huge
  softfault clear-huge --orders converge,hybrid --target 256 --reps 51
  softfault clear-huge --copy
  softfault clear-huge --plot touches.svg
  softfault clear-huge --json | jq -r 'select(.metric == \"clear\") | [.order, .load, .value] | @tsv'";

/// What may be typed after `softfault clear-huge`.
#[derive(Args, Debug, Clone)]
#[command(after_help = HELP, mut_args(defaults("21", "2017", "the first touches over the distance")))]
pub struct Options {
    /// Which orders, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "forward,converge,runs,hybrid", value_parser = parse_order)]
    orders: Vec<ClearOrder>,
    /// Copy instead of clearing, and one 4 KiB sub-page beside it
    #[arg(long)]
    pub copy: bool,
    /// The sub-page that the fault is on
    #[arg(long, value_name = "INDEX", default_value = "0", value_parser = clap::value_parser!(u64).range(0..NR_SUBPAGES))]
    pub target: u64,
    /// Pages of 2 MiB that are cleared in turn
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u64).range(4..=1 << 20))]
    pub folios: u64,
    /// What stands beside our rows
    #[arg(long, value_enum, default_value = "linux")]
    pub against: Against,
    #[command(flatten)]
    pub repeated: Repeated,
    /// Be the process that forks, on this CPU: how the command starts itself
    #[arg(long, value_name = "CPU", hide = true)]
    pub worker: Option<usize>,
}

impl Options {
    /// Orders: as typed, each once.
    pub fn orders(&self) -> Vec<ClearOrder> {
        each_once(&self.orders)
    }
    /// What an order is used for.
    pub fn work(&self, how: ClearOrder) -> Work {
        if self.copy { Work::Copy(how) } else { Work::Clear(how) }
    }
    /// What is run, in the order of the output.
    pub fn works(&self, with_linux: bool) -> Vec<Work> {
        let linux = if self.copy { Work::LinuxCow } else { Work::Linux };
        let ours = self.orders().into_iter().map(|how| self.work(how));
        ours.chain(self.copy.then_some(Work::CopySubpage)).chain(with_linux.then_some(linux)).collect()
    }
    /// Whether Linux is run.
    pub fn with_linux(&self) -> bool {
        self.against == Against::Linux
    }
    /// Ours, Linux's, and what the other CPU streams through.
    pub fn memory(&self) -> Need {
        let bytes = (self.folios + DISTANCES.len() as u64 + 1) * HUGE_BYTES + streamer::BYTES as u64;
        Need::of("--folios", self.folios, bytes)
    }
}
