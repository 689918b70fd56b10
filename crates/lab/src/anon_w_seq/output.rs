//! The table, the figures beside those of 2017, and JSON.

use super::options::Options;
use super::rows::{Row, Work};
use crate::bench::plain_table;
use crate::clearing::{cache, history};
use serde::Serialize;
use softfault::clear::ClearOrder;
use std::fmt::Write;

/// The table and what it means.
pub fn text(options: &Options, nr_processes: usize, rows: &[Row], kernel: &str) -> String {
    let with_linux = rows.iter().any(|row| row.work == Work::Linux);
    let mut head = vec!["system", "GB/s", "spread", "x forward"];
    if with_linux {
        head.push("x linux");
    }
    let mut table = plain_table(&head, 1);
    for row in rows {
        let mut cells = vec![
            format!("{} {}", system(row), if row.work == Work::Linux { "huge pages" } else { row.work.name() }),
            format!("{:.2}", row.bytes_per_s / 1e9),
            format!("{:.0}%", row.spread * 100.0),
            times(row.ratio_to_forward),
        ];
        if with_linux {
            cells.push(times(row.ratio_to_linux));
        }
        table.add_row(cells);
    }
    let mut text = format!(
        "{nr_processes} processes, each clears and then writes {} MiB, 2 MiB at a time\n\n{table}\n\n",
        options.mib
    );
    for how in [ClearOrder::Converge, ClearOrder::Runs, ClearOrder::Hybrid] {
        let row = rows.iter().find(|row| row.work == Work::Ours(how));
        if let Some(ratio) = row.and_then(|row| row.ratio_to_forward) {
            let then = if how == ClearOrder::Converge { of_2017() } else { String::new() };
            let _ = writeln!(text, "{} over forward: {:+.1}%{then}", how.name(), (ratio - 1.0) * 100.0);
        }
    }
    text.push_str(&modelled(rows));
    if with_linux {
        let _ = writeln!(text, "linux: fresh huge memory on Linux {kernel}, trap and all; ours have no trap.");
    }
    text.truncate(text.trim_end().len());
    text
}

/// What the gain of 2017 rested on, whatever this machine's caches are.
fn modelled(rows: &[Row]) -> String {
    let found = |row: &Row| Some(format!("{} {:.0}%", row.work.name(), row.modelled_hits()? * 100.0));
    format!(
        "Lines that the writes find in a modelled cache of {:.2} MiB for each process: {}.\n",
        cache::CACHE_BYTES as f64 / f64::from(1 << 20),
        rows.iter().filter_map(found).collect::<Vec<_>>().join(", ")
    )
}

fn of_2017() -> String {
    format!(
        "   (2017, {} processes: {:+.1}%, time in the program {:+.1}%)",
        history::PROCESSES_2017,
        history::THROUGHPUT_2017_PERCENT,
        history::USER_TIME_2017_PERCENT
    )
}

fn system(row: &Row) -> &'static str {
    if row.work == Work::Linux { "linux" } else { "softfault" }
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or("-".into(), |r| format!("{r:.2}"))
}

/// The keys, in their order; renaming a field here is a change of the format.
#[derive(Serialize)]
struct Line<'a> {
    experiment: &'a str,
    system: &'a str,
    order: &'a str,
    processes: usize,
    threads: u32,
    mib: u64,
    reps: u32,
    ratio_to_forward: Option<f64>,
    ratio_to_linux: Option<f64>,
    modelled_hits: Option<f64>,
    value: f64,
    unit: &'a str,
    spread: f64,
}

/// An object for each row; `threads` is that of each process.
pub fn print_json(options: &Options, nr_processes: usize, rows: &[Row]) {
    for row in rows {
        let line = Line {
            experiment: "anon-w-seq",
            system: system(row),
            order: row.work.name(),
            processes: nr_processes,
            threads: 1,
            mib: options.mib,
            reps: options.reps,
            ratio_to_forward: row.ratio_to_forward,
            ratio_to_linux: row.ratio_to_linux,
            modelled_hits: row.modelled_hits(),
            value: row.bytes_per_s / 1e9,
            unit: "GB/s",
            spread: row.spread,
        };
        println!("{}", serde_json::to_string(&line).expect("a flat struct of numbers and strings"));
    }
}
