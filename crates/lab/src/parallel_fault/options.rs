//! The command line of `softfault parallel-fault`.

use crate::bench::{Against, Chosen, MAX_THREADS, Need, Repeated, defaults, parse_hugetlb_locking, parse_zeroing};
use crate::error::LabError;
use clap::{Args, ValueEnum};
use softfault::{HugetlbLocking, Order};

const HELP: &str = "\
Measurement
  The program of 2013 that showed what one mutex around page faults on huge pages costs. SIZE_KB of pages from a
  reserved pool are mapped. THREADS threads write one byte every SKIP_KB; so each page faults once, and is cleared. All
  rows run with 1 thread, too, in a random order within each repetition.

Shapes
  linear    as in 2013: the threads have equal parts, one after the other, in one address space
  database  130 address spaces map one file of 1.5 GiB and touch all of its pages, as processes of a database do when it
            starts. The threads run the spaces in turn. The first touch of a page clears it; later ones map it

Systems and disciplines
  softfault  the hosted machine: threads are CPUs, stores go through an emulated TLB. A fault has no trap
    one        one mutex around the whole fault, as before 2013
    table      a table of mutexes by file and page: twice the CPUs as in 2013, or --mutexes
    lockfree   no mutex: the word of the page in its file is claimed
  linux      this host's, with --against linux: as root, where its pool can be grown. It is put back at the end, also when
             interrupted. A table of 8 mutexes for each CPU. Its spaces are mappings of one process. Its pages
             are touched once before the first row
  linux-clear no fault at all: as many bytes of our memory are cleared by as many threads, as this host's Linux is assumed to
             clear its pages, with --against linux, also without its pool. The kernel's release and the CPU's flags decide:
             rep stosb with erms, else rep stosq; before 7.0 4 KiB at a time, the sub-page of the fault last, or 1 GiB from
             start to end; since then in three runs
  warm-clear no fault at all: as many bytes of the same memory are cleared by as many threads, 2 MiB at a time, as our
             faults clear them: what is near the byte that is written stays in the caches
  clear      the same in the way that a short measurement finds fastest, where nothing is written afterwards: as above, or
             from start to end by one of the ways of --zeroing. The limit

Clearing
  Stores that pass the caches clear fastest, and one thread may use all that memory transfers. To see whether threads fault
  in parallel, have them clear in a cache:  softfault parallel-fault 2 16384 --zeroing stores --mutexes 16 --reps 99

Columns
  seconds    wall time from the first start to the last end: the median over the repetitions, and in brackets
             (slowest - fastest) / median
  x 1        speed relative to 1 thread; of clear: what memory bandwidth allows
  / clear    seconds relative to clear by as many threads
  / own clear  seconds of faults relative to a clear in the same way: ours to warm-clear, Linux's to linux-clear
  acquired   times that a mutex was taken
  contended  of these, acquisitions that did not succeed at the first try
  waited     milliseconds that these took, all threads together
  x linux    speed relative to Linux with as many threads
  x linux-clear  speed of warm-clear and clear relative to linux-clear; of our faults: that of warm-clear
  All ratios are medians of the ratios within a repetition. The mutexes spin 100 times, then sleep

Goal beside Linux
  The ratio of the faults, Linux's seconds to ours, should be 0.9 at least of the ratio of the two clears, linux-clear to
  warm-clear: the quotient. With 1 thread the ratio of the faults should be 3 at least where that of the clears is

JSON
  One object per line. Keys: system (softfault, linux, linux-clear, warm-clear, clear; linux-2013: as published in 2013),
  discipline (one, table, lockfree, none), threads, seconds, contentions, acquisitions, wait_us, shape, page_kib, size_kib,
  skip_kib, mutexes, reps, spread, over_1_thread, over_clear, over_own_clear, ratio_to_linux, ratio_of_clears (x linux-clear),
  quotient, each of the last three with its _spread, way (how pages were cleared), why (a row could not be measured),
  experiment, value (seconds) and unit. Keys that do not apply are null.

Examples:
  softfault parallel-fault 2 4194304
  softfault parallel-fault 64 --locks table,lockfree --mutexes 512
  softfault parallel-fault 2 16384 --zeroing stores --mutexes 16 --reps 99
  softfault parallel-fault --shape database --reps 9 --plot database.svg
  sudo softfault parallel-fault 2 4194304 --against linux --json";

/// Pages of 2 MiB in 2013's number.
const NR_PAGES_2013: u64 = 8192;
/// KiB of the database's file.
const DATABASE_KIB: u64 = 3 << 19;
/// Its processes.
const NR_DATABASE_SPACES: usize = 130;

/// Pages of which size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Page {
    /// 2 MiB
    #[value(name = "2M")]
    Mib2,
    /// 1 GiB
    #[value(name = "1G")]
    Gib1,
}

impl Page {
    /// For the pool.
    pub fn order(self) -> Order {
        if self == Page::Mib2 { Order::PMD } else { Order::PUD }
    }
    /// Bytes.
    pub fn bytes(self) -> u64 {
        if self == Page::Mib2 { 2 << 20 } else { 1 << 30 }
    }
}

/// The pages that each thread touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Shape {
    /// Each thread its part
    Linear,
    /// 130 address spaces the same file
    Database,
}

impl Shape {
    /// The word in output.
    pub fn name(self) -> &'static str {
        if self == Shape::Linear { "linear" } else { "database" }
    }
    /// Address spaces that map the memory.
    pub fn nr_spaces(self) -> usize {
        if self == Shape::Linear { 1 } else { NR_DATABASE_SPACES }
    }
}

/// The command line of `softfault parallel-fault`.
#[derive(Args, Debug, Clone)]
#[command(after_help = HELP, mut_args(defaults("3", "2013", "the time of each row")))]
pub struct Options {
    /// Threads [default: the number of CPUs]
    #[arg(value_name = "THREADS", value_parser = clap::value_parser!(u16).range(1..=MAX_THREADS as i64))]
    pub threads: Option<u16>,
    /// KiB in all [default: 8,192 pages of 2 MiB, or less if memory is short; 1.5 GiB for database]
    #[arg(value_name = "SIZE_KB", value_parser = clap::value_parser!(u64).range(1..=1 << 34))]
    pub size_kb: Option<u64>,
    /// KiB from one byte that is written to the next; 0 is the size of a page
    #[arg(value_name = "SKIP_KB", default_value = "0", value_parser = clap::value_parser!(u64).range(0..=1 << 34))]
    pub skip_kb: u64,
    /// Pages of the pool
    #[arg(long, value_enum, default_value = "2M")]
    pub page: Page,
    /// The pages that each thread touches
    #[arg(long, value_enum, default_value = "linear")]
    pub shape: Shape,
    /// Disciplines, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "one,table,lockfree", value_parser = parse_hugetlb_locking)]
    pub locks: Vec<HugetlbLocking>,
    /// Mutexes of the table, rounded up to a power of two [default: twice the threads]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub mutexes: Option<u64>,
    /// Instructions that clear pages: auto (as calibrated), stores, vector, streaming or clzero
    #[arg(long, value_name = "WAY", default_value = "auto", value_parser = parse_zeroing)]
    pub zeroing: Chosen,
    /// System to compare with: linux needs root, and sets the size of the host's pool for a while
    #[arg(long, value_enum, default_value = "none")]
    pub against: Against,
    #[command(flatten)]
    pub repeated: Repeated,
}

impl Options {
    /// Threads of the rows with many.
    pub fn max_threads(&self, nr_cpus: usize) -> usize {
        self.threads.map_or(nr_cpus.min(MAX_THREADS), usize::from)
    }

    /// Whether the host's Linux runs, too.
    pub fn with_linux(&self) -> bool {
        self.against == Against::Linux
    }

    /// Bytes from one that is written to the next.
    pub fn skip_bytes(&self) -> u64 {
        if self.skip_kb == 0 { self.page.bytes() } else { self.skip_kb << 10 }
    }

    /// Bytes of an arena for so many pages: 2 % for descriptors, a table for each 2 MiB of a space, and what CPUs hold. Pages of 1 GiB are
    /// aligned.
    pub fn arena_bytes(&self, nr_pages: u64, max_threads: usize) -> u64 {
        let bytes = nr_pages * self.page.bytes();
        let tables = self.shape.nr_spaces() as u64 * ((bytes >> 9) + (1 << 18));
        let edge = if self.page == Page::Gib1 { 2 << 30 } else { 64 << 20 };
        (bytes + bytes / 50 + tables + edge + max_threads as u64 * (8 << 20)).next_multiple_of(2 << 20)
    }

    fn needed_bytes(&self, nr_pages: u64, max_threads: usize) -> u64 {
        let linux = if self.with_linux() { nr_pages * self.page.bytes() } else { 0 };
        self.arena_bytes(nr_pages, max_threads) + linux
    }

    /// Pages: as many for each thread, and no more than memory allows.
    ///
    /// # Errors
    ///
    /// It is less than a page for each thread, or more than what was asked for fits.
    pub fn settle(&self, max_threads: usize, available: u64) -> Result<u64, LabError> {
        let parts = if self.shape == Shape::Linear { max_threads as u64 } else { 1 };
        let of_kib = |kib: u64| ((kib << 10) / self.page.bytes()) / parts * parts;
        let fits = |nr_pages: u64| self.needed_bytes(nr_pages, max_threads) <= available;
        let default = if self.shape == Shape::Linear { NR_PAGES_2013 << 11 } else { DATABASE_KIB };
        // The database's file in whole pages, the linear one as it fits.
        let default = default.next_multiple_of(self.page.bytes() >> 10);
        let kib = self.size_kb.unwrap_or(default);
        if of_kib(kib) == 0 {
            let wanted = format!(
                "should be a page for each of {parts} thread(s) at least: {}",
                (parts * self.page.bytes()) >> 10
            );
            return Err(LabError::Argument { name: "SIZE_KB", given: kib.to_string(), wanted });
        }
        if fits(of_kib(kib)) {
            return Ok(of_kib(kib));
        }
        let smaller = (1..10).map(|halves| kib >> halves).find(|kib| fits(of_kib(*kib)));
        match (self.size_kb, smaller) {
            (None, Some(smaller)) if self.shape == Shape::Linear && of_kib(smaller) > 0 => {
                eprintln!("softfault: SIZE_KB {smaller} instead of {kib}, for which memory is short");
                Ok(of_kib(smaller))
            }
            _ => Err(Need::of("SIZE_KB", kib, self.needed_bytes(of_kib(kib), max_threads)).refusal(available)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::typed;

    fn options(text: &str) -> Options {
        typed(&format!("parallel-fault {text}"))
    }

    #[test]
    fn sizes_of_2013_and_what_fits() {
        let gib = |nr: u64| nr << 30;
        assert_eq!(options("").settle(2, u64::MAX).ok(), Some(8192));
        assert_eq!(options("").settle(3, u64::MAX).ok(), Some(8190), "as many for each thread");
        assert_eq!(options("").settle(2, gib(6)).ok(), Some(2048));
        assert_eq!(options("--shape database").settle(3, u64::MAX).ok(), Some(768));
        assert_eq!(options("--shape database --page 1G").settle(2, u64::MAX).ok(), Some(2));
        assert!(options("--shape database").settle(2, gib(1)).is_err());
        assert!(options("2 8388608").settle(2, gib(6)).is_err(), "a wish does not shrink");
        let error = options("4 4096").settle(4, u64::MAX).unwrap_err().to_string();
        assert!(error.starts_with("SIZE_KB 4096: should be a page for each of 4 thread(s) at least: 8192"), "{error}");
    }

    #[test]
    fn a_page_is_the_default_step() {
        assert_eq!([options("").skip_bytes(), options("2 4096 4").skip_bytes()], [2 << 20, 4096]);
        assert_eq!(options("--page 1G").skip_bytes(), 1 << 30);
    }
}
