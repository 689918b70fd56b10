//! The `softfault` command: one subcommand for each experiment. Without a subcommand it runs a tour.
//!
//! A subcommand is a folder with `Options` (its command line) and files that measure, compute and print.
//! An experiment implements `Experiment` for its options; `bench` has that trait and the runner. `run` and `shell` are
//! none: they start QEMU. They and `compare` return the exit code of a program.
//!
//! | exit code | meaning |
//! | --- | --- |
//! | 0 | done |
//! | 1 | an experiment could not be run, or a check inside it failed |
//! | 2 | an argument is wrong; the message names it and says what it should be |

mod anon_w_seq;
mod bench;
mod clear_huge;
mod clearing;
mod compare;
mod conflicts;
mod error;
mod fault_around;
mod fragment;
mod growth;
mod largepages;
mod os;
mod parallel_fault;
mod pft;
mod progress;
mod run;
mod shell;
mod stage;
mod stuck_fills;
mod tour;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  softfault                                    a tour of under a minute
  softfault pft -g 1 -r 5 -t 1,2               the table of 2004, four fault-locking modes and this host's Linux
  softfault pft -g 1 -r 5 -t 1,2 --frames zeroed --fault-locking split,lockfree
  softfault conflicts --cpus 512               which cache lines move between CPUs in a fault?
  softfault clear-huge                         orders of clearing a huge page: 2017, 2026 and ours
  softfault largepages --size 0.5              what 2 MiB pages save: the program of 2011
  softfault anon-w-seq --processes 2           these orders and programs that write their memory
  softfault fault-around --size 0.5             a cached file read with windows of 4 KiB to 2 MiB: 2014 and ours
  softfault parallel-fault 2 1048576           huge pages of a pool: one mutex, a table of them, and none
  softfault stuck-fills                        calls beside 64 reads of a file that never end
  softfault fragment --share 50                a program in memory without free 2 MiB blocks
  softfault growth                             whether a call costs more in a terabyte, on 512 CPUs
  softfault run --cpus 2 -- ./hello            a static Linux program on the reference kernel
  softfault compare -- ./hello                 the same program there and on Debian's Linux, timed
  softfault shell                              busybox on the reference kernel

Each subcommand explains its columns and JSON keys: softfault pft --help";

/// Experiments with the Softfault virtual-memory subsystem, compared with this host's Linux.
#[derive(Parser)]
#[command(name = "softfault", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// First-touch page faults per second: the experiment of 2004
    Pft(pft::Options),
    /// Count the cache lines that move between CPUs in page faults, for up to 512 CPUs
    Conflicts(conflicts::Options),
    /// Clear and copy 2 MiB pages: GB/s of each order, and the latency of the loads that follow
    ClearHuge(clear_huge::Options),
    /// memset of fresh memory with and without huge pages: the experiment of 2011
    Largepages(largepages::Options),
    /// Processes that clear and write memory, 2 MiB at a time: the experiment of 2017
    AnonWSeq(anon_w_seq::Options),
    /// Threads that read a file in memory, with windows of 4 KiB to 2 MiB: the experiment of 2014
    FaultAround(fault_around::Options),
    /// Threads that fault on huge pages of a reserved pool: the experiment of 2013
    ParallelFault(parallel_fault::Options),
    /// Time calls while reads of a file never end
    StuckFills(stuck_fills::Options),
    /// Fragment memory, measure the fragmentation, and time a program with and without huge pages
    Fragment(fragment::Options),
    /// Count the words that each call touches, in machines of 1 GiB to 1 TiB with 1 to 512 CPUs
    Growth(growth::Options),
    /// Run a static Linux program on the reference kernel, in QEMU
    Run(run::RunOptions),
    /// An interactive shell on the reference kernel
    Shell(shell::Options),
    /// Time a program on the reference kernel and on Debian's Linux, in the same QEMU
    Compare(compare::Options),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        // These return the program's exit code.
        Some(Command::Run(options)) => return run::main(&options),
        Some(Command::Shell(options)) => return shell::main(&options),
        Some(Command::Compare(options)) => return compare::main(&options),
        None => tour::run(),
        Some(Command::Pft(options)) => bench::run(&options),
        Some(Command::Conflicts(options)) => bench::run(&options),
        Some(Command::ClearHuge(options)) => clear_huge::run(&options),
        Some(Command::Largepages(options)) => bench::run(&options),
        Some(Command::AnonWSeq(options)) => anon_w_seq::run(&options),
        Some(Command::FaultAround(options)) => bench::run(&options),
        Some(Command::ParallelFault(options)) => bench::run(&options),
        Some(Command::StuckFills(options)) => bench::run(&options),
        Some(Command::Fragment(options)) => bench::run(&options),
        Some(Command::Growth(options)) => bench::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("softfault: {error}");
            error.exit_code()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn each_experiment_has_defaults_of_its_own() {
        let default = |command: &str, option: &str| {
            let mut cli = Cli::command();
            cli.build();
            let command = cli.find_subcommand(command).expect("a subcommand");
            let arg = command.get_arguments().find(|arg| arg.get_id() == option).expect("an option");
            arg.get_default_values()[0].to_string_lossy().parse::<u64>().expect("a number")
        };
        let both = |command| (default(command, "reps"), default(command, "seed"));
        let all =
            ["pft", "largepages", "clear-huge", "anon-w-seq", "fault-around", "parallel-fault", "fragment"].map(both);
        assert_eq!(all, [(3, 2004), (3, 2011), (21, 2017), (15, 2017), (3, 2014), (3, 2013), (5, 512)]);
        assert_eq!(default("growth", "seed"), 12);
    }
}
