//! The command line of `softfault anon-w-seq`, and the values derived from it.

use super::work::Work;
use crate::bench::{Against, Need, Repeated, defaults};
use crate::clearing::{HUGE_BYTES, each_once, parse_order};
use crate::error::LabError;
use crate::os;
use clap::Args;
use softfault::clear::ClearOrder;

const HELP: &str = "\
Measurement
  N processes, pinned to CPUs in turn, each with its own memory. For each 2 MiB the process clears the page as
  a huge page fault on the first sub-page would, then writes all words of the page in sequence. All processes
  start together; the clock stops when the last one is done. Throughput is bytes written per second, clearing
  included. Each repetition runs every order once, in a random sequence.

  In 2017, 72 processes ran on 36 cores, with 1.25 MiB of last-level cache per hardware thread. Where each
  process has a larger share of the cache, forward loses nothing and clears faster: converge can be slower.

Orders
  forward   from start to end
  converge  of 2017: the farthest sub-pages first, then from both ends inwards, the target last
  runs      of January 2026: right of the target, left of it, then the target and two neighbours on each side
  hybrid    far sub-pages past the caches (non-temporal stores), then 8 neighbours on each side, the target last
  linux     this host's Linux: fresh memory under MADV_HUGEPAGE; the trap is included

Columns
  GB/s        10^9 bytes written per second, all processes, the median over repetitions
  spread      (slowest - fastest repetition) / median
  x forward   GB/s over those of forward: median of the ratios within a repetition
  x linux     likewise over those of Linux
  Below the table: the share of the page that a modelled last-level cache (1.25 MiB, 20 ways, LRU) holds
  when the page is written. The gain of 2017 came from that.

JSON
  One object per line, nothing else on standard output. Keys: experiment, system, order, processes, threads, mib,
  reps, ratio_to_forward, ratio_to_linux, modelled_hits, value, unit, spread.

Examples:
  softfault anon-w-seq --processes 2
  softfault anon-w-seq --processes 8 --mib 64 --reps 21
  softfault anon-w-seq --processes 2 --orders forward,converge --against none --json";

/// The command line of `softfault anon-w-seq`.
#[derive(Args, Debug, Clone)]
#[command(after_help = HELP, mut_args(defaults("15", "2017", "the throughput of each order")))]
pub struct Options {
    /// Number of processes [default: the number of CPUs]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    processes: Option<u16>,
    /// Memory of each process in MiB, an even number
    #[arg(short, long, value_name = "MIB", default_value = "256", value_parser = parse_mib)]
    pub mib: u64,
    /// Clearing orders, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "forward,converge,runs,hybrid", value_parser = parse_order)]
    orders: Vec<ClearOrder>,
    /// System to compare with
    #[arg(long, value_enum, default_value = "linux")]
    pub against: Against,
    #[command(flatten)]
    pub repeated: Repeated,
    /// Run as one of the processes, on this CPU (the command starts itself with this option)
    #[arg(long, value_name = "CPU", hide = true)]
    pub worker: Option<usize>,
}

fn parse_mib(text: &str) -> Result<u64, String> {
    let mib: Option<u64> = text.parse().ok();
    let is_good = |mib: &u64| (8..=1 << 20).contains(mib) && mib.is_multiple_of(2);
    mib.filter(is_good).ok_or_else(|| "should be an even number of MiB from 8 to 1048576".into())
}

impl Options {
    /// Number of processes: as given, or one for each CPU.
    pub fn nr_processes(&self) -> Result<usize, LabError> {
        self.processes.map_or_else(|| Ok(os::allowed_cpus()?.len()), |nr| Ok(usize::from(nr)))
    }
    /// Number of 2 MiB pages that a process writes.
    pub fn nr_folios(&self) -> u64 {
        (self.mib << 20) / HUGE_BYTES
    }
    /// Whether to run Linux.
    pub fn with_linux(&self) -> bool {
        self.against == Against::Linux
    }
    /// The runs, in the order of the output.
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
