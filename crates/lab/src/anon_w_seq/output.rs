//! The table, the comparison with 2017, JSON and the plot.

use super::rows::{Report, Row};
use super::work::Work;
use crate::bench::{self, Better, Chart, Columns, Lines, Mark, Places, Scale, Series, Whose, percent, times};
use crate::clearing::{cache, history};
use serde::Serialize;
use softfault::clear::ClearOrder;
use std::fmt::Write;

#[derive(Serialize)]
struct Keys<'a> {
    system: &'a str,
    order: &'a str,
    processes: usize,
    /// Of each process.
    threads: u32,
    mib: u64,
    reps: u32,
    ratio_to_forward: Option<f64>,
    ratio_to_linux: Option<f64>,
    modelled_hits: Option<f64>,
    spread: f64,
}

impl bench::Report for Report {
    fn text(&self) -> String {
        let with_linux = self.rows.iter().any(|row| row.work == Work::Linux);
        let columns = Columns::label("system", |row: &Row| {
            let what = if row.work == Work::Linux { "huge pages" } else { row.work.name() };
            format!("{} {what}", row.work.system())
        })
        .number("GB/s", |row| format!("{:.2}", row.gb_per_s()))
        .number("spread", |row| percent(row.bytes_per_s.spread))
        .number("x forward", |row| times(row.ratio_to_forward))
        .number_if(with_linux, "x linux", |row| times(row.ratio_to_linux));
        let mut text = format!(
            "{} processes, each clears and then writes {} MiB, 2 MiB at a time\n\n{}\n\n",
            self.nr_processes,
            self.mib,
            columns.table(&self.rows)
        );
        text.push_str(&self.over_forward());
        text.push_str(&self.modelled());
        if with_linux {
            let kernel = &self.kernel;
            let _ = writeln!(text, "linux: fresh huge memory on Linux {kernel}, trap and all; ours have no trap.");
        }
        text
    }

    fn json(&self, lines: &mut Lines) {
        for row in &self.rows {
            let keys = Keys {
                system: row.work.system(),
                order: row.work.name(),
                processes: self.nr_processes,
                threads: 1,
                mib: self.mib,
                reps: self.reps,
                ratio_to_forward: row.ratio_to_forward,
                ratio_to_linux: row.ratio_to_linux,
                modelled_hits: row.modelled_hits(),
                spread: row.bytes_per_s.spread,
            };
            lines.add(keys, row.gb_per_s(), "GB/s");
        }
    }

    fn chart(&self) -> Chart {
        let bar = |(i, row): (usize, &Row)| {
            let whose = Whose::system(row.work.system());
            Series::new(row.work.name(), whose, [(i as f64, row.gb_per_s())]).mark(Mark::Bars)
        };
        Chart {
            title: format!("{} processes write {} MiB each", self.nr_processes, self.mib),
            x: "order of clearing".into(),
            places: Places::Named(self.rows.iter().map(|row| row.work.name().into()).collect()),
            y: "GB written per second, all processes".into(),
            scale: Scale::Even,
            better: Better::More,
            series: self.rows.iter().enumerate().map(bar).collect(),
        }
    }
}

impl Report {
    fn over_forward(&self) -> String {
        let mut text = String::new();
        for how in [ClearOrder::Converge, ClearOrder::Runs, ClearOrder::Hybrid] {
            let row = self.rows.iter().find(|row| row.work == Work::Ours(how));
            if let Some(ratio) = row.and_then(|row| row.ratio_to_forward) {
                let then = if how == ClearOrder::Converge { of_2017() } else { String::new() };
                let _ = writeln!(text, "{} over forward: {:+.1}%{then}", how.name(), (ratio - 1.0) * 100.0);
            }
        }
        text
    }

    /// Hits in the cache of 2017, which the gain of 2017 rested on, whatever this machine's caches are.
    fn modelled(&self) -> String {
        let found = |row: &Row| Some(format!("{} {}", row.work.name(), percent(row.modelled_hits()?)));
        format!(
            "Lines that the writes find in a modelled cache of {:.2} MiB for each process: {}.\n",
            cache::CACHE_BYTES as f64 / f64::from(1 << 20),
            self.rows.iter().filter_map(found).collect::<Vec<_>>().join(", ")
        )
    }
}

fn of_2017() -> String {
    format!(
        "   (2017, {} processes: {:+.1}%, time in the program {:+.1}%)",
        history::PROCESSES_2017,
        history::THROUGHPUT_2017_PERCENT,
        history::USER_TIME_2017_PERCENT
    )
}

#[cfg(test)]
mod tests {
    use super::super::rows::tests::report;
    use crate::bench::Report;

    #[test]
    fn every_bar_is_named_and_labelled() {
        let wanted =
            ["3 processes write 8 MiB", "forward", "converge", "linux", "10.00", "GB written", "more is better"];
        report().chart().assert_shows(&wanted);
    }
}
