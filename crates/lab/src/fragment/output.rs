//! JSON, one object per line, and the plot: the index of each order, before and after.

use super::reckon::{Program, Report};
use crate::bench::{self, Better, Chart, Lines, Places, Scale, Series, Whose};
use crate::stage::PAGE_BYTES;
use serde::Serialize;

#[derive(Serialize, Default)]
struct Keys<'a> {
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
}

impl bench::Report for Report {
    fn text(&self) -> String {
        self.tables()
    }

    fn json(&self, lines: &mut Lines) {
        for (order, [before, after]) in self.indices() {
            lines.add(self.order(order, before, after), after, "of free memory unusable");
        }
        for program in &self.programs {
            lines.add(self.program(program), program.whole_s.median, "s");
        }
        let keys = Keys { spread: Some(self.ratio.spread), ..self.keys("ratio") };
        lines.add(keys, self.ratio.median, "always / never");
    }

    fn chart(&self) -> Chart {
        let series = |(when, name): (usize, &str)| {
            let points = self.indices().map(move |(order, index)| (order as f64, index[when]));
            Series::new(name, Whose::Ours, points).faint(when == 0)
        };
        Chart {
            title: format!("One {} frame kept in {} % of the blocks", self.kind, self.share),
            x: "order: blocks of 2^order pages of 4 KiB; 9 is 2 MiB".into(),
            places: Places::Even,
            y: "share of free memory that is of no use for the order".into(),
            scale: Scale::Share,
            better: Better::Less,
            series: ["before", "after"].into_iter().enumerate().map(series).collect(),
        }
    }
}

impl Report {
    fn keys(&self, row: &'static str) -> Keys<'static> {
        let (kind, share_percent, defrag, reps) = (self.kind, self.share, self.defrag, self.reps);
        Keys { row, kind, share_percent, defrag, reps, ..Keys::default() }
    }

    fn order(&self, order: usize, before: f64, after: f64) -> Keys<'static> {
        Keys {
            order: Some(order),
            block_bytes: Some(PAGE_BYTES << order),
            index_before: Some(before),
            index_after: Some(after),
            ..self.keys("index")
        }
    }

    fn program(&self, program: &Program) -> Keys<'static> {
        Keys {
            enabled: Some(program.enabled),
            seconds: Some(program.whole_s.median),
            spread: Some(program.whole_s.spread),
            memset_seconds: Some(program.memset_s.median),
            memset_spread: Some(program.memset_s.spread),
            huge_share: Some(program.huge_share),
            thp_fault_alloc: Some(program.thp_fault_alloc),
            thp_fault_fallback: Some(program.thp_fault_fallback),
            compact_success: Some(program.compact_success),
            ..self.keys("program")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reckon::tests::report;
    use crate::bench::{Lines, Report};

    #[test]
    fn orders_programs_and_the_ratio_with_the_same_keys() {
        let mut lines = Lines::new("fragment");
        report().json(&mut lines);
        let lines = lines.parsed();
        assert_eq!((lines.len(), Lines::keys(&lines[0]).len()), (13 + 2 + 1, 21));
        assert!(lines.iter().all(|line| Lines::keys(line) == Lines::keys(&lines[0])));
        assert_eq!((lines[9]["order"].as_u64(), lines[9]["block_bytes"].as_u64()), (Some(9), Some(2 << 20)));
        assert_eq!(lines[9]["value"], 0.75);
        assert_eq!((lines[13]["enabled"].as_str(), lines[13]["seconds"].as_f64()), (Some("always"), Some(0.33)));
        assert!(lines[15]["order"].is_null() && (lines[15]["value"].as_f64().unwrap() - 1.1).abs() < 1e-9);
    }

    #[test]
    fn axes_are_labelled_and_both_moments_named() {
        report().chart().assert_shows(&[
            "order: blocks of",
            "share of free memory",
            "less is better",
            "before",
            "after",
            "One movable frame kept in 50 %",
        ]);
    }
}
