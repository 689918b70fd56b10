//! What may be typed after `softfault anon-w-seq`, and what it comes to.

use super::rows::Work;
use crate::bench::Against;
use crate::clearing::{HUGE_BYTES, each_once, parse_order, parse_svg};
use crate::error::LabError;
use crate::os;
use clap::Args;
use softfault::clear::ClearOrder;
use std::path::PathBuf;

const HELP: &str = "\
What is measured
  N processes, pinned to CPUs in turn, each with memory of its own. At the start of every 2 MiB of it the page
  is cleared, as a huge page fault on its first sub-page would do it; then the process writes all of its words
  in sequence. All start together; the clock stops when the last one is done. Throughput is bytes written per
  second, clearing included. Every order is run once in each repetition, in a random order.

  In 2017 the pressure on the caches came from 72 processes on 36 cores with 1.25 MiB of last-level cache for
  each of 72 hardware threads. With a larger share of cache for each process forward loses nothing, and clears
  faster: converge may well come out slower here.

Orders
  forward   from start to end
  converge  of 2017: the farthest sub-pages first, then from both ends inwards, the target last
  runs      of January 2026: right of the target, left of it, then the target and two neighbours on each side
  hybrid    far sub-pages past the caches (non-temporal stores), then 8 neighbours on each side, the target last
  linux     this host's Linux: fresh memory that is advised to be huge, trap and all

Columns
  GB/s        10^9 bytes written per second, all processes, the median over repetitions
  spread      (slowest - fastest repetition) / median
  x forward   GB/s over those of forward: median of the ratios within a repetition
  x linux     likewise over those of Linux
  Below the table: what a modelled last-level cache of 1.25 MiB (20 ways, least recently used) holds
  of the page when it is written: what the gain of 2017 rested on.

JSON
  One object per line and nothing else on standard output: experiment, system, order, processes, threads, mib,
  reps, ratio_to_forward, ratio_to_linux, modelled_hits, value, unit, spread.

Examples:
  softfault anon-w-seq --processes 2
  softfault anon-w-seq --processes 8 --mib 64 --reps 21
  softfault anon-w-seq --processes 2 --orders forward,converge --against none --json";

/// What may be typed after `softfault anon-w-seq`.
#[derive(Args, Debug, Clone)]
#[command(after_help = HELP)]
pub struct Options {
    /// Processes [default: the number of CPUs]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    processes: Option<u16>,
    /// Memory of each, MiB, an even number
    #[arg(short, long, value_name = "MIB", default_value = "256", value_parser = parse_mib)]
    pub mib: u64,
    /// Which orders, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "forward,converge,runs,hybrid", value_parser = parse_order)]
    orders: Vec<ClearOrder>,
    /// Repetitions of every order
    #[arg(short, long, value_name = "REPS", default_value = "15", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub reps: u32,
    /// What stands beside our rows
    #[arg(long, value_enum, default_value = "linux")]
    pub against: Against,
    /// Draw the throughput of each order into this file
    #[arg(long, value_name = "FILE.svg", value_parser = parse_svg)]
    pub plot: Option<PathBuf>,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    pub json: bool,
    /// Seed of the order of rows within a repetition
    #[arg(long, value_name = "N", default_value = "2017")]
    pub seed: u64,
    /// Be one of the processes, on this CPU: how the command starts itself
    #[arg(long, value_name = "CPU", hide = true)]
    pub worker: Option<usize>,
}

fn parse_mib(text: &str) -> Result<u64, String> {
    let mib: Option<u64> = text.parse().ok();
    let is_good = |mib: &u64| (8..=1 << 20).contains(mib) && mib.is_multiple_of(2);
    mib.filter(is_good).ok_or_else(|| "should be an even number of MiB from 8 to 1048576".into())
}

impl Options {
    /// Processes: as typed, or one a CPU.
    pub fn nr_processes(&self) -> Result<usize, LabError> {
        self.processes.map_or_else(|| Ok(os::allowed_cpus()?.len()), |nr| Ok(usize::from(nr)))
    }
    /// Pages of 2 MiB that a process writes.
    pub fn nr_folios(&self) -> u64 {
        (self.mib << 20) / HUGE_BYTES
    }
    /// Whether Linux is to be run.
    pub fn with_linux(&self) -> bool {
        self.against == Against::Linux
    }
    /// What is run, in the order of the output.
    pub fn works(&self, linux_gives_huge_pages: bool) -> Vec<Work> {
        let mut works: Vec<Work> = each_once(&self.orders).into_iter().map(Work::Ours).collect();
        if self.with_linux() && linux_gives_huge_pages {
            works.push(Work::Linux);
        }
        works
    }
    /// Refuses what can be seen to fail before anything is run.
    pub fn check(&self) -> Result<(), LabError> {
        // Ours, Linux's and the process itself.
        let each = (2 + u64::from(self.with_linux()) * (self.mib + 2)) + self.mib + 6;
        let needed = self.nr_processes()? as u64 * (each << 20);
        match os::available_bytes() {
            Some(available) if needed > available => Err(LabError::Argument {
                name: "--mib",
                given: self.mib.to_string(),
                wanted: format!(
                    "with {} processes needs {} MiB of memory and {} MiB are available: should be smaller",
                    self.nr_processes()?,
                    needed >> 20,
                    available >> 20
                ),
            }),
            _ => Ok(()),
        }
    }
}
