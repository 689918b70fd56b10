//! The plot: the index of each order, before and after.

use super::reckon::Report;
use crate::error::LabError;
use plotters::prelude::*;
use std::path::Path;

/// Writes the plot to `file`.
pub fn draw(file: &Path, report: &Report) -> Result<(), LabError> {
    let text = svg(report).map_err(|e| LabError::subsystem("drawing the plot", e))?;
    std::fs::write(file, text).map_err(|e| LabError::Argument {
        name: "--plot",
        given: file.display().to_string(),
        wanted: format!("should be a file that can be written: {e}"),
    })
}

fn svg(report: &Report) -> Result<String, Box<dyn std::error::Error>> {
    let last = report.indices().map(|(order, _)| order).max().unwrap_or(0);
    let title = format!("One {} frame kept in {} % of the blocks", report.kind, report.share);
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (900, 520)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(84)
            .build_cartesian_2d(-0.3..last as f64 + 0.3, 0.0..1.05)?;
        chart
            .configure_mesh()
            .axis_desc_style(("sans-serif", 15))
            .label_style(("sans-serif", 13))
            .x_labels(last + 1)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .x_desc("order: blocks of 2^order pages of 4 KiB; 9 is 2 MiB")
            .y_desc("share of free memory that is of no use for the order")
            .light_line_style(WHITE)
            .draw()?;
        for (when, name) in ["before", "after"].into_iter().enumerate() {
            let style = Palette99::pick(when).stroke_width(3);
            let points: Vec<(f64, f64)> = report.indices().map(|(order, index)| (order as f64, index[when])).collect();
            chart.draw_series(points.iter().map(|&point| Circle::new(point, 4, style.filled())))?;
            chart
                .draw_series(LineSeries::new(points, style))?
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
    use super::super::reckon::tests::report;
    use super::*;

    #[test]
    fn axes_are_labelled_and_both_moments_named() {
        let text = svg(&report()).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        for wanted in ["order: blocks of", "share of free memory", "before", "after", "One movable frame kept in 50 %"]
        {
            assert!(text.contains(wanted), "{wanted} is not in the plot");
        }
    }
}
