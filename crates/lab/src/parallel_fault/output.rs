//! JSON and plot.

use super::history::{GIB_2013, OldRow};
use super::options::Shape;
use super::plan::System;
use super::reckon::{BesideLinux, Report as Rows, Row};
use crate::bench::{Better, Chart, Lines, Mark, Places, Report, Scale, Series, Whose};
use serde::Serialize;

/// The keys of a line, in the order of the output.
#[derive(Serialize)]
struct Keys<'a> {
    system: &'a str,
    discipline: &'a str,
    threads: Option<usize>,
    seconds: Option<f64>,
    contentions: Option<u64>,
    acquisitions: Option<u64>,
    wait_us: Option<f64>,
    shape: &'a str,
    page_kib: u64,
    size_kib: u64,
    skip_kib: u64,
    mutexes: Option<u64>,
    reps: u32,
    spread: Option<f64>,
    over_1_thread: Option<f64>,
    over_clear: Option<f64>,
    over_own_clear: Option<f64>,
    ratio_to_linux: Option<f64>,
    ratio_to_linux_spread: Option<f64>,
    ratio_of_clears: Option<f64>,
    ratio_of_clears_spread: Option<f64>,
    quotient: Option<f64>,
    quotient_spread: Option<f64>,
    way: Option<&'a str>,
    why: Option<&'a str>,
}

impl Report for Rows {
    fn text(&self) -> String {
        self.tables()
    }

    fn json(&self, lines: &mut Lines) {
        self.rows.iter().for_each(|row| lines.add(self.keys(row), row.seconds.median, "s"));
        if let Some(why) = &self.why_no_linux {
            let keys = Keys { system: System::Linux.name(), discipline: System::Linux.discipline(), ..self.no_keys() };
            lines.add(Keys { why: Some(why), ..keys }, None::<f64>, "s");
        }
        self.old.iter().for_each(|old| lines.add(self.keys_of_old(old), old.seconds, "s"));
    }

    fn chart(&self) -> Chart {
        let mut words: Vec<String> = Vec::new();
        for row in &self.rows {
            let word = word_of(row.job.system);
            if !words.contains(&word) {
                words.push(word);
            }
        }
        let is_linear = self.shape == Shape::Linear;
        Chart {
            title: format!(
                "{}, {} pages of {} KiB, median of {}",
                self.shape.name(),
                self.nr_pages,
                self.page_bytes >> 10,
                self.reps
            ),
            x: "how faults exclude each other".into(),
            series: self.series(&words),
            places: Places::Named(words),
            y: if is_linear { "seconds a GiB".into() } else { "seconds".into() },
            scale: Scale::Log,
            better: Better::Less,
        }
    }
}

fn word_of(system: System) -> String {
    match system {
        System::Softfault(locking) => locking.name().into(),
        System::Linux | System::LinuxClear | System::WarmClear | System::Clear => system.name().into(),
    }
}

impl Rows {
    fn no_keys(&self) -> Keys<'_> {
        Keys {
            system: "",
            discipline: "",
            threads: None,
            seconds: None,
            contentions: None,
            acquisitions: None,
            wait_us: None,
            shape: self.shape.name(),
            page_kib: self.page_bytes >> 10,
            size_kib: self.nr_pages * (self.page_bytes >> 10),
            skip_kib: self.skip_bytes >> 10,
            mutexes: None,
            reps: self.reps,
            spread: None,
            over_1_thread: None,
            over_clear: None,
            over_own_clear: None,
            ratio_to_linux: None,
            ratio_to_linux_spread: None,
            ratio_of_clears: None,
            ratio_of_clears_spread: None,
            quotient: None,
            quotient_spread: None,
            way: None,
            why: None,
        }
    }

    fn keys<'a>(&'a self, row: &'a Row) -> Keys<'a> {
        let locks = row.locks.as_ref();
        let BesideLinux { faults, clears, quotient } = row.beside_linux;
        Keys {
            system: row.job.system.name(),
            discipline: row.job.system.discipline(),
            threads: Some(row.job.nr_threads),
            seconds: Some(row.seconds.median),
            contentions: locks.map(|locks| locks.contentions),
            acquisitions: locks.map(|locks| locks.acquisitions),
            wait_us: locks.map(|locks| locks.wait_us),
            mutexes: locks.map(|locks| locks.mutexes),
            spread: Some(row.seconds.spread),
            over_1_thread: row.over_1_thread,
            over_clear: row.over_clear,
            over_own_clear: row.over_own_clear,
            ratio_to_linux: faults.map(|figure| figure.median),
            ratio_to_linux_spread: faults.map(|figure| figure.spread),
            ratio_of_clears: clears.map(|figure| figure.median),
            ratio_of_clears_spread: clears.map(|figure| figure.spread),
            quotient: quotient.map(|figure| figure.median),
            quotient_spread: quotient.map(|figure| figure.spread),
            way: row.way.as_deref(),
            ..self.no_keys()
        }
    }

    fn keys_of_old(&self, old: &OldRow) -> Keys<'_> {
        let is_linear = self.shape == Shape::Linear;
        let (page_kib, size_kib) = if is_linear { (16 << 10, (GIB_2013 as u64) << 20) } else { (16 << 10, 3 << 19) };
        Keys {
            system: "linux-2013",
            discipline: old.discipline.name(),
            threads: old.nr_threads,
            seconds: old.seconds,
            contentions: old.contentions,
            acquisitions: old.acquisitions,
            wait_us: old.wait_us,
            page_kib,
            size_kib,
            skip_kib: page_kib,
            reps: 1,
            ..self.no_keys()
        }
    }

    /// For each number of threads a dot over each discipline, and those of 2013.
    fn series(&self, words: &[String]) -> Vec<Series> {
        let is_linear = self.shape == Shape::Linear;
        let place = |word: &str| words.iter().position(|of| of == word).map(|at| at as f64);
        let scale = if is_linear { self.gib() } else { 1.0 };
        let mut counts: Vec<usize> = self.rows.iter().map(|row| row.job.nr_threads).collect();
        counts.sort_unstable();
        counts.dedup();
        let mut all = Vec::new();
        for (tone, nr_threads) in counts.into_iter().enumerate() {
            let of = self.rows.iter().filter(|row| row.job.nr_threads == nr_threads);
            let points = of.filter_map(|row| Some((place(&word_of(row.job.system))?, row.seconds.median / scale)));
            all.push(Series::new(format!("{nr_threads} thread(s)"), Whose::Ours, points).mark(Mark::Dots).tone(tone));
        }
        for old in self.old.iter().filter(|_| is_linear) {
            let (Some(nr), Some(seconds), Some(at)) = (old.nr_threads, old.seconds, place(old.discipline.name()))
            else {
                continue;
            };
            let name = format!("2013, {}, {nr} thread(s)", old.discipline.name());
            all.push(Series::new(name, Whose::Historic, [(at, seconds / GIB_2013)]).mark(Mark::Dots));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::reckon::tests::report;
    use crate::bench::{Lines, Report};

    #[test]
    fn a_line_for_each_row_with_the_same_keys() {
        for (shape, nr_old) in [("linear", 3), ("database", 2)] {
            let mut lines = Lines::new("parallel-fault");
            let mut report = report(shape);
            report.why_no_linux = Some("no root".into());
            report.json(&mut lines);
            let lines = lines.parsed();
            assert_eq!(lines.len(), 2 * 7 + 1 + nr_old);
            assert!(lines.iter().all(|line| Lines::keys(line) == Lines::keys(&lines[0])));
            let of = |discipline: &str, threads| {
                lines.iter().find(|line| line["discipline"] == discipline && line["threads"] == threads).unwrap()
            };
            let table = of("table", 2);
            assert_eq!((table["system"].as_str(), table["seconds"].as_f64()), (Some("softfault"), Some(0.2)));
            assert_eq!((table["acquisitions"].as_u64(), table["contentions"].as_u64()), (Some(8), Some(2)));
            assert_eq!(table["way"], "hybrid, streaming");
            let clear = lines.iter().find(|line| line["system"] == "clear" && line["threads"] == 2).unwrap();
            assert_eq!(clear["way"], "hybrid, streaming behind vector");
            assert_eq!((table["ratio_to_linux"].as_f64(), table["ratio_of_clears"].as_f64()), (Some(2.0), Some(2.0)));
            assert_eq!((table["quotient"].as_f64(), table["quotient_spread"].as_f64()), (Some(1.0), Some(0.0)));
            assert_eq!((table["wait_us"].as_f64(), table["value"].as_f64()), (Some(1500.0), Some(0.2)));
            assert!(of("lockfree", 2)["acquisitions"].is_null());
            let why = lines.iter().find(|line| !line["why"].is_null()).unwrap();
            assert!(why["system"] == "linux" && why["value"].is_null());
            let old = lines.iter().filter(|line| line["system"] == "linux-2013").count();
            assert_eq!(old, nr_old);
        }
    }

    #[test]
    fn axes_are_labelled_and_every_series_is_named() {
        report("linear").chart().assert_shows(&[
            "how faults exclude",
            "seconds a GiB",
            "2 thread(s)",
            "lockfree",
            "2013, table, 64",
        ]);
        report("database").chart().assert_shows(&["seconds", "1 thread(s)", "clear"]);
    }
}
