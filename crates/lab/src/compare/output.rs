//! The output: the program's, once, then the figures of both systems as a table, JSON or a plot.

use super::Machines;
use super::options::Options;
use super::reckon::{self, Ratio, Row, Sample};
use super::record::Ran;
use super::system::System;
use super::table;
use crate::bench::{self, Better, Chart, Lines, Mark, Places, Sampled, Scale, Series, Whose};
use crate::error::LabError;
use serde::Serialize;
use std::io::{self, Write};

/// The figures, and what the program did.
pub struct Report {
    options: Options,
    title: String,
    rows: Vec<Row>,
    /// The first run on each system, in the order of the rows.
    firsts: Vec<Ran>,
    /// None if the program did less on one of them.
    ratio: Option<Ratio>,
}

/// The keys, in their order; renaming a field here is a change of the format.
#[derive(Serialize)]
struct Keys<'a> {
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

/// Those of the last line.
#[derive(Serialize)]
struct Ratios {
    ratio_wall: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_rate: Option<f64>,
}

impl Report {
    /// Of these boots; `firsts` has a run on each system.
    pub fn new(options: &Options, (bench, mut firsts): Machines, sampled: Vec<Sampled<System, Sample>>) -> Report {
        let rows: Vec<Row> = sampled.into_iter().map(|of| reckon::row(of.job, of.samples)).collect();
        firsts.sort_by_key(|(system, _)| rows.iter().position(|row| row.system == *system));
        let firsts: Vec<Ran> = firsts.into_iter().map(|(_, ran)| ran).collect();
        let is_alike = firsts.iter().all(|ran| ran.record.exit_code() == firsts[0].record.exit_code());
        let ratio = reckon::ratio(&rows).filter(|_| is_alike);
        Report { options: options.clone(), title: bench.title, rows, firsts, ratio }
    }

    /// The program's, of the first system on which it failed.
    pub fn exit_code(&self) -> u8 {
        self.firsts.iter().map(|ran| ran.record.exit_code()).find(|code| *code != 0).unwrap_or(0)
    }

    /// Passes the program's output on; with --json, standard output is for the figures.
    pub fn pass_on(&self) -> Result<(), LabError> {
        let failed = |e: io::Error| LabError::host("output", e);
        let is_json = bench::Experiment::settings(&self.options).json;
        let mut output: Box<dyn Write> = if is_json { Box::new(io::stderr()) } else { Box::new(io::stdout()) };
        output.write_all(&self.firsts[0].output).and_then(|()| output.flush()).map_err(failed)?;
        io::stderr().write_all(&self.firsts[0].errors).map_err(failed)
    }

    /// Reports differences between the first runs.
    pub fn tell_differences(&self) {
        let ([first, second], [one, other]) = (&self.rows[..], &self.firsts[..]) else { return };
        let codes = (one.record.exit_code(), other.record.exit_code());
        if codes.0 != codes.1 {
            let (first, second) = (first.system, second.system);
            eprintln!("softfault compare: exit statuses differ: {} on {first}, {} on {second}", codes.0, codes.1);
            eprint!("{}", String::from_utf8_lossy(&other.errors));
        }
        if one.output != other.output {
            eprintln!(
                "softfault compare: standard output differs between the systems (as that of programs that print times does)"
            );
        }
    }

    fn keys(&self, row: &Row, first: &Ran) -> Keys<'_> {
        let (middle, options) = (&row.middle, &self.options);
        Keys {
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
            exit_status: first.record.exit_code(),
            cpus: options.machine.nr_cpus(),
            mem_bytes: options.machine.mem,
            cpu: options.cpu(),
            artefact: options.is_artefact(),
            thp: options.huge_pages(),
        }
    }
}

impl bench::Report for Report {
    fn text(&self) -> String {
        format!("\n{}\n\n{}", self.title, table::rows(&self.rows, self.ratio.as_ref()))
    }

    /// A line for each system, then the ratio if there are two; it is null if the program's exit statuses differ.
    fn json(&self, lines: &mut Lines) {
        for (row, first) in self.rows.iter().zip(&self.firsts) {
            let (value, unit) = row.middle.rate.map_or((row.middle.wall_s, "s"), |rate| (rate, "rate"));
            lines.add(self.keys(row, first), value, unit);
        }
        if self.rows.len() > 1 {
            let ratio_wall = self.ratio.as_ref().map(|ratio| ratio.wall);
            let ratio_rate = self.ratio.as_ref().and_then(|ratio| ratio.rate);
            lines.add(Ratios { ratio_wall, ratio_rate }, ratio_rate.or(ratio_wall), "ratio");
        }
    }

    fn chart(&self) -> Chart {
        chart(&self.options.command[0].to_string_lossy(), &self.rows)
    }
}

/// Every boot of both systems, so that a drift of the host is seen: the rates if there are any, else the wall times.
fn chart(title: &str, rows: &[Row]) -> Chart {
    let has_rate = rows.iter().all(|row| row.middle.rate.is_some());
    let height = |sample: &Sample| if has_rate { sample.rate.unwrap_or(0.0) } else { sample.wall_s };
    let (y, better) =
        if has_rate { ("rate, as the program printed it", Better::More) } else { ("wall time, s", Better::Less) };
    let series = |row: &Row| {
        let (key, middle) = (row.system.key(), height(&row.middle));
        let boots: Vec<(f64, f64)> = (1..).map(f64::from).zip(row.boots.iter().map(height)).collect();
        let whose = Whose::system(key);
        [
            Series::new(format!("{key}: each boot"), whose, boots).mark(Mark::Dots).tone(0),
            Series::new(format!("{key}: median {middle:.4}"), whose, [(1.0, middle)]).mark(Mark::Level).tone(0),
        ]
    };
    Chart {
        title: title.into(),
        x: "boot".into(),
        places: Places::Even,
        y: y.into(),
        scale: Scale::Even,
        better,
        series: rows.iter().flat_map(series).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::reckon::row;
    use super::super::system::System;
    use super::*;

    #[test]
    fn axes_are_labelled_and_both_systems_named() {
        let boot = |wall_s: f64, rate: Option<f64>| {
            let (user_s, system_s, minor_faults, major_faults, max_rss_kib) = (0.0, 0.0, 0.0, 0.0, 0.0);
            Sample { wall_s, user_s, system_s, minor_faults, major_faults, max_rss_kib, rate }
        };
        for (rate, axis) in [(None, "wall time, s (less is better)"), (Some(9.0), "rate, as the program")] {
            let rows = [System::Softfault, System::Linux].map(|s| row(s, vec![boot(1.5, rate), boot(2.5, rate)]));
            chart("a title", &rows).assert_shows(&["a title", "boot", axis, "softfault: median", "linux: median"]);
        }
    }
}
