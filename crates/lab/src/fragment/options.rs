//! What may be typed after `softfault fragment`.

use crate::bench::{Need, Repeated, defaults, parse_gib};
use crate::error::LabError;
use crate::stage::{PAGE_BYTES, PIECE_BYTES};
use clap::Args;
use softfault::policy::huge::Defrag;

const GIB: f64 = (1u64 << 30) as f64;
/// Below this there are too few blocks to speak of.
const LEAST_BYTES: u64 = 32 << 20;

const HELP: &str = "\
What is done
  A hosted machine with SIZE of memory, all free. In --share percent of its 2 MiB blocks, picked by chance,
  one frame is then kept, so that almost as much memory is free as before, but not in blocks:
    unmovable   one frame at random, taken out of use for good, as a kernel's own data would (the default)
    --movable   one page of another program, which has filled all memory and given back everything else:
                compaction may move it out of the way
  Then a program maps half of what is free, writes all of it (every page a fault), writes it again and reads
  it, once with enabled=always, which has nothing huge to give, and once with enabled=never, in a random order
  within each repetition. Both must read the same.

Fragmentation index
  The share of free memory that is of no use to who wants 2^order adjacent, aligned frames: 0 where all free
  memory is in pieces large enough, 1 where none is. Linux shows it in debugfs as extfrag/unusable_index.

Columns
  free       MiB that are free
  index      before and after
  ms         of CPU time, the median over the repetitions, and in brackets (slowest - fastest) / median: the
             first memset (faults and stores), and the whole program
  huge       part of the program's memory that was mapped by 2 MiB pages
  compacted  2 MiB blocks that faults made by moving pages out of the way (--movable --defrag always)
  fallbacks  huge faults that found no block and went on with 4 KiB
  always / never  the median of the ratios within a repetition; at most 1.10 is the goal

JSON
  One object per line: for each order experiment, row (index), kind (movable or unmovable), share_percent,
  order, block_bytes, index_before, index_after; for both programs row (program), enabled, defrag, reps,
  seconds, spread, memset_seconds, memset_spread, huge_share, thp_fault_alloc, thp_fault_fallback,
  compact_success; at last row (ratio): seconds always over never, spread. Keys that mean nothing on a line
  are null; value and unit, which every experiment has, are on all.

Examples:
  softfault fragment
  softfault fragment --size 4 --share 50
  softfault fragment --movable --defrag always
  softfault fragment --share 10 --json | jq -r 'select(.row == \"index\") | [.order, .index_after] | @tsv'";

/// What may be typed after `softfault fragment`.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = HELP,
    mut_args(defaults("5", "512", "the index of each order, before and after,")),
    mut_arg("seed", |seed| seed.help("Seed of what is kept, and of the order of programs within a repetition"))
)]
pub struct Options {
    /// Memory of the hosted machine, GiB; fractions are welcome
    #[arg(short, long, value_name = "GIB", default_value = "1", value_parser = parse_gib)]
    pub size: f64,
    /// Keep pages that may be moved, in place of frames that may not
    #[arg(long)]
    pub movable: bool,
    /// Part of the 2 MiB blocks in which a frame is kept, in percent
    #[arg(long, value_name = "PERCENT", default_value = "100", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub share: u32,
    /// What a fault may do for a huge page when there is none
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
