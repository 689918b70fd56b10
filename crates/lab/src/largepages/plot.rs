//! The plot: the time per GiB of each row, on a logarithmic axis.

use super::history::{GIB_2011, Then};
use super::plan::{NR_ROWS, Row};
use super::reckon::Report;
use crate::error::LabError;
use plotters::prelude::*;
use std::path::Path;

struct Series {
    name: String,
    ms_per_gib: [f64; NR_ROWS],
    then: bool,
}

/// Writes the plot to `file`.
pub fn draw(file: &Path, report: &Report) -> Result<(), LabError> {
    let text = svg(report).map_err(|e| LabError::subsystem("drawing the plot", e))?;
    std::fs::write(file, text).map_err(|e| LabError::Argument {
        name: "--plot",
        given: file.display().to_string(),
        wanted: format!("should be a file that can be written: {e}"),
    })
}

fn series(report: &Report) -> Vec<Series> {
    let of_now = report.columns.iter().map(|column| Series {
        name: format!("{} {}", column.job.system.name(), column.job.thp.name()),
        ms_per_gib: column.rows.map(|figure| figure.median * 1e3 / report.gib),
        then: false,
    });
    let of_2011 = Then::ALL.into_iter().map(|then| Series {
        name: match then {
            Then::Off => "2011, off".into(),
            Then::On => "2011, on".into(),
            Then::Hugetlbfs => "2011, hugetlbfs".into(),
        },
        ms_per_gib: then.seconds().map(|seconds| seconds * 1e3 / GIB_2011),
        then: true,
    });
    of_now.chain(of_2011).collect()
}

fn svg(report: &Report) -> Result<String, Box<dyn std::error::Error>> {
    let series = series(report);
    let values = || series.iter().flat_map(|s| s.ms_per_gib.iter().copied());
    let (bottom, top) = (values().fold(f64::MAX, f64::min) * 0.7, values().fold(0.0, f64::max) * 1.5);
    let title = format!("The program of 2011, {} GiB, median of {}", report.gib, report.reps);
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (1080, 560)).into_drawing_area();
        area.fill(&WHITE)?;
        let (plot, legend) = area.split_horizontally(860);
        let mut chart = ChartBuilder::on(&plot)
            .caption(title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(84)
            .build_cartesian_2d(-0.5..NR_ROWS as f64 - 0.5, (bottom..top).log_scale())?;
        chart
            .configure_mesh()
            .axis_desc_style(("sans-serif", 15))
            .label_style(("sans-serif", 13))
            .x_labels(NR_ROWS)
            .x_label_formatter(&|x| label(*x))
            .x_desc("row of the program; * a stride, in 2011 called random access")
            .y_desc("milliseconds per GiB (less is better)")
            .light_line_style(WHITE)
            .draw()?;
        for (i, series) in series.iter().enumerate() {
            let style = if series.then { BLACK.mix(0.35).filled() } else { Palette99::pick(i).filled() };
            // Side by side, so that equal values do not hide each other.
            let shift = (i as f64 - 3.0) * 0.09;
            let points = (0..NR_ROWS).map(|row| (row as f64 + shift, series.ms_per_gib[row]));
            chart.draw_series(points.map(|point| Circle::new(point, if series.then { 4 } else { 6 }, style)))?;
            let y = 40 + 22 * i as i32;
            legend.draw(&Circle::new((14, y), 5, style))?;
            legend.draw(&Text::new(series.name.clone(), (28, y - 7), ("sans-serif", 14)))?;
        }
        area.present()?;
    }
    Ok(text)
}

fn label(x: f64) -> String {
    let row = Row::ALL.get(x.round() as usize).filter(|_| (x - x.round()).abs() < 0.01 && x > -0.1);
    row.map_or(String::new(), |row| match row {
        Row::Fresh => "fresh memset".into(),
        Row::Stride => "stride *".into(),
        Row::StrideAgain => "stride again *".into(),
        Row::Second | Row::Third => row.label().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::reckon::tests::report;
    use super::*;

    #[test]
    fn axes_are_labelled_and_every_series_is_named() {
        let text = svg(&report()).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        let wanted =
            ["milliseconds per GiB", "softfault off", "linux on", "2011, hugetlbfs", "fresh memset", "stride *"];
        for wanted in wanted {
            assert!(text.contains(wanted), "{wanted} is not in the plot");
        }
    }
}
