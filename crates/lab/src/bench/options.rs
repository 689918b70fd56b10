//! Options that several experiments share.

use clap::{Arg, Args, Parser, ValueEnum};
use softfault::{FaultLocking, HugetlbLocking};
use std::path::{Path, PathBuf};

/// The options of an experiment that repeats its jobs; [`defaults`] sets what differs.
#[derive(Args, Debug, Clone)]
pub struct Repeated {
    /// Repetitions of every row
    #[arg(short, long, value_name = "REPS", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub reps: u32,
    #[command(flatten)]
    once: Once,
}

/// The options of an experiment that runs each job once, and in which nothing is random.
#[derive(Args, Debug, Clone)]
pub struct Output {
    /// Draw the result into this file
    #[arg(long, value_name = "FILE.svg", value_parser = parse_svg)]
    plot: Option<PathBuf>,
    /// Print one JSON object per line instead of tables
    #[arg(long)]
    json: bool,
}

/// The options of an experiment that runs each job once.
#[derive(Args, Debug, Clone)]
pub struct Once {
    #[command(flatten)]
    output: Output,
    /// Seed of the order of rows within a repetition
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
}

/// The runner's settings.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// Repetitions of each job.
    pub reps: u32,
    /// Seed of the order within a repetition.
    pub seed: u64,
    /// Print JSON lines instead of text.
    pub json: bool,
    /// File to write the plot to.
    pub plot: Option<&'a Path>,
}

impl Repeated {
    /// For the runner.
    pub fn settings(&self) -> Settings<'_> {
        Settings { reps: self.reps, ..self.once.settings() }
    }
}

impl Once {
    /// For the runner.
    pub fn settings(&self) -> Settings<'_> {
        Settings { seed: self.seed, ..self.output.settings() }
    }
}

impl Output {
    /// For the runner.
    pub fn settings(&self) -> Settings<'_> {
        Settings { reps: 1, seed: 1, json: self.json, plot: self.plot.as_deref() }
    }
}

/// Sets what differs between experiments: the defaults of `--reps` and `--seed`, and the help of `--plot`. For
/// `Command::mut_args`.
pub fn defaults(reps: &'static str, seed: &'static str, plot: &'static str) -> impl Fn(Arg) -> Arg {
    move |arg| match arg.get_id().as_str() {
        "reps" => arg.default_value(reps),
        "seed" => arg.default_value(seed),
        "plot" => arg.help(format!("Draw {plot} into this file")),
        _ => arg,
    }
}

/// The system to compare with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Against {
    /// This host's Linux
    Linux,
    /// Only historic figures
    None,
}

/// Parses a line as it is typed, the command first.
///
/// # Panics
///
/// Ends the process if the line is wrong: only for lines that this program contains.
pub fn typed<T: Args>(line: &str) -> T {
    #[derive(Parser)]
    struct Typed<T: Args> {
        #[command(flatten)]
        options: T,
    }
    Typed::parse_from(line.split_whitespace()).options
}

/// Parses the file name of a plot.
fn parse_svg(text: &str) -> Result<PathBuf, String> {
    if text.ends_with(".svg") { Ok(text.into()) } else { Err("should be the name of a file that ends in .svg".into()) }
}

/// Parses an amount of memory in GiB.
pub fn parse_gib(text: &str) -> Result<f64, String> {
    let wanted = "should be a number of GiB from 0.001 to 16384, such as 1 or 0.25";
    let gib: f64 = text.parse().map_err(|_| wanted.to_string())?;
    if (0.001..=16384.0).contains(&gib) { Ok(gib) } else { Err(wanted.into()) }
}

/// Parses the name of a fault-locking mode.
pub fn parse_fault_locking(text: &str) -> Result<FaultLocking, String> {
    FaultLocking::ALL.into_iter().find(|d| d.name() == text).ok_or_else(|| {
        let names: Vec<&str> = FaultLocking::ALL.iter().map(|d| d.name()).collect();
        format!("should be one of {}", names.join(", "))
    })
}

/// Parses the name of a discipline of faults on pages of a pool.
pub fn parse_hugetlb_locking(text: &str) -> Result<HugetlbLocking, String> {
    let names = HugetlbLocking::ALL.map(HugetlbLocking::name).join(", ");
    HugetlbLocking::ALL.into_iter().find(|l| l.name() == text).ok_or_else(|| format!("should be one of {names}"))
}

/// Most threads: the CPUs that the hosted machine can have.
pub const MAX_THREADS: usize = softfault::machine::MAX_CPUS;

/// Numbers of threads: as given, each once, or 1 and the number of CPUs.
pub fn thread_counts(given: &[u16], nr_cpus: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = given.iter().map(|&t| usize::from(t)).collect();
    if counts.is_empty() {
        counts = vec![1, nr_cpus.min(MAX_THREADS)];
    }
    counts.sort_unstable();
    counts.dedup();
    counts
}
