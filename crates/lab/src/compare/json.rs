//! The figures as JSON, one object per line.

use super::options::Options;
use super::reckon::{Ratio, Row};
use serde::Serialize;

/// The keys, in their order; renaming a field here is a change of the format.
#[derive(Serialize)]
struct Line<'a> {
    experiment: &'a str,
    system: &'a str,
    wall_s: f64,
    user_s: f64,
    system_s: f64,
    minor_faults: f64,
    major_faults: f64,
    max_rss_kib: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<f64>,
    spread: f64,
    boots: usize,
    exit_status: u8,
    cpus: u32,
    mem_bytes: u64,
    cpu: &'a str,
    artefact: bool,
    thp: &'a str,
}

#[derive(Serialize)]
struct Last {
    ratio_wall: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_rate: Option<f64>,
}

/// An object for each system, in the order of the rows, then the ratio if there
/// are two; it is null if the program did not do the same on both.
pub fn lines(options: &Options, nr_cpus: u32, rows: &[(Row, u8)], ratio: Option<&Ratio>) -> String {
    let mut text = String::new();
    for (row, exit_status) in rows {
        let middle = &row.middle;
        let line = Line {
            experiment: "compare",
            system: row.system.key(),
            wall_s: middle.wall_s,
            user_s: middle.user_s,
            system_s: middle.system_s,
            minor_faults: middle.minor_faults,
            major_faults: middle.major_faults,
            max_rss_kib: middle.max_rss_kib,
            rate: middle.rate,
            spread: row.spread,
            boots: row.boots.len(),
            exit_status: *exit_status,
            cpus: nr_cpus,
            mem_bytes: options.machine.mem,
            cpu: options.cpu(),
            artefact: options.is_artefact(),
            thp: options.huge_pages(),
        };
        text.push_str(&object(&line));
    }
    if rows.len() > 1 {
        text.push_str(&object(&Last { ratio_wall: ratio.map(|r| r.wall), ratio_rate: ratio.and_then(|r| r.rate) }));
    }
    text
}

/// A flat struct as a line.
pub fn object(fields: &impl Serialize) -> String {
    serde_json::to_string(fields).expect("a flat struct of numbers and strings") + "\n"
}
