//! `cargo xtask ...`: the project's own commands.
//!
//! | file | command |
//! | --- | --- |
//! | `check.rs` | `check`: the one gate, also what `.ci/run` runs |
//! | `lint/` | `lint`: the project's own lints |
//! | `readme.rs` | `readme`: runs the commands in README and `docs/commands.md` |
//! | `clients.rs` | `clients`: clones and builds other projects' memory programs |
//! | `compare_builds.rs` | `compare-builds`: times this tree against another commit |
//! | `fuzz.rs` | `fuzz`: searches, corpora, their rate and coverage |
//! | `linux_suites/` | `suites`: other projects' tests on Linux and on the reference kernel |
//! | `measure/` | `measure`: runs the experiments, writes `docs/measurements.md` |
//! | `miri.rs` | `miri`: tests under Miri, which follows each access |
//! | `mutants.rs` | `mutants`: wrong variants of the code that a named test must kill |
//! | `packages.rs` | the Debian packages that the tests need |
//! | `publish.rs` | `package`: checks that the library's package is complete |
//! | `shell.rs` | runs other programs |
//! | `suites.rs` | `test`, `models`: the tests and model checks of the gate |
//! | `tsan.rs` | `tsan`: programs with threads under ThreadSanitizer |

mod check;
mod clients;
mod compare_builds;
mod fuzz;
mod lint;
mod linux_suites;
mod measure;
mod miri;
mod mutants;
mod packages;
mod publish;
mod readme;
mod room;
mod shell;
mod suites;
mod tsan;

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
    /// Run the whole gate: format, lints, docs, tests, models, mutants, README
    Check(check::Options),
    /// Run only the project's own lints
    Lint(lint::Options),
    /// Run the tests only, several binaries at a time; or those that arguments of `cargo test` name, again and again
    Test(suites::Options),
    /// Run the model checks only, with all their schedules, several binaries at a time
    Models,
    /// Run the programs on the reference kernel, in QEMU
    KernelTest,
    /// Clone and build other projects' memory programs for the reference kernel
    Clients(clients::Options),
    /// Run other projects' tests on this host's Linux and on the reference kernel, and name each that differs
    Suites(linux_suites::Options),
    /// Run mutants: wrong variants of the code that a named test must notice
    Mutants(mutants::Options),
    /// Run small tests under Miri, which a nightly toolchain has
    Miri(miri::Options),
    /// Run programs with threads under ThreadSanitizer, with a nightly toolchain; it builds the standard library anew
    Tsan,
    /// Check that the library's package is complete and builds
    Package,
    /// Run the experiments and write docs/measurements.md from their output
    Measure(measure::Options),
    /// Run the fuzz targets: look for findings, replay, count and measure their corpora
    Fuzz(fuzz::Options),
    /// Time this tree's build against that of another commit, in alternating runs
    CompareBuilds(compare_builds::Options),
    /// Run every command in the `console` blocks of the README and docs/commands.md
    Readme,
    /// Long runs: `soak differential --seconds N [--seed S] [--steps N]`; `soak days`, huge pages after days of use; `soak hugetlb`, the last page of a pool; `soak pipelines` and
    /// `soak boots`, fifty machines, on the reference kernel
    Soak {
        /// Passed on unchanged
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Check(options) => return check::run(&options),
        Task::Suites(options) => return linux_suites::run(&options),
        Task::Lint(options) => lint::run_with(&options),
        Task::KernelTest => packages::ensure().and_then(|()| shell::run(&shell::cargo(check::KERNEL_TEST))),
        Task::Test(options) => suites::run_with(&options),
        Task::Models => suites::run(&suites::ALL_SCHEDULES, suites::Share::All, |_| ()).map(|_| ()),
        Task::Clients(options) => clients::run(&options),
        Task::Mutants(options) => mutants::run(&options),
        Task::Measure(options) => measure::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::CompareBuilds(options) => compare_builds::run(&options),
        Task::Miri(options) => miri::run(&options),
        Task::Tsan => tsan::run(),
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

/// Tests of the kernel that the gate leaves out, by the name of the soak: cargo's arguments.
const KERNEL_SOAKS: [(&str, &str); 2] = [
    ("pipelines", "--test kernel_files -- --ignored fifty_thousand_pipelines"),
    ("boots", "--test kernel_robust -- --ignored --nocapture fifty_boots"),
];

/// The testkit's binary does the work, where no kernel is needed.
fn soak(arguments: &[String]) -> Result<(), String> {
    if let [name] = arguments
        && let Some((_, test)) = KERNEL_SOAKS.iter().find(|(soak, _)| soak == name)
    {
        return shell::run(&shell::cargo(&format!("test --release -p softfault-lab {test}")));
    }
    let (bin, arguments) = match arguments.split_first() {
        Some((first, rest)) if first == "days" => ("days", rest),
        _ => ("soak", arguments),
    };
    let mut command = shell::cargo(&format!("run --quiet --release -p softfault-testkit --bin {bin} --"));
    command.args(arguments);
    shell::run(&command)
}
