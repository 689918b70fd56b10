//! The plot: every boot of both systems, so that a drift of the host is seen.

use super::reckon::{Row, Sample};
use crate::run::RunError;
use plotters::prelude::*;
use std::path::Path;

/// Writes it to `file`: the rates if there are any, else the wall times.
pub fn draw(file: &Path, title: &str, rows: &[Row]) -> Result<(), RunError> {
    let text = svg(title, rows).map_err(|e| RunError::Host(format!("drawing the plot: {e}")))?;
    std::fs::write(file, text).map_err(|e| {
        RunError::Argument(format!("--plot {}: should be a file that can be written: {e}", file.display()))
    })
}

fn svg(title: &str, rows: &[Row]) -> Result<String, Box<dyn std::error::Error>> {
    let has_rate = rows.iter().all(|row| row.middle.rate.is_some());
    let height = |sample: &Sample| if has_rate { sample.rate.unwrap_or(0.0) } else { sample.wall_s };
    let unit =
        if has_rate { "rate, as the program printed it (more is better)" } else { "wall time, s (less is better)" };
    let nr_boots = rows.iter().map(|row| row.boots.len()).max().unwrap_or(1);
    let top = rows.iter().flat_map(|row| row.boots.iter().map(height)).fold(0.0, f64::max) * 1.25 + f64::MIN_POSITIVE;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (900, 520)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(84)
            .build_cartesian_2d(0.5..nr_boots as f64 + 0.5, 0.0..top)?;
        chart
            .configure_mesh()
            .axis_desc_style(("sans-serif", 15))
            .label_style(("sans-serif", 13))
            .x_desc("boot")
            .y_desc(unit)
            .x_labels(nr_boots.min(20))
            .x_label_formatter(&|x| format!("{x:.0}"))
            .draw()?;
        for (i, row) in rows.iter().enumerate() {
            let points: Vec<(f64, f64)> = (1..).map(f64::from).zip(row.boots.iter().map(height)).collect();
            let style = Palette99::pick(i).stroke_width(2);
            chart.draw_series(points.iter().map(|&point| Circle::new(point, 4, style.filled())))?;
            let middle = height(&row.middle);
            let name = format!("{}: median {middle:.4}", row.system.key());
            chart
                .draw_series(LineSeries::new([(0.5, middle), (nr_boots as f64 + 0.5, middle)], style))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], style));
        }
        chart.configure_series_labels().label_font(("sans-serif", 14)).border_style(BLACK).draw()?;
        area.present()?;
    }
    Ok(text)
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
        for (rate, axis) in [(None, "wall time, s"), (Some(9.0), "rate, as the program")] {
            let rows = [System::Softfault, System::Linux].map(|s| row(s, vec![boot(1.5, rate), boot(2.5, rate)]));
            let text = svg("a title", &rows).expect("it can be drawn");
            assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
            for wanted in ["a title", "boot", axis, "softfault: median", "linux: median"] {
                assert!(text.contains(wanted), "{wanted} is not in the plot");
            }
        }
    }
}
