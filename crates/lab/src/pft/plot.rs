//! The plot: faults per second over threads, both axes logarithmic.

use super::history::OldRow;
use super::options::Options;
use super::stats::Row;
use super::table;
use crate::error::LabError;
use plotters::prelude::*;
use std::path::Path;

/// One line of the plot; those of 2004 come last.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    then: bool,
}

/// Writes the plot to `file`.
pub fn draw(file: &Path, options: &Options, rows: &[Row], then: &[OldRow]) -> Result<(), LabError> {
    let series = series(rows, then);
    let text = svg(&title(options), &series)
        .map_err(|e| LabError::Subsystem { what: "drawing the plot".into(), why: e.to_string() })?;
    std::fs::write(file, text).map_err(|e| LabError::Argument {
        name: "--plot",
        given: file.display().to_string(),
        wanted: format!("should be a file that can be written: {e}"),
    })
}

fn title(options: &Options) -> String {
    format!("First-touch page faults, {} GiB x {}, {} frames", options.gib, options.reps, options.frames.name())
}

fn series(rows: &[Row], then: &[OldRow]) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    let mut add = |name: String, point: (f64, f64), then: bool| match all.iter_mut().find(|s| s.name == name) {
        Some(series) => series.points.push(point),
        None => all.push(Series { name, points: vec![point], then }),
    };
    for row in rows.iter().filter(|row| !row.is_yardstick()) {
        let system = if row.is_ours() { "softfault" } else { "Linux" };
        add(format!("{system} {}", table::name(row)), (row.nr_threads as f64, row.faults_per_wall_s()), false);
    }
    for row in then {
        let name = format!("2004, {} CPUs, {}", row.machine_cpus, row.variant);
        add(name, (f64::from(row.nr_threads), row.faults_per_wall_s), true);
    }
    all
}

fn svg(title: &str, series: &[Series]) -> Result<String, Box<dyn std::error::Error>> {
    let points = || series.iter().flat_map(|s| s.points.iter());
    let right = points().map(|p| p.0).fold(2.0, f64::max) * 1.3;
    let bottom = points().map(|p| p.1).fold(f64::MAX, f64::min) * 0.7;
    let top = points().map(|p| p.1).fold(0.0, f64::max) * 2.0;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (1080, 640)).into_drawing_area();
        area.fill(&WHITE)?;
        let (plot, legend) = area.split_horizontally(800);
        let mut chart = ChartBuilder::on(&plot)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(84)
            .build_cartesian_2d((0.9..right).log_scale().base(2.0), (bottom..top).log_scale())?;
        chart
            .configure_mesh()
            .axis_desc_style(("sans-serif", 15))
            .label_style(("sans-serif", 13))
            .x_desc("threads")
            .y_desc("page faults per second of wall time (faults/s; pages of 4 KiB, in 2004 of 16 KiB)")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| scientific(*y))
            .light_line_style(WHITE)
            .draw()?;
        let nr_now = series.iter().filter(|s| !s.then).count();
        for (i, series) in series.iter().enumerate() {
            let style = if series.then { style_then(i - nr_now, series) } else { Palette99::pick(i).stroke_width(3) };
            chart.draw_series(LineSeries::new(series.points.iter().copied(), style))?;
            let radius = if series.then { 2 } else { 4 };
            chart.draw_series(series.points.iter().map(|&p| Circle::new(p, radius, style.filled())))?;
            let y = 40 + 22 * i as i32;
            legend.draw(&PathElement::new([(4, y), (28, y)], style))?;
            legend.draw(&Text::new(series.name.clone(), (34, y - 7), ("sans-serif", 14)))?;
        }
        area.present()?;
    }
    Ok(text)
}

/// Thin and muted, so that now stands out; neighbours, before and after the
/// patch, share a hue.
fn style_then(i: usize, series: &Series) -> ShapeStyle {
    const HUES: [RGBColor; 3] = [RGBColor(120, 80, 40), RGBColor(30, 100, 90), RGBColor(70, 70, 110)];
    let strength = if series.name.ends_with("fastpath") { 1.0 } else { 0.45 };
    HUES[i / 2 % HUES.len()].mix(strength).stroke_width(1)
}

/// `300000` as `3e5`: short enough for an axis over six decades.
fn scientific(value: f64) -> String {
    format!("{value:.0e}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_labelled_and_every_series_is_named() {
        let then = super::super::history::rows();
        let text = svg("a title", &series(&[], &then)).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        for wanted in ["a title", "threads", "faults/s", "2004, 8 CPUs, fastpath", "2004, 512 CPUs, page_table_lock"] {
            assert!(text.contains(wanted), "{wanted} is not in the plot");
        }
    }
}
