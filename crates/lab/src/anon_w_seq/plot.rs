//! The plot: a bar of throughput for each order.

use super::options::Options;
use super::rows::Row;
use crate::error::LabError;
use plotters::prelude::*;
use std::path::Path;

/// Writes it to `file`.
pub fn draw(file: &Path, options: &Options, rows: &[Row]) -> Result<(), LabError> {
    let title = format!("{} processes write {} MiB each", options.nr_processes()?, options.mib);
    let text = svg(&title, rows).map_err(|e| LabError::subsystem("drawing the plot", e))?;
    std::fs::write(file, text).map_err(|e| LabError::Argument {
        name: "--plot",
        given: file.display().to_string(),
        wanted: format!("should be a file that can be written: {e}"),
    })
}

fn svg(title: &str, rows: &[Row]) -> Result<String, Box<dyn std::error::Error>> {
    let height = |row: &Row| row.bytes_per_s / 1e9;
    let top = rows.iter().map(height).fold(0.0, f64::max) * 1.2 + f64::MIN_POSITIVE;
    let name = |x: &f64| {
        let row = rows.get(x.round() as usize).filter(|_| (x - x.round()).abs() < 0.01);
        row.map_or(String::new(), |row| row.work.name().into())
    };
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (760, 480)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(84)
            .build_cartesian_2d(-0.6..rows.len() as f64 - 0.4, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .axis_desc_style(("sans-serif", 15))
            .label_style(("sans-serif", 13))
            .x_desc("order of clearing")
            .y_desc("GB written per second, all processes (more is better)")
            .x_labels(4 * rows.len())
            .x_label_formatter(&name)
            .draw()?;
        for (i, row) in rows.iter().enumerate() {
            let x = i as f64;
            let bar = [(x - 0.3, 0.0), (x + 0.3, height(row))];
            chart.draw_series([Rectangle::new(bar, Palette99::pick(i).filled())])?;
            let label = format!("{:.2}", height(row));
            chart.draw_series([Text::new(label, (x - 0.12, height(row) + top * 0.04), ("sans-serif", 14))])?;
        }
        area.present()?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::rows::Work;
    use super::*;
    use softfault::clear::ClearOrder;

    #[test]
    fn every_bar_is_named_and_labelled() {
        let row = |work| Row { work, bytes_per_s: 12.5e9, spread: 0.0, ratio_to_forward: None, ratio_to_linux: None };
        let rows: Vec<Row> = ClearOrder::ALL.map(Work::Ours).into_iter().chain([Work::Linux]).map(row).collect();
        let text = svg("a title", &rows).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        for wanted in ["a title", "forward", "converge", "runs", "hybrid", "linux", "12.50", "GB written"] {
            assert!(text.contains(wanted), "{wanted} is not in the plot");
        }
    }
}
