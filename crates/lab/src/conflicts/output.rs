//! Text, JSON and the plot: the transfers of the lines that move most.

use super::report::{Report, Worst};
use crate::bench::{self, Better, Chart, Lines, Mark, Places, Scale, Series, Whose};

impl bench::Report for Report {
    fn text(&self) -> String {
        self.table()
    }

    fn json(&self, lines: &mut Lines) {
        lines.add(self, self.transfers_per_1000_faults, "transfers/1000 faults");
    }

    fn chart(&self) -> Chart {
        let name = |worst: &Worst| format!("{}.{}", worst.structure, worst.field);
        let transfers = self.worst.iter().enumerate().map(|(i, worst)| (i as f64, worst.transfers_per_1000_faults));
        Chart {
            title: self.title(),
            x: "structure and field".into(),
            places: Places::Named(self.worst.iter().map(name).collect()),
            y: "transfers per 1,000 faults".into(),
            scale: Scale::Even,
            better: Better::Less,
            series: vec![Series::new("softfault", Whose::Ours, transfers).mark(Mark::Bars)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::Options;
    use crate::bench::{Lines, Report, measure, typed};

    #[test]
    fn a_line_of_json_and_a_bar_for_each_field() {
        let options: Options = typed("conflicts --cpus 2 --touches 16 --layout interleaved");
        let report = measure(&options).unwrap();
        report.chart().assert_shows(&["2 CPUs, layout interleaved", "transfers per 1,000 faults (less is better)"]);
        let mut lines = Lines::new("conflicts");
        report.json(&mut lines);
        let [line] = &lines.parsed()[..] else { panic!("one line") };
        assert_eq!((line["experiment"].as_str(), line["cpus"].as_u64()), (Some("conflicts"), Some(2)));
        assert_eq!(line["value"], line["transfers_per_1000_faults"]);
        assert!(report.text().starts_with("2 simulated CPUs"), "{}", report.text());
    }
}
