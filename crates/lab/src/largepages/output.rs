//! JSON, one object per line, and the plot: the time per GiB of each row.

use super::history::{GIB_2011, Then};
use super::plan::{Row, System, Thp};
use super::reckon::{COMPARISONS, Column, Comparison, Report};
use crate::bench::{self, Better, Chart, Figure, Lines, Mark, Places, Scale, Series, Whose, short_gib};
use serde::Serialize;
use softfault_host::TlbStats;

#[derive(Serialize)]
struct Keys<'a> {
    system: &'a str,
    thp: &'a str,
    row: &'a str,
    gib: f64,
    reps: u32,
    huge_share: Option<f64>,
    seconds: Option<f64>,
    spread: Option<f64>,
    seconds_2011: Option<f64>,
    lookups: Option<u64>,
    misses: Option<u64>,
    loads: Option<u64>,
    loads_nested_4k: Option<u64>,
    loads_nested_2m: Option<u64>,
    why: Option<&'a str>,
}

impl bench::Report for Report {
    fn text(&self) -> String {
        self.tables()
    }

    /// The rows, why some could not be measured, then the passes, then the ratios.
    fn json(&self, lines: &mut Lines) {
        for column in &self.columns {
            for row in Row::ALL {
                lines.add(self.time(column, row), column.rows[row as usize].median, "s");
            }
        }
        if let Some(why) = &self.why_no_pool {
            let line = self.line(System::Linux, Thp::Hugetlb, Row::Fresh.key());
            lines.add(Keys { why: Some(why), ..line }, None::<f64>, "s");
        }
        for passes in &self.passes {
            for (name, stats) in [("tlb_cold", &passes.cold), ("tlb_second", &passes.second)] {
                lines.add(self.pass(passes.thp, name, stats), stats.misses as f64, "misses");
            }
        }
        for comparison in &COMPARISONS {
            if let Some(figure) = self.times_as_fast_as(comparison) {
                lines.add(self.ratio(comparison, figure), figure.median, "times as fast");
            }
        }
    }

    fn chart(&self) -> Chart {
        let of_now = self.columns.iter().map(|column| {
            let (system, thp) = (column.job.system.name(), column.job.thp.name());
            let ms_per_gib = column.rows.map(|figure| figure.median * 1e3 / self.gib);
            series(format!("{system} {thp}"), Whose::system(system), ms_per_gib)
        });
        let of_2011 = Then::ALL.into_iter().map(|then| {
            let ms_per_gib = then.seconds().map(|seconds| seconds * 1e3 / GIB_2011);
            series(format!("2011, {}", then.name()), Whose::Historic, ms_per_gib)
        });
        Chart {
            title: format!("The program of 2011, {} GiB, median of {}", short_gib(self.gib), self.reps),
            x: "row of the program; * a stride, in 2011 called random access".into(),
            places: Places::Named(Row::ALL.map(short_label).to_vec()),
            y: "milliseconds per GiB".into(),
            scale: Scale::Log,
            better: Better::Less,
            series: of_now.chain(of_2011).collect(),
        }
    }
}

fn series(name: String, whose: Whose, ms_per_gib: impl IntoIterator<Item = f64>) -> Series {
    let points = ms_per_gib.into_iter().enumerate().map(|(row, ms)| (row as f64, ms));
    Series::new(name, whose, points).mark(Mark::Dots)
}

fn short_label(row: Row) -> String {
    match row {
        Row::Fresh => "fresh memset",
        Row::Second => "second memset",
        Row::Third => "third memset",
        Row::Stride => "stride *",
        Row::StrideAgain => "stride again *",
    }
    .into()
}

impl Report {
    fn line<'a>(&self, system: System, thp: Thp, row: &'a str) -> Keys<'a> {
        Keys {
            system: system.name(),
            thp: thp.name(),
            row,
            gib: self.gib,
            reps: self.reps,
            huge_share: None,
            seconds: None,
            spread: None,
            seconds_2011: None,
            lookups: None,
            misses: None,
            loads: None,
            loads_nested_4k: None,
            loads_nested_2m: None,
            why: None,
        }
    }

    fn time(&self, column: &Column, row: Row) -> Keys<'static> {
        let Figure { median, spread } = column.rows[row as usize];
        Keys {
            huge_share: Some(column.huge_share),
            seconds: Some(median),
            spread: Some(spread),
            seconds_2011: Some(Report::seconds_2011(row, column.job.thp)),
            ..self.line(column.job.system, column.job.thp, row.key())
        }
    }

    fn pass(&self, thp: Thp, row: &'static str, stats: &TlbStats) -> Keys<'static> {
        Keys {
            lookups: Some(stats.lookups),
            misses: Some(stats.misses),
            loads: Some(stats.loads),
            loads_nested_4k: Some(stats.loads_nested_small),
            loads_nested_2m: Some(stats.loads_nested_huge),
            ..self.line(System::Softfault, thp, row)
        }
    }

    fn ratio(&self, comparison: &Comparison, figure: Figure) -> Keys<'static> {
        Keys { spread: Some(figure.spread), ..self.line(System::Softfault, comparison.own, comparison.key) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reckon::tests::report;
    use crate::bench::{Lines, Report};

    #[test]
    fn rows_passes_and_ratios_with_the_same_keys() {
        let mut lines = Lines::new("largepages");
        report().json(&mut lines);
        let lines = lines.parsed();
        assert_eq!(lines.len(), 6 * 5 + 1 + 4 + 3);
        assert!(lines.iter().all(|line| Lines::keys(line) == Lines::keys(&lines[0])));
        assert_eq!(Lines::keys(&lines[0]).len(), 18);
        let first = &lines[0];
        assert_eq!((first["system"].as_str(), first["thp"].as_str()), (Some("softfault"), Some("off")));
        assert_eq!((first["seconds"].as_f64(), first["seconds_2011"].as_f64()), (Some(0.06), Some(2.1826335)));
        assert!(first["misses"].is_null());
        let left_out = lines.iter().find(|line| line["why"] == "no root").unwrap();
        assert!(left_out["thp"] == "hugetlb" && left_out["value"].is_null(), "{left_out}");
        let cold = lines.iter().find(|line| line["row"] == "tlb_cold" && line["thp"] == "on").unwrap();
        assert_eq!((cold["misses"].as_u64(), cold["unit"].as_str()), (Some(2), Some("misses")));
        assert_eq!(lines.last().unwrap()["value"], 4.0, "of Linux's pool nothing is known");
    }

    #[test]
    fn axes_are_labelled_and_every_series_is_named() {
        report().chart().assert_shows(&[
            "milliseconds per GiB (less is better)",
            "softfault off",
            "linux on",
            "2011, hugetlbfs",
            "fresh memset",
            "stride *",
        ]);
    }
}
