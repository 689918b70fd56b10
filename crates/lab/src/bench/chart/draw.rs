//! A chart as SVG.

use super::style::Style;
use super::{Better, Chart, Mark, Places, Scale, Series, Whose};
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::ops::Range;

type Failure = Box<dyn std::error::Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Context<'a, 'b, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, Y>>;

const SIZE: (u32, u32) = (1080, 600);
/// Width of the plot; the legend has the rest.
const PLOT_WIDTH: u32 = 800;
const FONT: &str = "sans-serif";
/// Half a bar's width.
const HALF_BAR: f64 = 0.3;
/// Between dots that stand side by side.
const DOT_STEP: f64 = 0.09;

/// Draws all of it.
pub fn svg(chart: &Chart) -> Result<String, Failure> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let (plot, legend) = area.split_horizontally(PLOT_WIDTH);
        let (left, right) = x_range(chart);
        let y = y_range(chart);
        let mut builder = ChartBuilder::on(&plot);
        builder.caption(&chart.title, (FONT, 18)).margin(12).x_label_area_size(44).y_label_area_size(84);
        match chart.scale {
            Scale::Log => draw(chart, builder.build_cartesian_2d(left..right, y.log_scale())?)?,
            Scale::Even | Scale::Share => draw(chart, builder.build_cartesian_2d(left..right, y)?)?,
        }
        draw_legend(chart, &legend)?;
        area.present()?;
    }
    Ok(text)
}

/// All series with their styles, historic ones last.
fn styled(chart: &Chart) -> Vec<(&Series, Style)> {
    let mut all: Vec<(&Series, Style)> = Vec::new();
    for series in &chart.series {
        let nth = all.iter().filter(|(other, _)| other.whose == series.whose).count();
        all.push((series, Style::of(series, nth)));
    }
    all.sort_by_key(|(series, _)| series.whose == Whose::Historic);
    all
}

/// The points of a series that have a place.
fn points(chart: &Chart, series: &Series) -> Vec<(f64, f64)> {
    let place = |x: f64| if matches!(chart.places, Places::Doubling) { x.log2() } else { x };
    let has_place = |y: f64| y.is_finite() && (chart.scale != Scale::Log || y > 0.0);
    series.points.iter().filter(|(_, y)| has_place(*y)).map(|&(x, y)| (place(x), y)).collect()
}

fn x_range(chart: &Chart) -> (f64, f64) {
    let has_bars = chart.series.iter().any(|series| matches!(series.mark, Mark::Dots | Mark::Bars));
    let margin = if has_bars { 0.6 } else { 0.3 };
    let x = chart.series.iter().flat_map(|series| points(chart, series)).map(|(x, _)| x);
    let (first, last) = x.fold((f64::MAX, f64::MIN), |(first, last), x| (first.min(x), last.max(x)));
    if first <= last { (first - margin, last + margin) } else { (0.0, 1.0) }
}

fn y_range(chart: &Chart) -> Range<f64> {
    let y = || chart.series.iter().flat_map(|series| points(chart, series)).map(|(_, y)| y);
    let (least, most) = (y().fold(f64::MAX, f64::min), y().fold(0.0, f64::max));
    match chart.scale {
        Scale::Share => 0.0..1.05,
        _ if most <= 0.0 => 0.1..1.0,
        Scale::Even => 0.0..most * 1.2,
        Scale::Log => least * 0.7..most * 1.6,
    }
}

/// The word at a place of the x axis: whole numbers alone have one.
fn word(places: &Places, x: f64) -> String {
    let whole = x.round();
    if (x - whole).abs() > 0.01 || whole < 0.0 {
        return String::new();
    }
    match places {
        Places::Even => format!("{whole:.0}"),
        Places::Doubling => format!("{:.0}", whole.exp2()),
        Places::Named(words) => words.get(whole as usize).cloned().unwrap_or_default(),
    }
}

/// Short enough for an axis.
fn number(y: f64) -> String {
    match y.abs() {
        0.0 => "0".into(),
        n if !(1e-3..1e5).contains(&n) => format!("{y:.0e}"),
        n if n >= 10.0 => format!("{y:.0}"),
        _ => format!("{y:.3}").trim_end_matches('0').trim_end_matches('.').into(),
    }
}

fn draw<Y>(chart: &Chart, mut context: Context<'_, '_, Y>) -> Result<(), Failure>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let (left, right) = x_range(chart);
    let direction = if chart.better == Better::More { "more is better" } else { "less is better" };
    context
        .configure_mesh()
        .axis_desc_style((FONT, 15))
        .label_style((FONT, 13))
        .x_desc(&chart.x)
        .y_desc(format!("{} ({direction})", chart.y))
        // A label for each whole number, unless there are very many.
        .x_labels(((right - left).ceil() as usize + 1).min(24))
        .x_label_formatter(&|x| word(&chart.places, *x))
        .y_label_formatter(&|y| number(*y))
        .light_line_style(WHITE)
        .draw()?;
    let all = styled(chart);
    let nr_dotted = all.iter().filter(|(series, _)| series.mark == Mark::Dots).count();
    let mut nr_before = 0;
    // Those that are to be seen best are drawn over the others.
    for (series, style) in all.iter().rev() {
        let shift = (nr_dotted as f64 - 1.0) / 2.0 - nr_before as f64;
        let is_beside = series.mark == Mark::Dots && matches!(chart.places, Places::Named(_));
        let shift = if is_beside { shift * DOT_STEP } else { 0.0 };
        nr_before += usize::from(series.mark == Mark::Dots);
        let points: Vec<(f64, f64)> = points(chart, series).into_iter().map(|(x, y)| (x + shift, y)).collect();
        draw_series(&mut context, (left, right), series.mark, *style, &points)?;
    }
    Ok(())
}

fn draw_series<Y: Ranged<ValueType = f64>>(
    context: &mut Context<'_, '_, Y>,
    (left, right): (f64, f64),
    mark: Mark,
    style: Style,
    points: &[(f64, f64)],
) -> Result<(), Failure> {
    let all = points.iter().copied();
    let dots = all.clone().map(|point| Circle::new(point, style.radius, style.filled()));
    match mark {
        Mark::Line => {
            context.draw_series(LineSeries::new(all, style.line()))?;
            context.draw_series(dots)?;
        }
        Mark::Level => {
            _ = context.draw_series(all.map(|(_, y)| PathElement::new([(left, y), (right, y)], style.line())))?
        }
        Mark::Dots => _ = context.draw_series(dots)?,
        Mark::Bars => {
            let bar = |(x, y)| Rectangle::new([(x - HALF_BAR, 0.0), (x + HALF_BAR, y)], style.filled());
            context.draw_series(all.clone().map(bar))?;
            let value = |(x, y)| EmptyElement::at((x, y)) + Text::new(format!("{y:.2}"), (-14, -18), (FONT, 14));
            context.draw_series(all.map(value))?;
        }
    }
    Ok(())
}

fn draw_legend(chart: &Chart, legend: &Area<'_>) -> Result<(), Failure> {
    for (i, (series, style)) in styled(chart).into_iter().enumerate() {
        let y = 40 + 22 * i as i32;
        match series.mark {
            Mark::Line | Mark::Level => legend.draw(&PathElement::new([(4, y), (28, y)], style.line()))?,
            Mark::Dots => legend.draw(&Circle::new((16, y), style.radius, style.filled()))?,
            Mark::Bars => legend.draw(&Rectangle::new([(4, y - 6), (28, y + 6)], style.filled()))?,
        }
        legend.draw(&Text::new(series.name.clone(), (34, y - 7), (FONT, 14)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(scale: Scale, series: Vec<Series>) -> Chart {
        let places = Places::Named(vec!["first".into(), "second".into()]);
        let (title, x, y) = ("a title".into(), "place".into(), "GB/s".into());
        Chart { title, x, places, y, scale, better: Better::More, series }
    }

    #[test]
    fn axes_say_what_is_better_and_every_series_is_named() {
        for scale in [Scale::Even, Scale::Share, Scale::Log] {
            let line = |name, whose| Series::new(name, whose, [(0.0, 0.5), (1.0, 0.25)]);
            let series = [("ours", Whose::Ours), ("theirs", Whose::Linux), ("then", Whose::Historic)];
            let series = series.map(|(name, whose)| line(name, whose)).to_vec();
            chart(scale, series).assert_shows(&[
                "a title",
                "place",
                "GB/s (more is better)",
                "first",
                "ours",
                "theirs",
                "then",
            ]);
        }
    }

    #[test]
    fn historic_series_come_last_and_look_different() {
        let line = |name, whose| Series::new(name, whose, [(0.0, 1.0)]);
        let chart = chart(Scale::Even, vec![line("then", Whose::Historic), line("now", Whose::Ours)]);
        let names: Vec<&str> = styled(&chart).iter().map(|(series, _)| series.name.as_str()).collect();
        assert_eq!(names, ["now", "then"]);
        let text = chart.svg().unwrap();
        assert!(text.contains("#005CB9") && text.contains("#918273"), "{text}");
    }

    #[test]
    fn what_has_no_place_is_left_out() {
        let chart = chart(Scale::Log, vec![Series::new("none", Whose::Ours, [(0.0, 0.0), (1.0, f64::NAN)])]);
        chart.assert_shows(&["none"]);
        assert!(points(&chart, &chart.series[0]).is_empty());
    }

    #[test]
    fn numbers_are_short() {
        let short = [0.0, 300_000.0, 1234.5, 2.5, 0.05, 1.0].map(number);
        assert_eq!(short, ["0", "3e5", "1234", "2.5", "0.05", "1"]);
        assert_eq!(word(&Places::Doubling, 3.0), "8");
        assert_eq!(word(&Places::Doubling, 2.5), "");
    }
}
