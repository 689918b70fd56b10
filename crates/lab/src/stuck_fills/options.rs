//! The command line of `softfault stuck-fills`.

use crate::bench::{PAGE_BYTES, Repeated, defaults};
use clap::Args;
use softfault::machine::MAX_CPUS;

const HELP: &str = "\
Measurement
  A program has mapped a file. --sleepers threads of it, each a CPU of the hosted machine, sleep:
    fills     each in a read fault on a page of the file whose read never ends
    sleepers  each outside the subsystem, as in a system call of another kind
  Beside them another thread makes --ops rounds of four calls, each timed: it maps 64 KiB of private memory, reads a
  page of the file that is in memory (a fault), unmaps that page, which is the end of the mapping that the others
  sleep in, and unmaps the private memory. Both kinds run in a random order within each repetition.

  Nothing is held while a read is under way, so both should take the same time. The other CPUs run the space, so each
  munmap is a shootdown of them.

Columns
  p50, p99   nanoseconds of a call: the median over the repetitions, in brackets (slowest - fastest) / median
  fills / sleepers  the p99 of one over the other: the median of the ratios within a repetition; the goal is at most
             1.2

JSON
  One object per line. Keys: beside (fills or sleepers), call (mmap, fault or munmap), sleepers, ops, reps, p50_ns,
  p99_ns, spread (of the p99), ratio_p99 (of fills; else null), experiment, value (p99_ns) and unit.

Examples:
  softfault stuck-fills
  softfault stuck-fills --sleepers 500 --reps 3";

/// Pages that a thread sleeps for come first in the file.
const SPARE_BYTES: u64 = 64 << 20;

/// The command line of `softfault stuck-fills`.
#[derive(Args, Debug, Clone)]
#[command(after_help = HELP, mut_args(defaults("9", "64", "the p99 of each call")))]
pub struct Options {
    /// Threads that sleep
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u16).range(1..MAX_CPUS as i64))]
    pub sleepers: u16,
    /// Rounds of calls
    #[arg(long, value_name = "N", default_value = "4096", value_parser = clap::value_parser!(u32).range(100..=1 << 20))]
    pub ops: u32,
    #[command(flatten)]
    pub repeated: Repeated,
}

impl Options {
    /// Those that sleep, and the one that calls.
    pub fn nr_cpus(&self) -> usize {
        usize::from(self.sleepers) + 1
    }
    /// Pages of the file: one for each thread that sleeps, then one for each round.
    pub fn nr_pages(&self) -> u64 {
        u64::from(self.sleepers) + u64::from(self.ops)
    }
    /// Bytes of the hosted machine.
    pub fn arena_bytes(&self) -> u64 {
        let of_cpus = self.nr_cpus() as u64 * (1 << 20);
        (self.nr_pages() * PAGE_BYTES + of_cpus + SPARE_BYTES).next_multiple_of(2 << 20)
    }
}
