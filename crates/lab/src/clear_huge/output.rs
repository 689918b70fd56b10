//! JSON and the plot: nanoseconds per line over the distance from the fault.

use super::place::DISTANCES;
use super::rows::{Report, Row, Touch};
use super::work::Load;
use crate::bench::{self, Better, Chart, Lines, Places, Scale, Series, Whose};
use serde::Serialize;

#[derive(Serialize)]
struct Keys<'a> {
    metric: &'a str,
    system: &'a str,
    order: &'a str,
    load: &'a str,
    target: u64,
    distance: Option<u64>,
    threads: u32,
    bytes: u64,
    bytes_touched: u64,
    near_resident: Option<f64>,
    kept_resident: Option<f64>,
    ratio_to_converge: Option<f64>,
    ratio_to_linux: Option<f64>,
    spread: f64,
}

impl bench::Report for Report {
    fn text(&self) -> String {
        self.tables()
    }

    /// One line for the speed of a row, one for each distance.
    fn json(&self, lines: &mut Lines) {
        for row in &self.rows {
            lines.add(self.speed(row), row.gb_per_s(), "GB/s");
            row.touches.iter().for_each(|touch| lines.add(self.first_touch(row, touch), touch.ns_per_line, "ns/line"));
        }
    }

    fn chart(&self) -> Chart {
        let what = if self.copy { "copying" } else { "clearing" };
        Chart {
            title: format!("First touches after {what} 2 MiB, fault on sub-page {}", self.target),
            x: "sub-pages between the fault and what is touched".into(),
            // 0 has no place on a logarithmic axis.
            places: Places::Named(DISTANCES.iter().map(u64::to_string).collect()),
            y: "ns a line".into(),
            scale: Scale::Log,
            better: Better::Less,
            series: self.rows.iter().filter(|row| row.touches.len() > 1).map(|row| self.series(row)).collect(),
        }
    }
}

impl Report {
    fn speed<'a>(&self, row: &'a Row) -> Keys<'a> {
        Keys {
            metric: if self.copy { "copy" } else { "clear" },
            system: row.work.system(),
            order: row.work.name(),
            load: row.load.name(),
            target: self.target,
            distance: None,
            threads: 1,
            bytes: row.nr_bytes(),
            bytes_touched: row.bytes_touched,
            near_resident: row.residue.map(|residue| residue.near),
            kept_resident: row.residue.map(|residue| residue.kept),
            ratio_to_converge: row.ratio_to_converge,
            ratio_to_linux: row.ratio_to_linux,
            spread: row.spread,
        }
    }

    fn first_touch<'a>(&self, row: &'a Row, touch: &Touch) -> Keys<'a> {
        Keys {
            metric: "first_touch",
            distance: Some(touch.distance),
            near_resident: None,
            kept_resident: None,
            ratio_to_converge: None,
            ratio_to_linux: None,
            spread: touch.spread,
            ..self.speed(row)
        }
    }

    /// The same colour beside each load.
    fn series(&self, row: &Row) -> Series {
        let place = |distance: u64| DISTANCES.iter().position(|d| *d == distance).unwrap_or(0) as f64;
        let name = format!("{} {}, {}", row.work.system(), row.work.name(), row.load.name());
        let points = row.touches.iter().map(|touch| (place(touch.distance), touch.ns_per_line));
        let is_same = |other: &&Row| other.work.system() == row.work.system() && other.load == row.load;
        let tone = self.rows.iter().filter(is_same).position(|other| other.work == row.work).unwrap_or(0);
        Series::new(name, Whose::system(row.work.system()), points).tone(tone).faint(row.load == Load::Streaming)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::tests::report;
    use crate::bench::Report;

    #[test]
    fn axes_are_labelled_and_every_row_is_named() {
        report().chart().assert_shows(&[
            "First touches after clearing",
            "sub-pages between",
            "ns a line (less is better)",
            "softfault converge, idle",
            "linux touch, streaming",
        ]);
    }
}
