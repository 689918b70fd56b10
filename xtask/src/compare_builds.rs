//! `cargo xtask compare-builds REV`: times this tree's build of the laboratory against that of another commit.
//!
//! A run of one build is followed at once by one of the other, and the pairs begin with either in turn: the host's drift
//! then affects both builds. The result is the median of the ratios within pairs. A ratio above 1 means that this tree
//! is slower.
//!
//! | file | content |
//! | --- | --- |
//! | `builds.rs` | the two programs, and the worktree that one of them is built in |
//! | `paired.rs` | medians, and the interval of a median |

mod builds;
mod paired;

use crate::shell;
use builds::Builds;
use paired::Paired;
use serde::Serialize;
use std::io::IsTerminal;
use std::path::Path;

/// The options of `cargo xtask compare-builds`.
#[derive(clap::Args)]
pub struct Options {
    /// The commit to compare with: a name that git knows
    rev: String,
    /// Pairs of runs of each workload
    #[arg(long, value_name = "N", default_value_t = 41, value_parser = clap::value_parser!(u64).range(paired::FEWEST..=1000))]
    runs: u64,
    /// Print one JSON object per workload instead of a table
    #[arg(long)]
    json: bool,
    /// Fail if the median ratio of a workload is more than this above 1
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    within: Option<f64>,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().map_err(|error| error.to_string())?;
    if number.is_finite() && number >= 0.0 { Ok(number) } else { Err("should be a number from 0".into()) }
}

/// A short experiment, and its figure.
struct Workload {
    name: &'static str,
    arguments: &'static str,
    /// Keys of the row: the figure is the first, divided by the second if there is one.
    figure: &'static str,
    per: Option<&'static str>,
    unit: &'static str,
}

/// Each run takes less than a second, most of which makes the machine. Fresh frames are zeroed by plain stores, because the
/// calibration may choose another way in each run. In the sparse pattern almost all of the time is
/// that of faults; in the others it is that of loads.
const WORKLOADS: [Workload; 3] = [
    Workload {
        name: "pft zeroed",
        arguments: "pft --gib 0.125 --reps 5 --threads 1 --frames zeroed --fault-locking lockfree --against none",
        figure: "ns_per_fault",
        per: None,
        unit: "ns/fault",
    },
    Workload {
        name: "pft fresh",
        arguments: "pft --gib 0.125 --reps 5 --threads 1 --frames fresh --zeroing stores --fault-locking lockfree --against none",
        figure: "ns_per_fault",
        per: None,
        unit: "ns/fault",
    },
    Workload {
        name: "fault-around",
        arguments: "fault-around --size 0.125 --reps 3 --threads 1 --orders 4 --pattern sparse --against none",
        figure: "wall_s",
        per: Some("pages_touched"),
        unit: "s/page",
    },
];

/// A row of the result.
#[derive(Serialize)]
struct Row<'a> {
    workload: &'a str,
    unit: &'a str,
    rev: &'a str,
    #[serde(flatten)]
    paired: Paired,
}

/// Builds both, runs them in turn, and prints a row per workload.
pub fn run(options: &Options) -> Result<(), String> {
    let builds = Builds::of(&options.rev)?;
    let rows = WORKLOADS.iter().map(|workload| {
        let pairs = pairs(workload, &builds, options.runs)?;
        Ok(Row { workload: workload.name, unit: workload.unit, rev: &builds.rev, paired: Paired::of(&pairs) })
    });
    let rows: Vec<Row<'_>> = rows.collect::<Result<_, String>>()?;
    print(&rows, options.json)?;
    options.within.map_or(Ok(()), |most| judge(&rows, most))
}

/// Figures of this tree and of the other build, pair by pair. The first pair warms caches and is not counted.
fn pairs(workload: &Workload, builds: &Builds, nr_runs: u64) -> Result<Vec<(f64, f64)>, String> {
    let mut pairs = Vec::new();
    for run in 0..=nr_runs {
        tell(workload, run, nr_runs);
        let pair = if run % 2 == 0 {
            let here = workload.run(&builds.here)?;
            (here, workload.run(&builds.other)?)
        } else {
            let other = workload.run(&builds.other)?;
            (workload.run(&builds.here)?, other)
        };
        pairs.push(pair);
    }
    Ok(pairs.split_off(1))
}

/// Progress, on standard error: in one line of a terminal, else every tenth run.
fn tell(workload: &Workload, run: u64, nr_runs: u64) {
    let text = format!("compare-builds: {}, pair {run} of {nr_runs}", workload.name);
    match std::io::stderr().is_terminal() {
        true if run == nr_runs => eprintln!("\r{text}"),
        true => eprint!("\r{text}"),
        false if run.is_multiple_of(10) => eprintln!("{text}"),
        false => {}
    }
}

impl Workload {
    fn run(&self, program: &Path) -> Result<f64, String> {
        let line = shell::Line::new(&program.to_string_lossy(), &format!("{} --json", self.arguments));
        self.figure(&shell::output_of(&line)?)
    }

    /// The figure of our system's only row.
    fn figure(&self, text: &str) -> Result<f64, String> {
        let rows = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let own: Vec<serde_json::Value> = rows.filter(|row| row["system"] == "softfault").collect();
        let [row] = &own[..] else {
            return Err(format!("{}: {} rows of softfault, should be one", self.arguments, own.len()));
        };
        let number = |key: &str| {
            let number = row[key].as_f64().filter(|number| *number > 0.0);
            number.ok_or_else(|| format!("{}: `{key}` is {}, should be a positive number", self.arguments, row[key]))
        };
        Ok(number(self.figure)? / self.per.map_or(Ok(1.0), number)?)
    }
}

fn print(rows: &[Row<'_>], is_json: bool) -> Result<(), String> {
    if is_json {
        for row in rows {
            println!("{}", serde_json::to_string(row).map_err(|error| error.to_string())?);
        }
        return Ok(());
    }
    println!(
        "{:13} {:>8} {:>5} {:>11} {:>11} {:>7}  95 % of the ratio",
        "workload", "unit", "pairs", "REV", "here", "ratio"
    );
    for Row { workload, unit, paired, .. } in rows {
        let Paired { pairs, here, rev_median, ratio, low, high } = paired;
        println!(
            "{workload:13} {unit:>8} {pairs:5} {rev_median:11.4e} {here:11.4e} {ratio:7.4}  {low:.4} to {high:.4}"
        );
    }
    Ok(())
}

/// An error that names the workloads whose ratio is too large.
fn judge(rows: &[Row<'_>], most_percent: f64) -> Result<(), String> {
    let slower = rows.iter().filter(|row| row.paired.ratio > 1.0 + most_percent / 100.0);
    let named: Vec<String> =
        slower.map(|row| format!("{} by {:.2} %", row.workload, (row.paired.ratio - 1.0) * 100.0)).collect();
    if named.is_empty() { Ok(()) } else { Err(format!("slower by more than {most_percent} %: {}", named.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_read_from_the_only_row_of_ours() {
        let around = &WORKLOADS[2];
        let own = r#"{"system":"softfault","wall_s":3.0,"pages_touched":12}"#;
        let linux = own.replace("softfault", "linux");
        assert_eq!(around.figure(&format!("{linux}\n{own}\n")), Ok(0.25));
        let wrong = |text: &str| around.figure(text).unwrap_err();
        assert!(wrong(&linux).contains("0 rows of softfault"));
        assert!(wrong(&format!("{own}\n{own}")).contains("2 rows of softfault"));
        assert!(wrong(&own.replace("3.0", "null")).contains("`wall_s` is null"));
        assert!(wrong(&own.replace("12", "0")).contains("`pages_touched` is 0"));
    }

    #[test]
    fn only_a_slower_median_fails() {
        let row = |here: f64| {
            let pairs = [(here, 100.0); 9];
            Row { workload: "w", unit: "ns", rev: "r", paired: Paired::of(&pairs) }
        };
        assert_eq!(judge(&[row(101.9), row(50.0)], 2.0), Ok(()));
        let why = judge(&[row(103.0), row(100.0)], 2.0).unwrap_err();
        assert_eq!(why, "slower by more than 2 %: w by 3.00 %");
    }

    #[test]
    fn percents_are_numbers_from_0() {
        assert_eq!(percent("2.5"), Ok(2.5));
        for bad in ["-1", "nan", "inf", "x"] {
            assert!(percent(bad).is_err(), "{bad}");
        }
    }
}
