//! The command line of `softfault growth`.

use crate::bench::{Once, defaults};
use crate::error::LabError;
use clap::{Args, ValueEnum};
use std::fmt;

/// Bytes of a block.
const BLOCK_BYTES: u64 = 2 << 20;
const LEAST_BYTES: u64 = 64 << 20;
const MOST_BYTES: u64 = 8 << 40;

/// Memory that one call of `touch 64 KiB` takes, tables included.
const CALL_BYTES: u64 = 96 << 10;
/// Memory up to which real age is worth waiting for.
const MOST_AGED_BYTES: u64 = 64 << 30;

const HELP: &str = "\
Measurement
  The core's sources run on simulated CPUs, compiled so that each access to a shared word is recorded. Each row
  makes --calls calls, each on a random CPU; `steps` is the number of words that the most expensive call
  touched. No call should cost more in a larger machine: the goal is at most 2 times the steps of the first
  machine.
  ns is the median of further calls without the recorder, on this host. Where a call clears memory, it includes
  the host's own page faults.

A simulated terabyte
  Untouched frames take no memory of the host. The state of memory is written to the bitmaps of the 2 MiB
  blocks, as ordinary calls would leave them. Before and after the calls the checker recomputes what each block
  offers and compares the summaries with it. The clock stands still, so that no time budget hides a walk.

States
  fresh        all memory is free and unused
  aged         6 % of the blocks are free, 3 % full; the others have short free runs, and a few have many. Some
               blocks contain page tables. All free frames have to be cleared, and each CPU has run before
  aged-really  the same state by real use: programs map, touch, fork, unmap and exit at random until they have
               touched three times the size of memory; up to 64G. With `aged` as well, a table compares the
               two; the goal is a difference of at most 20 %
  full         only one block is free, in the home blocks farthest from the calling CPU
  fragmented   one frame of each 16 is used: no run of 64 KiB is free

Rows
  touch        the first touch of 2 MiB that have no page yet, with pages of 4 KiB, 64 KiB or 2 MiB by the huge
               page knobs. Where no such frame is free, the fallback is counted. All CPUs run the address space
  refusal      a touch of 4 KiB with no free frame, after one refusal that is not counted: the first refusal
               asks each CPU that has had frames since the last one
  fork, exit, munmap, mincore
               of a process that runs on one CPU and has 64 pages (mincore: 128 of 512, every fourth)
  collapse     of 2 MiB with every 16th page present; a refusal counts, too
  boot         the boot in fresh, zeroed memory. It writes the summaries of all memory and is exempt from the
               goal; a terabyte should take less than 0.1 s
  boot, not zero
               the same boot over memory of unknown content: it clears the metadata of 2 GiB, later calls the rest
  vmstat, /proc
               the system's counters, and the resident pages of a process that all CPUs run. They visit each
               CPU and are exempt from the goal; larger memory alone adds nothing

JSON
  One object per line for each row, state and machine, with the keys what, state, memory_gib, cpus, steps, ns,
  experiment, value and unit.

Examples:
  softfault growth
  softfault growth --memory 1G,64G --cpus 1,64 --state fresh,full
  softfault growth --memory 1G,16G --cpus 1 --state aged,aged-really
  softfault growth --json | jq -r 'select(.what == \"refusal\") | [.state, .memory_gib, .cpus, .steps] | @tsv'";

/// The state of memory at a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum State {
    /// All memory is free and unused, as after a boot
    Fresh,
    /// Long use: full blocks, free blocks, scattered free frames, and blocks with page tables
    Aged,
    /// All but one block is used: the last of the home blocks farthest from the calling CPU
    Full,
    /// One frame of each 16 is used: no run of 64 KiB is free
    Fragmented,
    /// As aged, made by programs that use all memory; up to 64G
    AgedReally,
}

impl State {
    /// The word on the command line and in output.
    pub fn name(self) -> &'static str {
        match self {
            State::Fresh => "fresh",
            State::Aged => "aged",
            State::Full => "full",
            State::Fragmented => "fragmented",
            State::AgedReally => "aged-really",
        }
    }
}

/// The command line of `softfault growth`.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = HELP,
    mut_args(defaults("1", "12", "the growth of the steps of each row")),
    mut_arg("seed", |seed| seed.help("Seed of the CPUs that call"))
)]
pub struct Options {
    /// Sizes of memory: numbers with M, G or T, separated by commas
    #[arg(long, value_name = "SIZES", default_value = "1G,16G,256G,1T", value_delimiter = ',', value_parser = parse_size)]
    pub memory: Vec<u64>,
    /// Numbers of CPUs, separated by commas
    #[arg(long, value_name = "NUMBERS", default_value = "1,64,512", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=softfault::machine::MAX_CPUS as i64))]
    pub cpus: Vec<u16>,
    /// States of memory, separated by commas
    #[arg(
        long,
        value_enum,
        value_name = "STATES",
        default_value = "fresh,aged,full,fragmented",
        value_delimiter = ','
    )]
    pub state: Vec<State>,
    /// Counted calls of each row
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub calls: u32,
    #[command(flatten)]
    pub once: Once,
}

fn parse_size(text: &str) -> Result<u64, String> {
    let wanted = "should be a number and M, G or T, such as 512M, 16G or 1T";
    let digits = text.strip_suffix(['M', 'G', 'T']).ok_or(wanted)?;
    let shift = match text.as_bytes()[digits.len()] {
        b'M' => 20,
        b'G' => 30,
        _ => 40,
    };
    let number: u64 = digits.parse().map_err(|_| wanted.to_string())?;
    let bytes = number.checked_mul(1 << shift).filter(|bytes| (LEAST_BYTES..=MOST_BYTES).contains(bytes));
    let bytes = bytes.ok_or("should be 64M to 8T")?;
    if bytes.is_multiple_of(BLOCK_BYTES) { Ok(bytes) } else { Err("should be a multiple of 2M".into()) }
}

/// A size as it is typed.
fn size(bytes: u64) -> String {
    match bytes {
        n if n.is_multiple_of(1 << 40) => format!("{}T", n >> 40),
        n if n.is_multiple_of(1 << 30) => format!("{}G", n >> 30),
        n => format!("{}M", n >> 20),
    }
}

/// One machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Bytes of memory.
    pub bytes: u64,
    /// CPUs.
    pub cpus: u16,
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", size(self.bytes), self.cpus)
    }
}

impl Options {
    /// Of the CPUs that call.
    pub fn seed(&self) -> u64 {
        self.once.settings().seed
    }

    /// All machines, the smallest first.
    pub fn configs(&self) -> Vec<Config> {
        let mut all: Vec<Config> =
            self.memory.iter().flat_map(|&bytes| self.cpus.iter().map(move |&cpus| Config { bytes, cpus })).collect();
        all.sort_by_key(|config| (config.bytes, config.cpus));
        all.dedup();
        all
    }

    /// All states, each once.
    pub fn states(&self) -> Vec<State> {
        let is_first = |(i, state): &(usize, &State)| !self.state[..*i].contains(state);
        self.state.iter().enumerate().filter(is_first).map(|(_, state)| *state).collect()
    }

    /// Refuses machines and calls that cannot be.
    pub fn check_machines(&self) -> Result<(), LabError> {
        let wrong = |name, given: String, wanted| Err(LabError::Argument { name, given, wanted });
        let configs = self.configs();
        for &Config { bytes, cpus } in &configs {
            if bytes / BLOCK_BYTES < u64::from(cpus) {
                let least = size(u64::from(cpus) * BLOCK_BYTES);
                return wrong("--memory", size(bytes), format!("with {cpus} CPUs should be {least} at least: 2M each"));
            }
            if bytes > MOST_AGED_BYTES && self.state.contains(&State::AgedReally) {
                let wanted = format!("with --state aged-really should be {} at most", size(MOST_AGED_BYTES));
                return wrong("--memory", size(bytes), wanted);
            }
        }
        let least = configs[0].bytes;
        let most = least / 2 / CALL_BYTES;
        if u64::from(self.calls) > most {
            return wrong("--calls", self.calls.to_string(), format!("with {} should be {most} at most", size(least)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        for text in ["64M", "96M", "1G", "16G", "1T", "8T"] {
            assert_eq!(parse_size(text).map(size).as_deref(), Ok(text));
        }
        for text in ["", "1", "G", "0G", "1g", "1.5G", "63M", "65M", "9T", "18446744073709551615T", "-1G", "1GG", "é"]
        {
            assert!(parse_size(text).is_err_and(|wanted| wanted.starts_with("should be")), "{text}");
        }
    }
}
