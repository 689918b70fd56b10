//! `cargo xtask soak days`: how many huge pages memory gives after days of use.
//!
//! Exit codes: 0 done, 1 a byte, a frame or an invariant was lost, a run had less than it should, or fewer huge pages
//! than `--least`; 2 bad arguments.

use clap::Parser;
use softfault::MAX_CPUS;
use softfault_testkit::days::{self, Mix, Progress, Row, Size};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// Lets processes come and go until every block of memory has been used 20 times, frees half of memory, and counts the
/// huge pages that can be made of it, before and after compaction
#[derive(Parser)]
#[command(name = "cargo xtask soak days")]
struct Options {
    /// CPUs of each run: memory is 32 MiB for each, 256 MiB at least. 512 CPUs take 16 GiB
    #[arg(long, value_delimiter = ',', default_value = "1,16,64", value_parser = clap::value_parser!(u64).range(1..=MAX_CPUS as u64))]
    cpus: Vec<u64>,
    /// Memory of processes: `private` pages alone; `objects`: 10 % pages of shared objects; `pins`: 0.1 % of memory
    /// pinned for long; `all` of these; `files`: libraries that are read, not always, and dropped
    #[arg(long, value_delimiter = ',', default_value = "private,objects,pins,all", value_parser = mix)]
    mix: Vec<Mix>,
    /// Processes that come in a run, at least
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    processes: u64,
    /// Times that every block is used, at least
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
    uses: u64,
    /// First of the random numbers: the same seed repeats a run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Fails below this share of huge pages, in percent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(..=100))]
    least: Option<u64>,
    /// Prints a line of JSON for each run instead of a table
    #[arg(long)]
    json: bool,
}

fn mix(name: &str) -> Result<Mix, String> {
    Mix::named(name).ok_or_else(|| "should be private, objects, pins, all or files".into())
}

/// A line that is written over, where somebody looks.
fn show(size: Size, mix: Mix, now: Progress) {
    if std::io::stderr().is_terminal() {
        let Progress { nr_processes, nr_uses } = now;
        eprint!("\r{} CPUs, {}: {nr_processes} processes, every block used {nr_uses} times ", size.nr_cpus, mix.name);
        _ = std::io::stderr().flush();
    }
}

fn hide() {
    if std::io::stderr().is_terminal() {
        eprint!("\r{:78}\r", "");
    }
}

const HEADER: &str = "cpus  mix       processes  uses  used pages  of objects    pins  private+object out  failed  possible  before   after   share";

fn line(row: &Row) -> String {
    format!(
        "{:>4}  {:<8}  {:>9}  {:>4}  {:>10}  {:>10}  {:>6}  {:>18}  {:>6}  {:>8}  {:>6}  {:>6}  {:>4} %",
        row.nr_cpus,
        row.mix.name,
        row.nr_processes,
        row.nr_uses,
        row.nr_used,
        row.nr_object_pages,
        row.nr_pins,
        format!("{}+{}", row.trouble.nr_private_out, row.trouble.nr_object_out),
        format!("{}+{}", row.trouble.nr_private_failed, row.trouble.nr_object_failed),
        row.nr_possible,
        row.nr_before,
        row.nr_after,
        row.percent()
    )
}

fn json(row: &Row, seed: u64) -> String {
    serde_json::json!({
        "cpus": row.nr_cpus,
        "mix": row.mix.name,
        "seed": seed,
        "processes": row.nr_processes,
        "least_uses_of_a_block": row.nr_uses,
        "used_pages": row.nr_used,
        "object_pages": row.nr_object_pages,
        "long_pins": row.nr_pins,
        "private_pages_swapped_out": row.trouble.nr_private_out,
        "object_pages_swapped_out": row.trouble.nr_object_out,
        "private_pages_failed": row.trouble.nr_private_failed,
        "object_pages_failed": row.trouble.nr_object_failed,
        "huge_pages_possible": row.nr_possible,
        "huge_pages_before": row.nr_before,
        "huge_pages_after": row.nr_after,
        "percent": row.percent(),
    })
    .to_string()
}

fn main() -> ExitCode {
    let options = Options::parse();
    if !options.json {
        println!("{HEADER}");
    }
    let mut is_good = true;
    for nr_cpus in &options.cpus {
        for mix in &options.mix {
            let (nr_processes, nr_uses) = (options.processes, options.uses);
            let size = Size { nr_processes, nr_uses, ..Size::days(*nr_cpus as usize) };
            let row = days::run(options.seed, size, *mix, &mut |now| show(size, *mix, now));
            hide();
            match row {
                Ok(row) => {
                    println!("{}", if options.json { json(&row, options.seed) } else { line(&row) });
                    if let Some(what) = row.shortfall(size) {
                        eprintln!("{nr_cpus} CPUs, {}: {what}", mix.name);
                        is_good = false;
                    }
                    is_good &= options.least.is_none_or(|least| row.percent() >= least);
                }
                Err(what) => {
                    let (cpus, name, seed) = (nr_cpus, mix.name, options.seed);
                    eprintln!("{cpus} CPUs, {name}, seed {seed}: {what}");
                    return ExitCode::from(1);
                }
            }
        }
    }
    ExitCode::from(u8::from(!is_good))
}
