//! The command line of `softfault pft`, and the values derived from it.

use super::write::Write;
use crate::bench::{
    self, AGED_FREE_OF_64, Against, Chosen, Frames, MAX_THREADS, Need, PAGE_BYTES, Repeated, defaults,
    parse_fault_locking, parse_gib, parse_zeroing,
};
use crate::error::LabError;
use clap::{Args, ValueEnum};
use softfault::FaultLocking;

const GIB: f64 = (1u64 << 30) as f64;

const HELP: &str = "\
Measurement
  GIB of anonymous memory is mapped. Each thread is pinned to a CPU and writes to its own share of the pages,
  all for the first time. Fault-locking modes, Linux and the plain zeroing of the same pages are
  run in a random order within each repetition, so that changes of the host's speed affect all of them.

Rows
  global        one spinlock per address space (Linux before 2004)
  fastpath2004  a lock bit in the page-table entry (the patch of 2004)
  split         a lock per leaf table and a reference count on the VMA (today's Linux)
  lockfree      a compare-and-swap inside a read section (the default of the library)
  touch         this host's Linux, one store to each page: the trap is included
  populate      this host's Linux, madvise(MADV_POPULATE_WRITE), without traps; then the stores
  Ours are handle_fault calls on the hosted machine, each followed by a walk of our tables and the store. They
  have no trap, no memory control groups and no mitigations, so the ratio to touch is not like for like.

Write
  one     a store of one byte to the page follows each fault (the default, on both systems)
  all     stores to the whole page follow
  none    nothing follows ours: the fault alone, without the walk (the default with zeroed frames). Linux still
          stores one byte, which causes the fault
  No stores follow the plain zeroing.

Zeroing
  auto       the best of a calibration of some milliseconds. If the result depends on the program, each CPU tries both
             ways from time to time and times the interval between two refills of 64 frames, stores included
  stores     plain stores: rep stosb, or the C library's memset
  vector     stores of 32 bytes (AVX2)
  streaming  non-temporal stores, which bypass the caches: expensive for a program that writes the whole page
  clzero     AMD's instruction that zeroes a line and bypasses the caches
  Each listed way has its own row; all run within each repetition and are comparable. A way that this CPU lacks is
  refused. Zeroed frames are not zeroed again. Huge pages are zeroed in the calibrated order; a forced way replaces
  its plain and its streaming part. The table below the rows shows the result of the calibration.

Columns
  Gb Rep Threads User System Wall flt/cpu/s fault/wsec
               as printed in 2004. A fault is a page installed: GIB x REPS / 4096. User and System are summed
               over threads and repetitions, Wall over repetitions.
  ns/fault     median over the repetitions of wall time / pages
  spread       (slowest - fastest repetition) / median
  x touch, x populate
               our faults/s over Linux's with as many threads: median of the ratios within a repetition
  /zero        our time over the time to zero the same pages one by one, by plain stores, likewise
  /zero batch  our time over the time to zero them in the batches that our refills use, by plain stores

Frames
  fresh   every frame is dirty when a repetition starts; all zeroing is timed
  zeroed  every frame is known to be zero: the cost of the software alone, not compared with Linux
  aged    as zeroed, with one frame in eight free, at random over eight times the memory, as after long use:
          descriptors of neighbouring pages share no cache line

Pages
  small   4 KiB each; Linux's too
  huge    2 MiB each on both systems; Linux's memory is under MADV_HUGEPAGE. Ours are cleared in the calibrated
          order. `/zero batch` divides by that clear alone, `/zero` by one plain fill of the 2 MiB. Faults on
          huge pages have only one locking mode

JSON
  One object per line, nothing else on standard output. Keys: system, discipline (the fault-locking mode), threads,
  frames, gib, reps, pages, page_bytes, write, zeroing (null beside Linux), user_s, system_s, wall_s, spread,
  faults_per_wall_s, faults_per_cpu_s, ns_per_fault, ratio_to_linux_touch, ratio_to_linux_populate, ratio_to_zeroing,
  ratio_to_batched_zeroing as above (null where a ratio does not apply), experiment, value and unit.

Examples:
  softfault pft -g 1 -r 5 -t 1,2
  softfault pft -g 1 -r 5 -t 1,2 --frames zeroed --fault-locking global,split,lockfree
  softfault pft -g 1 -r 9 -t 1,2 --pages huge --fault-locking lockfree
  softfault pft -g 1 -r 9 -t 1 --fault-locking lockfree --zeroing auto,stores,streaming --write all
  softfault pft -g 0.5 -r 9 -t 1,2,4 --plot faults.svg
  softfault pft -g 1 -t 1,2 --json | jq -r '[.discipline, .threads, .ns_per_fault] | @tsv'";

/// Size of the pages that a fault maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Pages {
    /// 4 KiB
    Small,
    /// 2 MiB
    Huge,
}

impl Pages {
    /// Bytes of one page.
    pub fn nr_bytes(self) -> u64 {
        match self {
            Pages::Small => PAGE_BYTES,
            Pages::Huge => 2 << 20,
        }
    }
    /// The name in tables.
    pub fn size(self) -> &'static str {
        match self {
            Pages::Small => "4 KiB",
            Pages::Huge => "2 MiB",
        }
    }
}

/// How `fastpath2004` counts resident pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Rss {
    /// One counter that all CPUs write, as in the patch
    Shared,
    /// A counter for each CPU, the author's second proposal
    Percpu,
}

/// The command line of `softfault pft`.
#[derive(Args, Debug, Clone)]
#[command(after_help = HELP, mut_args(defaults("3", "2004", "faults per second over threads")))]
pub struct Options {
    /// Memory touched in each repetition in GiB, fractions allowed
    #[arg(short, long, value_name = "GIB", default_value = "1", value_parser = parse_gib)]
    pub gib: f64,
    /// Numbers of threads, separated by commas [default: 1 and the number of CPUs]
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=MAX_THREADS as i64))]
    pub threads: Vec<u16>,
    /// Fault-locking modes, separated by commas
    #[arg(long, alias = "discipline", value_name = "LIST", value_delimiter = ',', default_value = "global,fastpath2004,split,lockfree", value_parser = parse_fault_locking)]
    pub fault_locking: Vec<FaultLocking>,
    /// State of the frames when a repetition starts
    #[arg(long, value_enum, default_value = "fresh")]
    pub frames: Frames,
    /// Size of the pages that a fault maps
    #[arg(long, value_enum, default_value = "small")]
    pub pages: Pages,
    /// System to compare with
    #[arg(long, value_enum, default_value = "linux")]
    pub against: Against,
    /// Bytes to write to a page after its fault [default: one; none if the frames are zero]
    #[arg(long, value_enum)]
    pub write: Option<Write>,
    /// Instructions that zero frames, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "auto", value_parser = parse_zeroing)]
    pub zeroing: Vec<Chosen>,
    /// How `fastpath2004` counts resident pages
    #[arg(long, value_enum, default_value = "shared")]
    pub rss: Rss,
    #[command(flatten)]
    pub repeated: Repeated,
}

impl Options {
    /// Pages that one repetition installs.
    pub fn nr_pages(&self) -> u64 {
        (self.gib * GIB / self.pages.nr_bytes() as f64) as u64
    }

    /// Numbers of threads: as given, each once, or 1 and the number of CPUs.
    pub fn thread_counts(&self, nr_cpus: usize) -> Vec<usize> {
        bench::thread_counts(&self.threads, nr_cpus)
    }

    /// The largest number of threads.
    pub fn max_threads(&self, nr_cpus: usize) -> usize {
        self.thread_counts(nr_cpus).into_iter().max().unwrap_or(1)
    }

    /// Whether to run the host's Linux: not with zeroed frames, since Linux has to
    /// zero its own.
    pub fn with_linux(&self) -> bool {
        self.against == Against::Linux && !self.frames.are_zero()
    }

    /// Bytes of the hosted machine's arena: the pages, 2 % for tables and descriptors,
    /// and the reserve of each CPU; a multiple of that where most frames stay unused.
    pub fn arena_bytes(&self, max_threads: usize) -> u64 {
        let bytes = self.nr_pages() * self.pages.nr_bytes();
        let whole = bytes + bytes / 50 + (64 << 20) + max_threads as u64 * (8 << 20);
        let times = if self.frames == Frames::Aged { 64 / u64::from(AGED_FREE_OF_64) } else { 1 };
        (whole * times).next_multiple_of(2 << 20)
    }

    /// Returns the stores to a page after its fault.
    pub fn written(&self) -> Write {
        Write::or_default(self.write, self.frames)
    }

    /// Refuses contradicting arguments; returns the memory of our machine and of Linux's rows.
    pub fn check_for(&self, max_threads: usize) -> Result<Need, LabError> {
        let wrong = |name, given: String, wanted: String| Err(LabError::Argument { name, given, wanted });
        if self.pages == Pages::Huge && self.frames == Frames::Aged {
            let wanted = "with --pages huge should be fresh or zeroed: aged memory has no whole block left";
            return wrong("--frames", self.frames.name().into(), wanted.into());
        }
        if let Some(forced) = self.zeroing.iter().find(|chosen| self.frames.are_zero() && **chosen != Chosen::Auto) {
            let wanted = format!("with --frames {} nothing is zeroed: should be auto", self.frames.name());
            return wrong("--zeroing", forced.name().into(), wanted);
        }
        if self.nr_pages() < max_threads as u64 {
            let wanted = format!("should give each of {max_threads} threads a page at least");
            return wrong("--gib", self.gib.to_string(), wanted);
        }
        let linux_bytes = if self.with_linux() { self.nr_pages() * self.pages.nr_bytes() } else { 0 };
        Ok(Need::of("--gib", self.gib, self.arena_bytes(max_threads) + linux_bytes))
    }
}
