//! Percentiles, ratios, and how they are shown.

use super::calls::{Beside, CALLS, Sample};
use super::options::Options;
use crate::bench::{
    self, Better, Chart, Columns, Figure, Lines, Places, Sampled, Scale, Series, Whose, percent, times,
};
use serde::Serialize;

/// A call beside one kind of sleepers.
pub struct Row {
    beside: Beside,
    call: &'static str,
    /// Nanoseconds, over the repetitions.
    p50: Figure,
    p99: Figure,
    /// The p99 over that beside sleepers, within a repetition.
    ratio: Option<Figure>,
}

/// All that a run has found.
pub struct Report {
    sleepers: u16,
    ops: u32,
    reps: u32,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Keys<'a> {
    beside: &'a str,
    call: &'a str,
    sleepers: u16,
    ops: u32,
    reps: u32,
    p50_ns: f64,
    p99_ns: f64,
    spread: f64,
    ratio_p99: Option<f64>,
}

/// The value that so many in a hundred do not exceed.
fn percentile(times: &[u64], percent: usize) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1] as f64
}

impl Report {
    /// Computes the rows; `sampled` has those of [`Beside::BOTH`].
    pub fn new(options: &Options, sampled: &[Sampled<Beside, Sample>]) -> Report {
        let of = |which: usize, call: usize, percent: usize| -> Vec<f64> {
            sampled[which].samples.iter().map(|sample| percentile(&sample.0[call], percent)).collect()
        };
        let row = |(call, which): (usize, usize)| Row {
            beside: sampled[which].job,
            call: CALLS[call],
            p50: Figure::of(of(which, call, 50)),
            p99: Figure::of(of(which, call, 99)),
            ratio: (which == 0).then(|| Figure::of_ratios(&of(0, call, 99), &of(1, call, 99))),
        };
        let rows = (0..CALLS.len()).flat_map(|call| [(call, 0), (call, 1)]).map(row).collect();
        Report { sleepers: options.sleepers, ops: options.ops, reps: options.repeated.reps, rows }
    }
}

fn cell(figure: Figure) -> String {
    format!("{:.0} ({})", figure.median, percent(figure.spread))
}

impl bench::Report for Report {
    fn text(&self) -> String {
        let table = Columns::label("call", |row: &Row| row.call.into())
            .and_label("beside", |row| row.beside.name().into())
            .number("p50, ns", |row| cell(row.p50))
            .number("p99, ns", |row| cell(row.p99))
            .number("fills / sleepers", |row| times(row.ratio.map(|ratio| ratio.median)))
            .table(&self.rows);
        let Report { sleepers, ops, reps, .. } = self;
        format!(
            "{sleepers} threads asleep, {ops} rounds, {reps} repetitions (goal of the ratio: at most 1.2)\n\n{table}\n"
        )
    }

    fn json(&self, lines: &mut Lines) {
        for row in &self.rows {
            let keys = Keys {
                beside: row.beside.name(),
                call: row.call,
                sleepers: self.sleepers,
                ops: self.ops,
                reps: self.reps,
                p50_ns: row.p50.median,
                p99_ns: row.p99.median,
                spread: row.p99.spread,
                ratio_p99: row.ratio.map(|ratio| ratio.median),
            };
            lines.add(keys, row.p99.median, "ns");
        }
    }

    fn chart(&self) -> Chart {
        let series = |beside: Beside| {
            let rows = self.rows.iter().filter(move |row| row.beside == beside);
            let points = rows.enumerate().map(|(i, row)| (i as f64, row.p99.median));
            Series::new(beside.name(), Whose::Ours, points).faint(beside == Beside::Sleepers)
        };
        Chart {
            title: format!("{} threads asleep, median of {}", self.sleepers, self.reps),
            x: "call".into(),
            places: Places::Named(CALLS.map(String::from).to_vec()),
            y: "p99 of a call, nanoseconds".into(),
            scale: Scale::Log,
            better: Better::Less,
            series: Beside::BOTH.into_iter().map(series).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Report as _, typed};

    /// A fill costs 20 %, and the host is twice as slow in the second repetition.
    fn report() -> Report {
        let options: Options = typed("stuck-fills --reps 2");
        let sample = |ns: u64| Sample([(); 3].map(|()| (1..=200).map(|i| i * ns).collect()));
        let of = |job, ns| Sampled { job, samples: vec![sample(ns), sample(2 * ns)] };
        Report::new(&options, &[of(Beside::Fills, 12), of(Beside::Sleepers, 10)])
    }

    #[test]
    fn ratios_pair_what_belongs_to_one_repetition() {
        let report = report();
        assert_eq!(report.rows.len(), 6);
        assert_eq!((report.rows[1].p50.median, report.rows[1].p99.median), (1500.0, 2970.0));
        assert!((report.rows[0].ratio.unwrap().median - 1.2).abs() < 1e-9 && report.rows[1].ratio.is_none());
        let text = report.text().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("munmap sleepers 1500 (67%) 2970 (67%) -"), "{text}");
    }

    #[test]
    fn a_line_for_each_row_and_a_plot() {
        let mut lines = Lines::new("stuck-fills");
        report().json(&mut lines);
        let lines = lines.parsed();
        assert_eq!((lines.len(), Lines::keys(&lines[0]).len()), (6, 12));
        assert!(lines.iter().all(|line| Lines::keys(line) == Lines::keys(&lines[0])));
        assert_eq!((lines[5]["call"].as_str(), lines[5]["ratio_p99"].is_null()), (Some("munmap"), true));
        report().chart().assert_shows(&["p99 of a call", "fills", "sleepers", "munmap"]);
    }
}
