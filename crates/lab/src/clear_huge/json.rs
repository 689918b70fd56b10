//! Rows as JSON, one object per line.

use super::options::Options;
use super::rows::{Row, Touch};
use serde::Serialize;

/// The keys, in their order; renaming a field here is a change of the format.
#[derive(Serialize)]
struct Line<'a> {
    experiment: &'a str,
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
    value: f64,
    unit: &'a str,
    spread: f64,
}

/// One line for the speed of a row, one for each distance.
pub fn print(options: &Options, rows: &[Row]) {
    for row in rows {
        println!("{}", text(&speed(options, row)));
        row.touches.iter().for_each(|touch| println!("{}", text(&first_touch(options, row, touch))));
    }
}

fn text(line: &Line<'_>) -> String {
    serde_json::to_string(line).expect("a flat struct of numbers and strings")
}

fn speed<'a>(options: &Options, row: &'a Row) -> Line<'a> {
    Line {
        experiment: "clear-huge",
        metric: if options.copy { "copy" } else { "clear" },
        system: row.work.system(),
        order: row.work.name(),
        load: row.load.name(),
        target: options.target,
        distance: None,
        threads: 1,
        bytes: row.nr_bytes(),
        bytes_touched: row.bytes_touched,
        near_resident: row.residue.map(|residue| residue.near),
        kept_resident: row.residue.map(|residue| residue.kept),
        ratio_to_converge: row.ratio_to_converge,
        ratio_to_linux: row.ratio_to_linux,
        value: row.gb_per_s(),
        unit: "GB/s",
        spread: row.spread,
    }
}

fn first_touch<'a>(options: &Options, row: &'a Row, touch: &Touch) -> Line<'a> {
    Line {
        metric: "first_touch",
        distance: Some(touch.distance),
        near_resident: None,
        kept_resident: None,
        ratio_to_converge: None,
        ratio_to_linux: None,
        value: touch.ns_per_line,
        unit: "ns/line",
        spread: touch.spread,
        ..speed(options, row)
    }
}
