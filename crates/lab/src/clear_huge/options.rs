//! What may be typed after `softfault clear-huge`, and what it comes to.

use super::measure::Work;
use crate::bench::Against;
use crate::clearing::{HUGE_BYTES, NR_SUBPAGES, each_once, parse_order, parse_svg};
use crate::error::LabError;
use crate::os;
use clap::Args;
use softfault::clear::ClearOrder;
use std::path::PathBuf;

/// Sub-pages from the target at which the first touches are timed.
pub const DISTANCES: [u64; 8] = [0, 1, 2, 4, 8, 16, 64, 256];

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
#[command(after_help = HELP)]
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
    /// Repetitions of every order at every distance
    #[arg(short, long, value_name = "REPS", default_value = "21", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub reps: u32,
    /// Pages of 2 MiB that are cleared in turn
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u64).range(4..=1 << 20))]
    pub folios: u64,
    /// What stands beside our rows
    #[arg(long, value_enum, default_value = "linux")]
    pub against: Against,
    /// Draw the first touches over the distance into this file
    #[arg(long, value_name = "FILE.svg", value_parser = parse_svg)]
    pub plot: Option<PathBuf>,
    /// Print one JSON object per line instead of tables
    #[arg(long)]
    pub json: bool,
    /// Seed of the order of samples within a repetition
    #[arg(long, value_name = "N", default_value = "2017")]
    pub seed: u64,
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
    /// Whether Linux is run.
    pub fn with_linux(&self) -> bool {
        self.against == Against::Linux
    }
    /// Refuses what can be seen to fail before anything is run.
    pub fn check(&self) -> Result<(), LabError> {
        let needed = (self.folios + DISTANCES.len() as u64 + 1) * HUGE_BYTES + super::streamer::BYTES as u64;
        match os::available_bytes() {
            Some(available) if needed > available => Err(LabError::Argument {
                name: "--folios",
                given: self.folios.to_string(),
                wanted: format!(
                    "needs {} MiB of memory and {} MiB are available: should be smaller",
                    needed >> 20,
                    available >> 20
                ),
            }),
            _ => Ok(()),
        }
    }
}
