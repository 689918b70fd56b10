//! The tables: ours with the columns of 2004 and some more, and that of 2004.

use super::history::OldRow;
use super::options::{Chosen, Options};
use super::stats::Row;
use crate::bench::{Frames, plain_table};
use softfault::Discipline;
use std::fmt::Write;

const COLUMNS_2004: [&str; 8] = ["Gb", "Rep", "Threads", "User", "System", "Wall", "flt/cpu/s", "fault/wsec"];

/// Our rows and Linux's, the yardsticks below them.
pub fn ours(options: &Options, rows: &[Row], kernel: &str) -> String {
    let fresh = !options.frames.are_zero();
    let mut head = vec!["system", "frames"];
    head.extend(COLUMNS_2004);
    head.extend(["ns/fault", "spread"]);
    if fresh {
        head.extend(["x touch", "x populate", "/zero", "/zero batch"]);
    }
    let mut table = plain_table(&head, 2);
    for row in rows.iter().filter(|row| !row.is_yardstick()) {
        let mut cells = vec![label(row), row.frames.to_string()];
        cells.extend(cells_2004(row));
        cells.extend([format!("{:.1}", row.ns_per_fault), format!("{:.0}%", row.spread * 100.0)]);
        if fresh {
            cells.extend([times(row.ratio_to_linux_touch), times(row.ratio_to_linux_populate)]);
            cells.extend([fraction(row.ratio_to_zeroing), fraction(row.ratio_to_batched_zeroing)]);
        }
        table.add_row(cells);
    }
    let mut text = format!("{table}\n\n");
    for row in rows.iter().filter(|row| row.is_yardstick()) {
        let (name, nr) = (row.work.name(), row.nr_threads);
        let _ = writeln!(
            text,
            "{name}, {nr} thread(s): {:.1} ns a page, spread {:.0}%",
            row.ns_per_fault,
            row.spread * 100.0
        );
    }
    text.push_str(&among_ours(rows));
    let _ = writeln!(text, "\n{}", remark(options, kernel));
    text
}

/// How our disciplines compare, and what a second CPU gives: faults/s over
/// faults/s, of one repetition each, the median.
fn among_ours(rows: &[Row]) -> String {
    let ours: Vec<&Row> = rows.iter().filter(|row| row.is_ours()).collect();
    let mut text = String::new();
    for row in ours.iter().filter(|row| row.work.is(Discipline::Lockfree)) {
        let others = ours.iter().filter(|other| {
            let is_other = (other.work != row.work) != (other.zeroing != row.zeroing);
            is_other && other.nr_threads == row.nr_threads
        });
        let list: Vec<String> =
            others.map(|other| format!("{:.2} times {}", row.times_as_fast_as(other), name(other))).collect();
        if !list.is_empty() {
            let _ = writeln!(text, "{}, {} thread(s): {}", name(row), row.nr_threads, list.join(", "));
        }
    }
    for row in ours.iter().filter(|row| row.nr_threads > 1) {
        if let Some(alone) =
            ours.iter().find(|other| other.nr_threads == 1 && (other.work, other.zeroing) == (row.work, row.zeroing))
        {
            let times = row.times_as_fast_as(alone);
            let _ = writeln!(text, "{}, {} threads: {times:.2} times 1 thread", name(row), row.nr_threads);
        }
    }
    text
}

fn label(row: &Row) -> String {
    format!("{} {}", if row.is_ours() { "softfault" } else { "linux" }, name(row))
}

/// With the way of zeroing, if somebody has chosen one.
pub fn name(row: &Row) -> String {
    match row.zeroing {
        Chosen::Auto => row.work.name().into(),
        Chosen::Forced(way) => format!("{} ({})", row.work.name(), way.name()),
    }
}

fn cells_2004(row: &Row) -> [String; 8] {
    [
        short(row.gib),
        row.reps.to_string(),
        row.nr_threads.to_string(),
        format!("{:.3}", row.user_s),
        format!("{:.3}", row.system_s),
        format!("{:.3}", row.wall_s),
        row.faults_per_cpu_s().map_or("-".into(), |rate| format!("{rate:.0}")),
        format!("{:.0}", row.faults_per_wall_s()),
    ]
}

fn remark(options: &Options, kernel: &str) -> String {
    match options.frames {
        Frames::Fresh => format!(
            "Pages of {}; written to each: {}. Ours are calls of handle_fault, without a trap, and the store; touch is a \
             real store on Linux {kernel}, trap and all;\npopulate is MADV_POPULATE_WRITE, without a trap, and the \
             stores. Ratios are medians of pairs within a repetition.",
            options.pages.size(),
            options.written().name()
        ),
        Frames::Zeroed | Frames::Aged => format!(
            "Pages of {}; written to each: {}. The frames were zero before the clock started: this is the cost of the software \
             alone,\nand not to be compared with Linux, which zeroes its own.",
            options.pages.size(),
            options.written().name()
        ),
    }
}

/// The rows of 2004, in the same columns.
pub fn of_2004(rows: &[OldRow]) -> String {
    let mut head = vec!["2004 (16 KiB pages)"];
    head.extend(COLUMNS_2004);
    let mut table = plain_table(&head, 1);
    for row in rows {
        table.add_row([
            format!("{} CPUs, {}", row.machine_cpus, row.variant),
            row.gib.to_string(),
            row.reps.to_string(),
            row.nr_threads.to_string(),
            format!("{:.3}", row.user_s),
            format!("{:.3}", row.system_s),
            format!("{:.2}", row.wall_s),
            format!("{:.0}", row.faults_per_cpu_s),
            format!("{:.0}", row.faults_per_wall_s),
        ]);
    }
    format!("{table}\n")
}

fn short(gib: f64) -> String {
    let text = format!("{gib:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or("-".into(), |r| format!("{r:.2}"))
}

fn fraction(ratio: Option<f64>) -> String {
    ratio.map_or("-".into(), |r| format!("{r:.3}"))
}
