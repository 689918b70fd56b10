//! JSON, one object per line, and the plot: the steps of each call relative to the first machine.

use super::options::Config;
use super::report::{MOST_GROWTH, Report};
use super::what::What;
use crate::bench::{self, Better, Chart, Lines, Mark, Places, Scale, Series, Whose};
use serde::Serialize;

#[derive(Serialize)]
struct Keys {
    what: &'static str,
    state: &'static str,
    memory_gib: f64,
    cpus: u16,
    steps: u64,
    ns: f64,
}

impl bench::Report for Report {
    fn text(&self) -> String {
        self.tables()
    }

    fn json(&self, lines: &mut Lines) {
        for row in &self.rows {
            let keys = Keys {
                what: row.what.key(),
                state: row.state.name(),
                memory_gib: row.config.bytes as f64 / (1u64 << 30) as f64,
                cpus: row.config.cpus,
                steps: row.steps,
                ns: row.ns,
            };
            lines.add(keys, row.steps, "steps");
        }
    }

    fn chart(&self) -> Chart {
        let points = |growth: Vec<f64>| growth.into_iter().enumerate().map(|(i, times)| (i as f64, times));
        let calls = self.growth().into_iter();
        let calls = calls.map(|(what, growth)| Series::new(what.name(), Whose::Ours, points(growth)));
        let goal = Series::new("goal", Whose::Goal, [(0.0, MOST_GROWTH)]).mark(Mark::Level);
        Chart {
            title: "Words that the worst call touches, over those in the first machine".into(),
            x: "memory / CPUs".into(),
            places: Places::Named(self.configs.iter().map(Config::to_string).collect()),
            y: "times the steps, in the worst state of memory".into(),
            scale: Scale::Log,
            better: Better::Less,
            series: calls.chain([goal]).collect(),
        }
    }
}

impl Report {
    /// For each machine the growth in the state in which the call grows most.
    fn growth(&self) -> Vec<(What, Vec<f64>)> {
        let lines = self.lines();
        let of = |what| {
            let growth = |i: usize| {
                let states = lines.iter().filter(|line| line.what == what);
                states.map(|line| line.rows[i].steps as f64 / line.rows[0].steps.max(1) as f64).fold(0.0, f64::max)
            };
            (what, (0..self.configs.len()).map(growth).collect())
        };
        What::ALL.into_iter().filter(|what| lines.iter().any(|line| line.what == *what)).map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use crate::bench::{Lines, Report};

    #[test]
    fn axes_are_labelled_and_all_calls_named() {
        let wanted = ["memory / CPUs", "times the steps", "less is better", "touch 4 KiB", "refusal", "1G/1", "1T/512"];
        report().chart().assert_shows(&wanted);
        let growth: Vec<Vec<f64>> = report().growth().into_iter().map(|(_, growth)| growth).collect();
        assert_eq!(growth, [vec![1.0, 2.0], vec![1.0, 512.0], vec![1.0, 2.01]]);
    }

    #[test]
    fn a_line_of_json_for_each_row() {
        let mut lines = Lines::new("growth");
        report().json(&mut lines);
        let lines = lines.parsed();
        assert_eq!(lines.len(), 8);
        let last = &lines[6];
        assert_eq!((last["what"].as_str(), last["state"].as_str()), (Some("refusal"), Some("full")));
        assert_eq!((last["memory_gib"].as_f64(), last["cpus"].as_u64()), (Some(1024.0), Some(512)));
        assert_eq!(
            (last["steps"].as_u64(), last["value"].as_u64(), last["ns"].as_f64()),
            (Some(201), Some(201), Some(50.5))
        );
    }
}
