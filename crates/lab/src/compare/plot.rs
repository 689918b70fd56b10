//! The plot: every boot of both systems, so that a drift of the host is seen.

use super::reckon::{Row, Sample};
use crate::bench::{Better, Chart, Mark, Places, Scale, Series, Whose};
use crate::error::LabError;
use crate::run::RunError;
use std::path::Path;

/// Writes it to `file`: the rates if there are any, else the wall times.
pub fn draw(file: &Path, title: &str, rows: &[Row]) -> Result<(), RunError> {
    chart(title, rows).write(file).map_err(|error| match error {
        LabError::Argument { .. } => RunError::Argument(error.to_string()),
        LabError::Host { .. } | LabError::Subsystem { .. } => RunError::Host(error.to_string()),
    })
}

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
