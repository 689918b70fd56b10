//! The result as JSON, one object per line.

use super::plan::{Row, System, Thp};
use super::reckon::{COMPARISONS, Column, Comparison, Figure, Report};
use serde::Serialize;
use softfault_host::TlbStats;

/// The keys, in their order; renaming a field here is a change of the format.
#[derive(Serialize)]
struct Line<'a> {
    experiment: &'a str,
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
    value: f64,
    unit: &'a str,
}

impl Report {
    fn line<'a>(&self, system: System, thp: Thp, row: &'a str) -> Line<'a> {
        Line {
            experiment: "largepages",
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
            value: 0.0,
            unit: "s",
        }
    }

    fn lines(&self) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        for column in &self.columns {
            lines.extend(Row::ALL.map(|row| self.time(column, row)));
        }
        for passes in &self.passes {
            lines.push(self.pass(passes.thp, "tlb_cold", &passes.cold));
            lines.push(self.pass(passes.thp, "tlb_second", &passes.second));
        }
        for comparison in &COMPARISONS {
            lines.extend(self.times_as_fast_as(comparison).map(|figure| self.ratio(comparison, figure)));
        }
        lines
    }

    fn time(&self, column: &Column, row: Row) -> Line<'static> {
        let Figure { median, spread } = column.rows[row as usize];
        Line {
            huge_share: Some(column.huge_share),
            seconds: Some(median),
            spread: Some(spread),
            seconds_2011: Some(Report::seconds_2011(row, column.job.thp)),
            value: median,
            ..self.line(column.job.system, column.job.thp, row.key())
        }
    }

    fn pass(&self, thp: Thp, row: &'static str, stats: &TlbStats) -> Line<'static> {
        Line {
            lookups: Some(stats.lookups),
            misses: Some(stats.misses),
            loads: Some(stats.loads),
            loads_nested_4k: Some(stats.loads_nested_small),
            loads_nested_2m: Some(stats.loads_nested_huge),
            value: stats.misses as f64,
            unit: "misses",
            ..self.line(System::Softfault, thp, row)
        }
    }

    fn ratio(&self, comparison: &Comparison, figure: Figure) -> Line<'static> {
        Line {
            spread: Some(figure.spread),
            value: figure.median,
            unit: "times as fast",
            ..self.line(System::Softfault, comparison.own, comparison.key)
        }
    }
}

/// All of it.
pub fn print(report: &Report) {
    for line in report.lines() {
        println!("{}", serde_json::to_string(&line).expect("a flat struct of numbers and strings"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::reckon::tests::report;
    use serde_json::Value;

    #[test]
    fn rows_passes_and_ratios_with_the_same_keys() {
        let lines: Vec<Value> = report().lines().iter().map(|line| serde_json::to_value(line).unwrap()).collect();
        assert_eq!(lines.len(), 5 * 5 + 4 + 3);
        let keys = |line: &Value| line.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert!(lines.iter().all(|line| keys(line) == keys(&lines[0]) && line["experiment"] == "largepages"));
        assert_eq!(keys(&lines[0]).len(), 17);
        let first = &lines[0];
        assert_eq!((first["system"].as_str(), first["thp"].as_str()), (Some("softfault"), Some("off")));
        assert_eq!((first["seconds"].as_f64(), first["seconds_2011"].as_f64()), (Some(0.06), Some(2.1826335)));
        assert!(first["misses"].is_null());
        let cold = lines.iter().find(|line| line["row"] == "tlb_cold" && line["thp"] == "on").unwrap();
        assert_eq!((cold["misses"].as_u64(), cold["unit"].as_str()), (Some(2), Some("misses")));
        assert_eq!(lines.last().unwrap()["value"], 4.0);
    }
}
