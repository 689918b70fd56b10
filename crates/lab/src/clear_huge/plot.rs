//! The plot: nanoseconds a line over the distance from the fault.

use super::measure::Load;
use super::options::{DISTANCES, Options};
use super::rows::Row;
use crate::error::LabError;
use plotters::prelude::*;
use std::path::Path;

/// Writes it to `file`.
pub fn draw(file: &Path, options: &Options, rows: &[Row]) -> Result<(), LabError> {
    let what = if options.copy { "copying" } else { "clearing" };
    let title = format!("First touches after {what} 2 MiB, fault on sub-page {}", options.target);
    let text = svg(&title, rows).map_err(|e| LabError::subsystem("drawing the plot", e))?;
    std::fs::write(file, text).map_err(|e| LabError::Argument {
        name: "--plot",
        given: file.display().to_string(),
        wanted: format!("should be a file that can be written: {e}"),
    })
}

fn svg(title: &str, rows: &[Row]) -> Result<String, Box<dyn std::error::Error>> {
    let top = rows.iter().flat_map(|row| row.touches.iter().map(|t| t.ns_per_line)).fold(1.0, f64::max) * 1.5;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (1080, 560)).into_drawing_area();
        area.fill(&WHITE)?;
        let (plot, legend) = area.split_horizontally(800);
        // Distances are even steps on the axis: 0 has no place on a logarithmic one.
        let mut chart = ChartBuilder::on(&plot)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(84)
            .build_cartesian_2d(-0.2..DISTANCES.len() as f64 - 0.8, (0.5..top).log_scale())?;
        chart
            .configure_mesh()
            .axis_desc_style(("sans-serif", 15))
            .label_style(("sans-serif", 13))
            .x_desc("sub-pages between the fault and what is touched")
            .y_desc("ns a line (less is better)")
            .x_labels(DISTANCES.len())
            .x_label_formatter(&|x| label(*x))
            .y_label_formatter(&|y| format!("{y:.0}"))
            .light_line_style(WHITE)
            .draw()?;
        for (i, row) in rows.iter().filter(|row| row.touches.len() > 1).enumerate() {
            let colour = Palette99::pick(i / 2 + i % 2 * 5).mix(if row.load == Load::Idle { 1.0 } else { 0.5 });
            let style = colour.stroke_width(if row.load == Load::Idle { 3 } else { 1 });
            let place = |distance: u64| DISTANCES.iter().position(|d| *d == distance).unwrap_or(0) as f64;
            let points: Vec<(f64, f64)> = row.touches.iter().map(|t| (place(t.distance), t.ns_per_line)).collect();
            chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
            chart.draw_series(points.iter().map(|&p| Circle::new(p, 3, style.filled())))?;
            let y = 40 + 22 * i as i32;
            legend.draw(&PathElement::new([(4, y), (28, y)], style))?;
            legend.draw(&Text::new(name(row), (34, y - 7), ("sans-serif", 14)))?;
        }
        area.present()?;
    }
    Ok(text)
}

fn label(x: f64) -> String {
    DISTANCES.get(x.round() as usize).filter(|_| (x - x.round()).abs() < 0.01).map_or(String::new(), u64::to_string)
}

fn name(row: &Row) -> String {
    format!("{} {}, {}", row.work.system(), row.work.name(), row.load.name())
}

#[cfg(test)]
mod tests {
    use super::super::measure::Work;
    use super::super::rows::Touch;
    use super::*;
    use softfault::clear::ClearOrder;

    #[test]
    fn axes_are_labelled_and_every_row_is_named() {
        let touch = |distance| Touch { distance, ns_per_line: 3.0, spread: 0.1 };
        let row = |load| Row {
            work: Work::Clear(ClearOrder::Hybrid),
            load,
            ns: 1.0,
            spread: 0.0,
            bytes_touched: 0,
            ratio_to_converge: None,
            ratio_to_linux: None,
            residue: None,
            touches: DISTANCES.map(touch).to_vec(),
        };
        let text = svg("a title", &[row(Load::Idle), row(Load::Streaming)]).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        for wanted in
            ["a title", "sub-pages between", "ns a line", "256", "softfault hybrid, idle", "hybrid, streaming"]
        {
            assert!(text.contains(wanted), "{wanted} is not in the plot");
        }
    }
}
