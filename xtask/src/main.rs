//! `cargo xtask ...`: the project's own commands.
//!
//! | file | command |
//! | --- | --- |
//! | `check.rs` | `check`: the one gate, also what `.ci/run` runs |
//! | `lint/` | `lint`: rules of this project that no ready-made tool knows |
//! | `readme.rs` | `readme`: runs what README and `docs/commands.md` tell people to run |
//! | `clients.rs` | `clients`: other people's memory programs, cloned and built static |
//! | `measure/` | `measure`: runs the experiments, writes `docs/measurements.md` |
//! | `mutants.rs` | `mutants`: wrong variants of the code that a named test must kill |
//! | `packages.rs` | which Debian packages the tests need |
//! | `publish.rs` | `package`: whether the library's package is complete |
//! | `shell.rs` | running other programs |

mod check;
mod clients;
mod lint;
mod measure;
mod mutants;
mod packages;
mod publish;
mod readme;
mod room;
mod shell;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything that has to hold before a commit: format, lints, docs, tests, README
    Check(check::Options),
    /// The project's own lints alone
    Lint(lint::Options),
    /// The programs on the reference kernel, in QEMU
    KernelTest,
    /// Other people's memory programs for the reference kernel: clones and builds them
    Clients(clients::Options),
    /// Wrong variants of the code, each of which a named test must notice
    Mutants(mutants::Options),
    /// Whether the library's package is complete and builds
    Package,
    /// Runs the experiments and writes docs/measurements.md from what they print
    Measure(measure::Options),
    /// Runs every command in the `console` blocks of the README and docs/commands.md
    Readme,
    /// Long runs: `soak differential --seconds N [--seed S]`; `soak days`, huge pages after days of use; `soak pipelines`, on
    /// the reference kernel
    Soak {
        /// Passed on as they are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Check(options) => return check::run(&options),
        Task::Lint(options) => lint::run_with(&options),
        Task::KernelTest => packages::ensure().and_then(|()| shell::run(&shell::cargo(check::KERNEL_TEST))),
        Task::Clients(options) => clients::run(&options),
        Task::Mutants(options) => mutants::run(&options),
        Task::Measure(options) => measure::run(&options),
        Task::Package => publish::check(),
        Task::Readme => readme::run(),
        Task::Soak { arguments } => soak(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A test of the kernel that the gate leaves out.
const SOAK_PIPELINES: &str =
    "test --release -p softfault-lab --test kernel_files -- --ignored fifty_thousand_pipelines";

/// The testkit's binary does the work, where no kernel is needed.
fn soak(arguments: &[String]) -> Result<(), String> {
    if arguments == ["pipelines"] {
        return shell::run(&shell::cargo(SOAK_PIPELINES));
    }
    let (bin, arguments) = match arguments.split_first() {
        Some((first, rest)) if first == "days" => ("days", rest),
        _ => ("soak", arguments),
    };
    let mut command = shell::cargo(&format!("run --quiet --release -p softfault-testkit --bin {bin} --"));
    command.args(arguments);
    shell::run(&command)
}
