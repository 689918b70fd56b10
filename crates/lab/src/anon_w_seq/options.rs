//! What may be typed after `softfault anon-w-seq`, and what it comes to.

use super::work::Work;
use crate::bench::{Against, Need, Repeated, defaults};
use crate::clearing::{HUGE_BYTES, each_once, parse_order};
use crate::error::LabError;
use crate::os;
use clap::Args;
use softfault::clear::ClearOrder;

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
#[command(after_help = HELP, mut_args(defaults("15", "2017", "the throughput of each order")))]
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
    /// What stands beside our rows
    #[arg(long, value_enum, default_value = "linux")]
    pub against: Against,
    #[command(flatten)]
    pub repeated: Repeated,
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
    pub fn works(&self, with_linux: bool) -> Vec<Work> {
        let ours = each_once(&self.orders).into_iter().map(Work::Ours);
        ours.chain(with_linux.then_some(Work::Linux)).collect()
    }
    /// Ours, Linux's and the processes themselves.
    pub fn memory(&self) -> Result<Need, LabError> {
        let each = (2 + u64::from(self.with_linux()) * (self.mib + 2)) + self.mib + 6;
        let nr_processes = self.nr_processes()?;
        let need = Need::of("--mib", self.mib, nr_processes as u64 * (each << 20));
        Ok(Need { condition: format!("with {nr_processes} processes"), ..need })
    }
}
