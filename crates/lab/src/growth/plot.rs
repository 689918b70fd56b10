//! The plot: how many times the first machine's steps each call takes in the others.

use super::report::{Report, name_of};
use super::what::What;
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

/// For each machine the growth in the state in which the call grows most.
fn series(report: &Report) -> Vec<(What, Vec<f64>)> {
    let lines = report.lines();
    let of = |what| {
        let growth = |i: usize| {
            let states = lines.iter().filter(|line| line.what == what);
            states.map(|line| line.rows[i].steps as f64 / line.rows[0].steps.max(1) as f64).fold(0.0, f64::max)
        };
        (what, (0..report.configs.len()).map(growth).collect())
    };
    What::ALL.into_iter().filter(|what| lines.iter().any(|line| line.what == *what)).map(of).collect()
}

fn svg(report: &Report) -> Result<String, Box<dyn std::error::Error>> {
    let series = series(report);
    let most = series.iter().flat_map(|(_, growth)| growth).copied().fold(4.0, f64::max) * 1.5;
    let last = report.configs.len() as f64 - 1.0;
    let label = |x: f64| {
        let config = report.configs.get(x.round() as usize).filter(|_| x >= -0.1 && (x - x.round()).abs() < 0.1);
        config.map_or(String::new(), |config| name_of(*config))
    };
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (1080, 560)).into_drawing_area();
        area.fill(&WHITE)?;
        let (plot, legend) = area.split_horizontally(900);
        let mut chart = ChartBuilder::on(&plot)
            .caption("Words that the worst call touches, over those in the first machine", ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(84)
            .build_cartesian_2d(-0.3..last + 0.3, (0.5..most).log_scale())?;
        chart
            .configure_mesh()
            .axis_desc_style(("sans-serif", 15))
            .label_style(("sans-serif", 13))
            .x_labels(report.configs.len() + 1)
            .x_label_formatter(&|x| label(*x))
            .x_desc("memory / CPUs")
            .y_desc("times the steps, in the worst state of memory (goal: 2)")
            .light_line_style(WHITE)
            .draw()?;
        chart.draw_series(LineSeries::new([(-0.3, 2.0), (last + 0.3, 2.0)], BLACK.mix(0.4)))?;
        for (i, (what, growth)) in series.iter().enumerate() {
            let style = Palette99::pick(i).stroke_width(2);
            let points: Vec<(f64, f64)> = growth.iter().enumerate().map(|(x, y)| (x as f64, *y)).collect();
            chart.draw_series(points.iter().map(|&point| Circle::new(point, 4, style.filled())))?;
            chart.draw_series(LineSeries::new(points, style))?;
            let y = 40 + 22 * i as i32;
            legend.draw(&Circle::new((14, y), 5, style.filled()))?;
            legend.draw(&Text::new(what.name(), (28, y - 7), ("sans-serif", 14)))?;
        }
        area.present()?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn axes_are_labelled_and_all_calls_named() {
        let text = svg(&report()).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        for wanted in ["memory / CPUs", "times the steps", "touch 4 KiB", "refusal", "1G/1", "1T/512"] {
            assert!(text.contains(wanted), "{wanted} is not in the plot");
        }
        let growth: Vec<Vec<f64>> = series(&report()).into_iter().map(|(_, growth)| growth).collect();
        assert_eq!(growth, [vec![1.0, 2.0], vec![1.0, 512.0], vec![1.0, 2.01]]);
    }
}
