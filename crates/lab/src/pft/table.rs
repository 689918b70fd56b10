//! The tables: ours, with the columns of 2004 and more, and the table of 2004.

use super::history::OldRow;
use super::options::Options;
use super::stats::{Report, Row};
use crate::bench::{Columns, Frames, percent, short_gib, times};
use softfault::FaultLocking;
use std::fmt::Write;

const COLUMNS_2004: [&str; 8] = ["Gb", "Rep", "Threads", "User", "System", "Wall", "flt/cpu/s", "fault/wsec"];

impl Report {
    /// Our rows and Linux's, the yardsticks below them.
    pub fn ours(&self) -> String {
        let is_fresh = !self.options.frames.are_zero();
        let table = columns(is_fresh).table(self.rows.iter().filter(|row| !row.is_yardstick()));
        let mut text = format!("{table}\n\n");
        for row in self.rows.iter().filter(|row| row.is_yardstick()) {
            let (name, nr, spread) = (row.work.name(), row.nr_threads, percent(row.spread));
            let _ = writeln!(text, "{name}, {nr} thread(s): {:.1} ns a page, spread {spread}", row.ns_per_fault);
        }
        text.push_str(&among_ours(&self.rows));
        let _ = writeln!(text, "\n{}", remark(&self.options, &self.kernel));
        text
    }
}

fn columns(is_fresh: bool) -> Columns<'static, Row> {
    let mut columns = Columns::label("system", |row: &Row| format!("{} {}", row.system(), row.name()))
        .and_label("frames", |row| row.frames.to_string());
    let of_2004: [fn(&Row) -> String; 8] = [
        |row| short_gib(row.gib),
        |row| row.reps.to_string(),
        |row| row.nr_threads.to_string(),
        |row| format!("{:.3}", row.user_s),
        |row| format!("{:.3}", row.system_s),
        |row| format!("{:.3}", row.wall_s),
        |row| row.faults_per_cpu_s().map_or("-".into(), |rate| format!("{rate:.0}")),
        |row| format!("{:.0}", row.faults_per_wall_s()),
    ];
    for (head, cell) in COLUMNS_2004.into_iter().zip(of_2004) {
        columns = columns.number(head, cell);
    }
    columns
        .number("ns/fault", |row| format!("{:.1}", row.ns_per_fault))
        .number("spread", |row| percent(row.spread))
        .number_if(is_fresh, "x touch", |row| times(row.ratio_to_linux_touch))
        .number_if(is_fresh, "x populate", |row| times(row.ratio_to_linux_populate))
        .number_if(is_fresh, "/zero", |row| fraction(row.ratio_to_zeroing))
        .number_if(is_fresh, "/zero batch", |row| fraction(row.ratio_to_batched_zeroing))
}

/// How our fault-locking modes compare, and what a second CPU gives: faults/s over
/// faults/s, of one repetition each, the median.
fn among_ours(rows: &[Row]) -> String {
    let ours: Vec<&Row> = rows.iter().filter(|row| row.is_ours()).collect();
    let mut text = String::new();
    for row in ours.iter().filter(|row| row.work.is(FaultLocking::Lockfree)) {
        let others = ours.iter().filter(|other| {
            let is_other = (other.work != row.work) != (other.zeroing != row.zeroing);
            is_other && other.nr_threads == row.nr_threads
        });
        let list: Vec<String> =
            others.map(|other| format!("{:.2} times {}", row.times_as_fast_as(other), other.name())).collect();
        if !list.is_empty() {
            let _ = writeln!(text, "{}, {} thread(s): {}", row.name(), row.nr_threads, list.join(", "));
        }
    }
    for row in ours.iter().filter(|row| row.nr_threads > 1) {
        if let Some(alone) =
            ours.iter().find(|other| other.nr_threads == 1 && (other.work, other.zeroing) == (row.work, row.zeroing))
        {
            let faster = row.times_as_fast_as(alone);
            let _ = writeln!(text, "{}, {} threads: {faster:.2} times 1 thread", row.name(), row.nr_threads);
        }
    }
    text
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
    let label = |row: &OldRow| format!("{} CPUs, {}", row.machine_cpus, row.variant);
    let mut columns = Columns::label("2004 (16 KiB pages)", label);
    let cells: [fn(&OldRow) -> String; 8] = [
        |row| row.gib.to_string(),
        |row| row.reps.to_string(),
        |row| row.nr_threads.to_string(),
        |row| format!("{:.3}", row.user_s),
        |row| format!("{:.3}", row.system_s),
        |row| format!("{:.2}", row.wall_s),
        |row| format!("{:.0}", row.faults_per_cpu_s),
        |row| format!("{:.0}", row.faults_per_wall_s),
    ];
    for (head, cell) in COLUMNS_2004.into_iter().zip(cells) {
        columns = columns.number(head, cell);
    }
    columns.table(rows).to_string()
}

fn fraction(ratio: Option<f64>) -> String {
    ratio.map_or("-".into(), |r| format!("{r:.3}"))
}
