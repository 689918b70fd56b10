//! The command line of `softfault fault-around`.

use super::pattern::{Pattern, TABLE_PAGES};
use crate::bench::{self, Against, MAX_THREADS, Need, PAGE_BYTES, Repeated, Window, defaults, parse_gib, parse_window};
use crate::error::LabError;
use clap::{Args, ValueEnum};

const GIB: f64 = (1u64 << 30) as f64;

const HELP: &str = "\
Measurement
  The program of 2014 that showed what fault-around saves. A file of GIB is in memory. Each thread of one process
  maps it for itself, shared and read-only, and reads it. A read fault maps the page and, of the 2^order pages
  around it, those that are in memory. Rows run in a random order within each repetition.

Patterns
  seq      every 8-byte word, in order. A file below 256 MiB is mapped at new addresses and read again until a thread
           has read as much, or 64 times. Below 32 MiB the TLBs count, too: the second pass finds part of the file there
  random   every 8-byte word once, at random: a permutation of all words, another one for each thread
  sparse   one word in each 2 MiB, so in each leaf table: fault-around can only lose. The file is mapped at new
           addresses and read again until a thread has made 8,192 touches, as in 16 GiB, or 64 times
  Each mapping is read twice. The second pass finds all that it reads mapped: the loads, and TLB misses. Before these,
  another mapping is read and not counted, so that code, tables and caches are as warm in the first pass.

Systems
  softfault  the hosted machine: threads are CPUs, loads go through an emulated TLB of 1,536 translations for each.
             For seq one lookup stands for the words of a page. For random each load is looked up, which takes
             longer than the loads and hides the time of faults: count them. The file is a shared object. A fault
             has no trap, so the ratio to Linux is not like for like
  linux      this host's, the file in a memfd, 4 KiB pages. `default`: the window of 64 KiB as it is, which is
             order 4. `emulated`: smaller windows, by cutting the mapping into VMAs of that size, which costs
             look-ups that a smaller window would not; the file is then read part by part, as 65,530 VMAs are all
             that a process may have. `set`: as root, where debugfs has fault_around_bytes: all orders; it is put
             back at the end. Without that, larger and adaptive windows are not possible.
             `qemu`, with --qemu: Debian's, in QEMU, with all orders. QEMU counts instructions: a nanosecond of these
             rows is one. They are the same in each repetition but for a percent, and nothing is divided by them

Folios
  With --folios 1m both systems have the file in folios of 1 MiB, and a fault maps all of its page's folio. Linux's is
  a file of a tmpfs with huge=within_size, which root alone can make (Linux 6.14); a kernel that gives it
  other folios is refused. The windows of both, and VMAs that are cut, matter less then

Neighbours
  Linux maps them as used on x86-64, since the processor takes long to set that bit. So do ours by default. With
  --neighbours old the first pass sets it, page by page, as the core leaves it unless a tunable says otherwise

Columns
  order        log2 of the window's pages, 0 to 9; adaptive: grows while faults come in order, else shrinks
  window       default, emulated, set or qemu: see above
  faults       minor and major faults of the first pass, all threads and mappings. They are counted, and the same in
               each repetition of ours
  mapped       pages mapped after the first pass over pages touched
  pass         seconds of wall time, of all mappings: the median over the repetitions, and in brackets
               (slowest - fastest) / median
  resident     seconds of the second pass
  ns/page      (pass - resident) over the pages that a thread touched: the cost of faults, the median; -
               where it is not above zero with 95 % certainty: more repetitions show smaller costs
  x linux      ns/page of Linux over ours at the same order; adaptive beside Linux's default
  /order 0     faults and pass over those of order 0
  2014         the row of 2014 with as many threads: faults and wall time a page. The whole table of 2014 follows;
               * is a time that repeats another row's, a slip of the source, and is left out of the plot

JSON
  One object per line. Keys: pattern, system, order (a string), window, threads, gib, folio_kib, reps, minor_faults,
  major_faults, wall_s (of the first pass), resident_pass_s, spread, pages_mapped, pages_touched,
  ns_per_page, ratio_to_linux, faults_over_order_0, faults_over_order_9, time_over_order_0, faults_2014, seconds_2014, experiment,
  value (wall_s) and unit. null where a key does not apply.

Examples:
  softfault fault-around
  softfault fault-around --pattern sparse --orders 0,4,9,adaptive --reps 5
  softfault fault-around --pattern random --size 0.25 --threads 1,8 --against none
  softfault fault-around --folios 1m --orders 4,adaptive
  softfault fault-around --qemu --size 0.125 --threads 1
  softfault fault-around --threads 1,2,8 --plot around.svg
  softfault fault-around --json | jq -r '[.system, .order, .threads, .minor_faults, .wall_s] | @tsv'";

/// Size of the folios of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Folios {
    /// One page each
    #[value(name = "4k")]
    Small,
    /// 256 pages each
    #[value(name = "1m")]
    Large,
}

impl Folios {
    /// log2 of the pages of each.
    pub fn order(self) -> u8 {
        if self == Folios::Small { 0 } else { 8 }
    }
    /// KiB of each.
    pub fn kib(self) -> u64 {
        (PAGE_BYTES << self.order()) >> 10
    }
}

/// State of the entries of neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Age {
    /// Used, as on Linux for x86-64
    Young,
    /// Not used: the emulated hardware writes each entry once more
    Old,
}

/// The command line of `softfault fault-around`.
#[derive(Args, Debug, Clone)]
#[command(after_help = HELP, mut_args(defaults("3", "2014", "nanoseconds a page over the order")))]
pub struct Options {
    /// In which order the file is read
    #[arg(long, value_enum, default_value = "seq")]
    pub pattern: Pattern,
    /// The file in GiB, fractions allowed
    #[arg(short, long, value_name = "GIB", default_value = "1", value_parser = parse_gib)]
    pub size: f64,
    /// Numbers of threads, separated by commas [default: 1 and the number of CPUs]
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=MAX_THREADS as i64))]
    pub threads: Vec<u16>,
    /// Orders of the window, 0 to 9, or adaptive, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,1,3,4,5,7,9,adaptive", value_parser = parse_window)]
    pub orders: Vec<Window>,
    /// System to compare with
    #[arg(long, value_enum, default_value = "linux")]
    pub against: Against,
    /// Folios of the file in memory, on both systems
    #[arg(long, value_enum, default_value = "4k")]
    pub folios: Folios,
    /// Whether our faults map neighbours as used
    #[arg(long, value_enum, default_value = "young")]
    pub neighbours: Age,
    /// Read on Debian's Linux in QEMU, too, with one thread: there the window can be set
    #[arg(long)]
    pub qemu: bool,
    #[command(flatten)]
    pub repeated: Repeated,
}

/// The largest file that is read in QEMU: a second for each 30 MiB, pass and order.
const MOST_QEMU_GIB: f64 = 0.25;

impl Options {
    /// Refuses what cannot be read in QEMU.
    fn check_qemu(&self) -> Result<(), LabError> {
        let wrong = |name, given: String, wanted: &str| Err(LabError::Argument { name, given, wanted: wanted.into() });
        if !self.qemu {
            return Ok(());
        }
        if self.pattern == Pattern::Random {
            return wrong("--pattern", "random".into(), "should be seq or sparse with --qemu");
        }
        if self.size > MOST_QEMU_GIB {
            return wrong("--size", self.size.to_string(), "should be at most 0.25 with --qemu");
        }
        if self.folios != Folios::Small {
            return wrong("--folios", "1m".into(), "should be 4k with --qemu");
        }
        if !self.threads.is_empty() && !self.threads.contains(&1) {
            return wrong("--qemu", "given".into(), "one thread reads there: --threads should contain 1");
        }
        Ok(())
    }

    /// Pages of the file: whole leaf tables.
    pub fn nr_pages(&self) -> u64 {
        (self.size * GIB / PAGE_BYTES as f64) as u64 / TABLE_PAGES * TABLE_PAGES
    }

    /// Numbers of threads: as given, each once, or 1 and the number of CPUs.
    pub fn thread_counts(&self, nr_cpus: usize) -> Vec<usize> {
        bench::thread_counts(&self.threads, nr_cpus)
    }

    /// The largest number of threads.
    pub fn max_threads(&self, nr_cpus: usize) -> usize {
        self.thread_counts(nr_cpus).into_iter().max().unwrap_or(1)
    }

    /// The windows, each once.
    pub fn windows(&self) -> Vec<Window> {
        let mut windows: Vec<Window> = Vec::new();
        for window in &self.orders {
            if !windows.contains(window) {
                windows.push(*window);
            }
        }
        windows
    }

    /// Whether the host's Linux reads, too.
    pub fn with_linux(&self) -> bool {
        self.against == Against::Linux
    }

    /// Bytes of the hosted machine: the file, 2 % for its tree and descriptors, leaf tables of all threads,
    /// and the reserve of each CPU.
    pub fn arena_bytes(&self, max_threads: usize) -> u64 {
        let bytes = self.nr_pages() * PAGE_BYTES;
        let of_thread = self.nr_pages() / TABLE_PAGES * PAGE_BYTES + (8 << 20);
        (bytes + bytes / 50 + (64 << 20) + max_threads as u64 * of_thread).next_multiple_of(2 << 20)
    }

    /// Refuses a file that is too small; gives the memory of our machine, of Linux's file, and of the page
    /// tables of its threads.
    pub fn check_for(&self, max_threads: usize) -> Result<Need, LabError> {
        if self.nr_pages() == 0 {
            let wanted = "should be 2 MiB at least, what one leaf table maps: 0.002".into();
            return Err(LabError::Argument { name: "--size", given: self.size.to_string(), wanted });
        }
        self.check_qemu()?;
        let linux = self.nr_pages() * (PAGE_BYTES + max_threads as u64 * PAGE_BYTES / TABLE_PAGES);
        let bytes = self.arena_bytes(max_threads) + if self.with_linux() { linux } else { 0 };
        let condition = format!("with {max_threads} thread(s)");
        Ok(Need { condition, ..Need::of("--size", self.size, bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::typed;

    fn options(text: &str) -> Options {
        typed(&format!("fault-around {text}"))
    }

    #[test]
    fn a_file_is_whole_tables() {
        assert_eq!(options("").nr_pages(), 1 << 18);
        assert_eq!(options("--size 0.005").nr_pages(), 2 * TABLE_PAGES);
        let error = options("--size 0.0015").check_for(1).unwrap_err().to_string();
        assert!(error.starts_with("--size 0.0015: should be 2 MiB at least"), "{error}");
    }

    #[test]
    fn memory_grows_with_threads_and_halves_without_linux() {
        let bytes = |text: &str, nr| options(text).check_for(nr).unwrap().bytes;
        assert!(bytes("", 1) > 2 << 30 && bytes("", 120) > bytes("", 1) + 119 * (10 << 20));
        assert!(bytes("--against none", 1) < 3 << 29);
    }

    #[test]
    fn lists_have_each_value_once() {
        let options = options("--orders 4,adaptive,4 --threads 8,1,8");
        let names: Vec<String> = options.windows().into_iter().map(Window::name).collect();
        assert_eq!((names, options.thread_counts(2)), (vec!["4".into(), "adaptive".into()], vec![1, 8]));
    }
}
