//! The `softfault` command: the experiments, one subcommand each, and a tour of
//! them when it is called without any.
//!
//! A subcommand is a folder with an `Options` (what may be typed) and files that measure, compute and print.
//! Most are an `Experiment` for their options: `bench` has that trait and the runner of all of them.
//!
//! | exit code | meaning |
//! | --- | --- |
//! | 0 | done |
//! | 1 | an experiment could not be run, or a check inside it failed |
//! | 2 | an argument is wrong; the message names it and says what it should be |
//!
//! `softfault run` and `softfault compare` have the program's exit code instead; see their help.

mod anon_w_seq;
mod bench;
mod clear_huge;
mod clearing;
mod compare;
mod conflicts;
mod error;
mod fragment;
mod growth;
mod largepages;
mod os;
mod pft;
mod progress;
mod run;
mod shell;
mod stage;
mod tour;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  softfault                                    a tour of under a minute
  softfault pft -g 1 -r 5 -t 1,2               the table of 2004, four fault-locking modes and this host's Linux
  softfault pft -g 1 -r 5 -t 1,2 --frames zeroed --fault-locking split,lockfree
  softfault conflicts --cpus 512               which cache lines do CPUs fight for in a fault?
  softfault clear-huge                         the orders of 2017 and 2026 for clearing a huge page, and ours
  softfault largepages --size 0.5              what do 2 MiB pages save? the program of 2011
  softfault anon-w-seq --processes 2           what these orders do for programs that write their memory
  softfault fragment --share 50                memory without whole 2 MiB blocks, and a program in it
  softfault growth                             does a call cost more in a terabyte, on 512 CPUs?
  softfault run --cpus 2 -- ./hello            a static Linux program on the reference kernel
  softfault compare -- ./hello                 the same program there and on Debian's Linux, timed
  softfault shell                              busybox on the reference kernel, to poke at it

Every subcommand explains its columns and its keys: softfault pft --help";

/// Experiments with the Softfault virtual-memory subsystem, beside this host's Linux.
#[derive(Parser)]
#[command(name = "softfault", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// First-touch page faults per second: the experiment of 2004, rerun here
    Pft(pft::Options),
    /// Cache lines that CPUs take from each other while they fault, counted for up to 512 CPUs
    Conflicts(conflicts::Options),
    /// Clearing and copying a 2 MiB page: GB/s of each order, and how warm it leaves what is touched next
    ClearHuge(clear_huge::Options),
    /// A memset of fresh memory, with and without huge pages: the experiment of 2011, rerun here
    Largepages(largepages::Options),
    /// Processes that write their own memory, each 2 MiB of it cleared first: the experiment of 2017
    AnonWSeq(anon_w_seq::Options),
    /// Memory fragmented on purpose, how far it is, and what huge pages cost a program there
    Fragment(fragment::Options),
    /// Words that a call touches: does it cost more in a terabyte on 512 CPUs than in a gigabyte on one?
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
        // Its exit code is the program's, whatever that means.
        Some(Command::Run(options)) => return run::main(&options),
        Some(Command::Shell(options)) => return shell::main(&options),
        Some(Command::Compare(options)) => return compare::main(&options),
        None => tour::run(),
        Some(Command::Pft(options)) => bench::run(&options),
        Some(Command::Conflicts(options)) => conflicts::run(&options),
        Some(Command::ClearHuge(options)) => clear_huge::run(&options),
        Some(Command::Largepages(options)) => bench::run(&options),
        Some(Command::AnonWSeq(options)) => anon_w_seq::run(&options),
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
        let all = ["pft", "largepages", "clear-huge", "anon-w-seq", "fragment"].map(both);
        assert_eq!(all, [(3, 2004), (3, 2011), (21, 2017), (15, 2017), (5, 512)]);
        assert_eq!(default("growth", "seed"), 12);
    }
}
