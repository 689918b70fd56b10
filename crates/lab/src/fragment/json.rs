//! The result as JSON, one object per line.

use super::reckon::{Program, Report};
use crate::stage::PAGE_BYTES;
use serde::Serialize;

/// The keys, in their order; renaming a field here is a change of the format.
#[derive(Serialize, Default)]
struct Line<'a> {
    experiment: &'a str,
    row: &'a str,
    kind: &'a str,
    share_percent: u32,
    order: Option<usize>,
    block_bytes: Option<u64>,
    index_before: Option<f64>,
    index_after: Option<f64>,
    enabled: Option<&'a str>,
    defrag: &'a str,
    reps: u32,
    seconds: Option<f64>,
    spread: Option<f64>,
    memset_seconds: Option<f64>,
    memset_spread: Option<f64>,
    huge_share: Option<f64>,
    thp_fault_alloc: Option<f64>,
    thp_fault_fallback: Option<f64>,
    compact_success: Option<f64>,
    value: f64,
    unit: &'a str,
}

impl Report {
    fn line(&self, row: &'static str, value: f64, unit: &'static str) -> Line<'static> {
        let (kind, share_percent, defrag, reps) = (self.kind, self.share, self.defrag, self.reps);
        Line { experiment: "fragment", row, kind, share_percent, defrag, reps, value, unit, ..Line::default() }
    }

    fn lines(&self) -> Vec<Line<'static>> {
        let mut lines: Vec<Line<'static>> = self.indices().map(|(order, index)| self.order(order, index)).collect();
        lines.extend(self.programs.iter().map(|program| self.program(program)));
        lines.push(Line { spread: Some(self.ratio.spread), ..self.line("ratio", self.ratio.median, "always / never") });
        lines
    }

    fn order(&self, order: usize, [before, after]: [f64; 2]) -> Line<'static> {
        Line {
            order: Some(order),
            block_bytes: Some(PAGE_BYTES << order),
            index_before: Some(before),
            index_after: Some(after),
            ..self.line("index", after, "of free memory unusable")
        }
    }

    fn program(&self, program: &Program) -> Line<'static> {
        Line {
            enabled: Some(program.enabled),
            seconds: Some(program.whole_s.median),
            spread: Some(program.whole_s.spread),
            memset_seconds: Some(program.memset_s.median),
            memset_spread: Some(program.memset_s.spread),
            huge_share: Some(program.huge_share),
            thp_fault_alloc: Some(program.thp_fault_alloc),
            thp_fault_fallback: Some(program.thp_fault_fallback),
            compact_success: Some(program.compact_success),
            ..self.line("program", program.whole_s.median, "s")
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
    fn orders_programs_and_the_ratio_with_the_same_keys() {
        let lines: Vec<Value> = report().lines().iter().map(|line| serde_json::to_value(line).unwrap()).collect();
        let keys = |line: &Value| line.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!((lines.len(), keys(&lines[0]).len()), (13 + 2 + 1, 21));
        assert!(lines.iter().all(|line| keys(line) == keys(&lines[0]) && line["experiment"] == "fragment"));
        assert_eq!((lines[9]["order"].as_u64(), lines[9]["block_bytes"].as_u64()), (Some(9), Some(2 << 20)));
        assert_eq!(lines[9]["value"], 0.75);
        assert_eq!((lines[13]["enabled"].as_str(), lines[13]["seconds"].as_f64()), (Some("always"), Some(0.33)));
        assert!(lines[15]["order"].is_null() && (lines[15]["value"].as_f64().unwrap() - 1.1).abs() < 1e-9);
    }
}
