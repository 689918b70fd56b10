//! The command line of `softfault fragment`.

use crate::bench::{Need, Repeated, defaults, parse_gib};
use crate::error::LabError;
use crate::stage::{PAGE_BYTES, PIECE_BYTES};
use clap::Args;
use softfault::policy::huge::Defrag;

const GIB: f64 = (1u64 << 30) as f64;
/// Below this there are too few blocks to speak of.
const LEAST_BYTES: u64 = 32 << 20;

const HELP: &str = "\
Measurement
  A hosted machine starts with --size GiB of free memory. Then one frame is kept in --share percent of its
  2 MiB blocks, chosen at random. Almost all memory stays free, but few blocks are free as a whole:
    unmovable   (the default) one random frame is taken out of use, like a kernel's own data
    --movable   one page of another program stays; that program has filled all memory and freed everything
                else. Compaction can move the page
  Then a program maps half of the free memory, writes all of it (one fault per page), writes it again and reads
  it. It runs with enabled=always, where no huge page is available, and with enabled=never, in a random order
  within each repetition. Both must read the same.

Fragmentation index
  The share of free memory that is unusable for 2^order adjacent, aligned frames: 0 if all free memory is in
  large enough pieces, 1 if none is. Linux has it in debugfs as extfrag/unusable_index.

Columns
  free       free memory in MiB
  index      before and after
  ms         of CPU time, the median over the repetitions, and in brackets (slowest - fastest) / median: the
             first memset (faults and stores), and the whole program
  huge       share of the program's memory that 2 MiB pages map
  compacted  2 MiB blocks that faults freed by moving pages (--movable --defrag always)
  fallbacks  huge faults that found no block and used 4 KiB
  always / never  the median of the ratios within a repetition; the goal is at most 1.10

JSON
  One object per line: for each order experiment, row (index), kind (movable or unmovable), share_percent,
  order, block_bytes, index_before, index_after; for both programs row (program), enabled, defrag, reps,
  seconds, spread, memset_seconds, memset_spread, huge_share, thp_fault_alloc, thp_fault_fallback,
  compact_success; last, row (ratio): seconds of always over never, spread. Keys that do not apply to a line
  are null. All lines have value and unit.

Examples:
  softfault fragment
  softfault fragment --size 4 --share 50
  softfault fragment --movable --defrag always
  softfault fragment --share 10 --json | jq -r 'select(.row == \"index\") | [.order, .index_after] | @tsv'";

/// The command line of `softfault fragment`.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = HELP,
    mut_args(defaults("5", "512", "the index of each order, before and after,")),
    mut_arg("seed", |seed| seed.help("Seed of the kept frames and of the order of programs within a repetition"))
)]
pub struct Options {
    /// Memory of the hosted machine in GiB, fractions allowed
    #[arg(short, long, value_name = "GIB", default_value = "1", value_parser = parse_gib)]
    pub size: f64,
    /// Keep movable pages instead of unmovable frames
    #[arg(long)]
    pub movable: bool,
    /// Percent of the 2 MiB blocks in which a frame is kept
    #[arg(long, value_name = "PERCENT", default_value = "100", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub share: u32,
    /// Effort of a fault that finds no huge page (the defrag knob)
    #[arg(long, value_name = "WORD", default_value = "madvise", value_parser = parse_defrag)]
    pub defrag: Defrag,
    #[command(flatten)]
    pub repeated: Repeated,
}

fn parse_defrag(text: &str) -> Result<Defrag, String> {
    Defrag::parse(text).ok_or_else(|| {
        let names: Vec<&str> = Defrag::ALL.iter().map(|d| d.name()).collect();
        format!("should be one of {}", names.join(", "))
    })
}

impl Options {
    /// The word for what is kept.
    pub fn kind(&self) -> &'static str {
        if self.movable { "movable" } else { "unmovable" }
    }

    /// Bytes of the machine: whole blocks.
    pub fn arena_bytes(&self) -> u64 {
        (self.size * GIB) as u64 / PIECE_BYTES * PIECE_BYTES
    }

    /// Pages of the program, of so many that are free.
    pub fn program_pages(nr_free: u64) -> u64 {
        nr_free / 2 / (PIECE_BYTES / PAGE_BYTES) * (PIECE_BYTES / PAGE_BYTES)
    }

    /// Of the blocks in which a frame is kept.
    pub fn seed(&self) -> u64 {
        self.repeated.settings().seed
    }

    /// The machine's memory; refuses a machine of a few blocks.
    pub fn memory(&self) -> Result<Need, LabError> {
        if self.arena_bytes() < LEAST_BYTES {
            let wanted = "should be 32 MiB at least: 0.032".into();
            return Err(LabError::Argument { name: "--size", given: self.size.to_string(), wanted });
        }
        Ok(Need::of("--size", self.size, self.arena_bytes()))
    }
}
