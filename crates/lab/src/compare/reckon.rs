//! From runs to figures: the median of a boot's runs, then the median over boots.

use super::record::Ran;
use super::system::System;
use crate::bench::{median, spread};
use crate::run::RunError;
use crate::run::verdict::last_line;
use regex_lite::Regex;

/// A boot's figures, each the median over its runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub wall_s: f64,
    pub user_s: f64,
    pub system_s: f64,
    pub minor_faults: f64,
    pub major_faults: f64,
    pub max_rss_kib: f64,
    pub rate: Option<f64>,
}

/// A system's figures, each the median over its boots.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub system: System,
    pub middle: Sample,
    /// (Slowest - fastest boot) / median, by wall time, or by the rate if there is one.
    pub spread: f64,
    /// The boots, in their order.
    pub boots: Vec<Sample>,
}

/// The reference kernel beside Linux; above 1 it is ahead.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    pub wall: f64,
    pub rate: Option<f64>,
    /// The least and the most among boots that followed each other, of the rate if
    /// there is one.
    pub pairs: (f64, f64),
}

/// A boot's figures from its runs, of which there is one at least.
pub fn sample(system: System, runs: &[Ran], rate: Option<&Regex>) -> Result<Sample, RunError> {
    let middle = |of: fn(&Ran) -> u64| median(runs.iter().map(|ran| of(ran) as f64));
    let rates: Option<Vec<f64>> = match rate {
        Some(regex) => Some(runs.iter().map(|ran| find_rate(system, ran, regex)).collect::<Result<_, _>>()?),
        None => None,
    };
    Ok(Sample {
        wall_s: middle(|ran| ran.record.wall_ns) / 1e9,
        user_s: middle(|ran| ran.record.user_us) / 1e6,
        system_s: middle(|ran| ran.record.system_us) / 1e6,
        minor_faults: middle(|ran| ran.record.minor_faults),
        major_faults: middle(|ran| ran.record.major_faults),
        max_rss_kib: middle(|ran| ran.record.max_rss_kib),
        rate: rates.map(|rates| median(rates.into_iter())),
    })
}

fn find_rate(system: System, ran: &Ran, regex: &Regex) -> Result<f64, RunError> {
    let wrong = |why: &str| {
        let (code, errors) = (ran.record.exit_code(), last_line(&ran.errors));
        let why = format!("--rate {}: {why} (exit status {code}; errors: {errors})", regex.as_str());
        RunError::Machine { code: 1, why: format!("{}: {why}", system.name()) }
    };
    let text = String::from_utf8_lossy(&ran.output);
    let last =
        regex.captures_iter(&text).last().ok_or_else(|| wrong("should match somewhere in the program's output"))?;
    let number = last.get(1).or_else(|| last.get(0)).map_or("", |m| m.as_str());
    number.trim().parse().map_err(|_| wrong(&format!("should find a number, and found {number:?}")))
}

/// A system's figures from its boots, of which there is one at least.
pub fn row(system: System, boots: Vec<Sample>) -> Row {
    let middle = |of: fn(&Sample) -> f64| median(boots.iter().map(of));
    let rates: Option<Vec<f64>> = boots.iter().map(|boot| boot.rate).collect();
    let middle = Sample {
        wall_s: middle(|b| b.wall_s),
        user_s: middle(|b| b.user_s),
        system_s: middle(|b| b.system_s),
        minor_faults: middle(|b| b.minor_faults),
        major_faults: middle(|b| b.major_faults),
        max_rss_kib: middle(|b| b.max_rss_kib),
        rate: rates.as_ref().map(|rates| median(rates.iter().copied())),
    };
    let judged = rates.unwrap_or_else(|| boots.iter().map(|b| b.wall_s).collect());
    Row { system, middle, spread: spread(&judged), boots }
}

/// Ours beside Linux, if both are there.
pub fn ratio(rows: &[Row]) -> Option<Ratio> {
    let of = |system: System| rows.iter().find(|row| row.system == system);
    let (ours, linux) = (of(System::Softfault)?, of(System::Linux)?);
    let ahead = |ours: &Sample, linux: &Sample| match (ours.rate, linux.rate) {
        (Some(ours), Some(linux)) => ours / linux,
        _ => linux.wall_s / ours.wall_s,
    };
    let pairs: Vec<f64> = ours.boots.iter().zip(&linux.boots).map(|(ours, linux)| ahead(ours, linux)).collect();
    Some(Ratio {
        wall: linux.middle.wall_s / ours.middle.wall_s,
        rate: ours.middle.rate.zip(linux.middle.rate).map(|(ours, linux)| ours / linux),
        pairs: (pairs.iter().copied().fold(f64::MAX, f64::min), pairs.iter().copied().fold(0.0, f64::max)),
    })
}

#[cfg(test)]
#[path = "reckon_tests.rs"]
mod tests;
