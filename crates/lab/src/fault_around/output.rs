//! JSON, one object per line, and the plot: nanoseconds a page over the order.

use super::history::OldRow;
use super::plan::System;
use super::reckon::{Report, Row};
use crate::bench::{self, Better, Chart, Lines, Mark, Places, Scale, Series, Whose, short_gib};
use serde::Serialize;

#[derive(Serialize)]
struct Keys<'a> {
    pattern: &'a str,
    system: &'a str,
    order: String,
    window: &'a str,
    threads: usize,
    gib: f64,
    folio_kib: u64,
    reps: u32,
    minor_faults: u64,
    major_faults: u64,
    wall_s: f64,
    resident_pass_s: f64,
    spread: f64,
    pages_mapped: u64,
    pages_touched: u64,
    ns_per_page: Option<f64>,
    ratio_to_linux: Option<f64>,
    faults_over_order_0: Option<f64>,
    faults_over_order_9: Option<f64>,
    time_over_order_0: Option<f64>,
    faults_2014: Option<u64>,
    seconds_2014: Option<f64>,
}

impl bench::Report for Report {
    fn text(&self) -> String {
        self.tables()
    }

    fn json(&self, lines: &mut Lines) {
        self.rows.iter().for_each(|row| lines.add(self.keys(row), row.wall_s.median, "s"));
    }

    fn chart(&self) -> Chart {
        let mut words: Vec<String> = (0..=9).map(|order| order.to_string()).collect();
        words.push("adaptive".into());
        Chart {
            title: format!("{}, {} GiB, median of {}", self.pattern.name(), short_gib(self.gib), self.reps),
            x: "order of the window".into(),
            places: Places::Named(words),
            y: "nanoseconds a page that a thread touches, loads included".into(),
            scale: Scale::Log,
            better: Better::Less,
            series: self.series(),
        }
    }
}

impl Report {
    fn keys<'a>(&'a self, row: &Row) -> Keys<'a> {
        Keys {
            pattern: self.pattern.name(),
            system: row.job.system.name(),
            order: row.job.window.name(),
            window: row.job.system.window(),
            threads: row.job.nr_threads,
            gib: self.gib,
            folio_kib: self.folio_kib,
            reps: self.reps,
            minor_faults: row.minor_faults,
            major_faults: row.major_faults,
            wall_s: row.wall_s.median,
            resident_pass_s: row.resident_s,
            spread: row.wall_s.spread,
            pages_mapped: row.pages_mapped,
            pages_touched: row.pages_touched,
            ns_per_page: row.ns_per_page,
            ratio_to_linux: row.ratio_to_linux,
            faults_over_order_0: row.faults_over_order_0,
            faults_over_order_9: row.faults_over_order_9,
            time_over_order_0: row.time_over_order_0,
            faults_2014: row.in_2014.map(|old| old.minor_faults),
            // A slip of the source is no time.
            seconds_2014: row.in_2014.filter(|old| !old.is_suspect()).map(|old| old.seconds),
        }
    }

    /// A line for each system and number of threads, and those of 2014; adaptive is a dot at the end.
    fn series(&self) -> Vec<Series> {
        let mut all = Vec::new();
        for (tone, nr_threads) in self.thread_counts().into_iter().enumerate() {
            let ns = |row: &Row| row.wall_s.median * 1e9 * nr_threads as f64 / row.pages_touched as f64;
            let is_meant = |row: &&Row| row.job.nr_threads == nr_threads && row.job.system.is_timed();
            let rows = || self.rows.iter().filter(is_meant);
            for system in [System::Softfault.name(), System::Linux.name()] {
                let of = || rows().filter(|row| row.job.system.name() == system);
                let fixed = of().filter_map(|row| Some((f64::from(row.job.window.order()?.get()), ns(row))));
                let name = format!("{system}, {nr_threads} thread(s)");
                let fixed: Vec<(f64, f64)> = fixed.collect();
                if !fixed.is_empty() {
                    all.push(Series::new(name, Whose::system(system), fixed).tone(tone));
                }
                if let Some(row) = of().find(|row| row.job.window.order().is_none()) {
                    let name = format!("{system}, {nr_threads}, adaptive");
                    all.push(Series::new(name, Whose::system(system), [(10.0, ns(row))]).mark(Mark::Level).tone(tone));
                }
            }
        }
        all.into_iter().chain(self.series_2014()).collect()
    }

    fn series_2014(&self) -> impl Iterator<Item = Series> + '_ {
        let mut threads: Vec<usize> = self.old.iter().map(|old| old.nr_threads).collect();
        threads.dedup();
        threads.into_iter().map(|nr_threads| {
            let is_meant = |old: &&OldRow| old.nr_threads == nr_threads && !old.is_suspect();
            let points = self.old.iter().filter(is_meant).map(|old| (f64::from(old.order), old.ns_per_page()));
            Series::new(format!("2014, {nr_threads} thread(s)"), Whose::Historic, points)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::reckon::tests::report;
    use crate::bench::{Lines, Report};

    #[test]
    fn a_line_for_each_row_with_the_same_keys() {
        let mut lines = Lines::new("fault-around");
        report().json(&mut lines);
        let lines = lines.parsed();
        assert_eq!(lines.len(), 5 + 3);
        assert!(lines.iter().all(|line| Lines::keys(line) == Lines::keys(&lines[0])));
        assert_eq!(Lines::keys(&lines[0]).len(), 25);
        let one = lines.iter().find(|line| line["order"] == "1").unwrap();
        assert_eq!((one["faults_2014"].as_u64(), one["seconds_2014"].is_null()), (Some(65_681), true));
        assert_eq!((one["system"].as_str(), one["threads"].as_u64()), (Some("softfault"), Some(8)));
    }

    #[test]
    fn axes_are_labelled_and_every_series_is_named() {
        report().chart().assert_shows(&[
            "order of the window",
            "nanoseconds a page",
            "softfault, 8 thread(s)",
            "softfault, 8, adaptive",
            "linux, 8 thread(s)",
            "2014, 120 thread(s)",
        ]);
        let suspect = |series: &crate::bench::Series| series.name() == "2014, 8 thread(s)";
        assert_eq!(report().series().into_iter().filter(suspect).count(), 1);
    }
}
