//! Colours and widths: ours and Linux's rows are strong, historic ones thin and grey.

use super::{Series, Whose};
use plotters::style::{Color, RGBAColor, RGBColor, ShapeStyle};

/// Cold colours.
const OURS: [RGBColor; 6] = [
    RGBColor(0, 92, 185),
    RGBColor(0, 150, 110),
    RGBColor(110, 60, 180),
    RGBColor(0, 165, 215),
    RGBColor(40, 60, 110),
    RGBColor(130, 170, 30),
];
/// Warm colours.
const LINUX: [RGBColor; 3] = [RGBColor(213, 80, 0), RGBColor(235, 160, 0), RGBColor(190, 30, 60)];
/// Greys, each with a slight tint.
const HISTORIC: [RGBColor; 3] = [RGBColor(145, 130, 115), RGBColor(115, 140, 135), RGBColor(125, 125, 150)];
const GOAL: RGBColor = RGBColor(60, 60, 60);

/// How a series looks.
#[derive(Clone, Copy)]
pub struct Style {
    colour: RGBAColor,
    width: u32,
    /// Of its dots.
    pub radius: i32,
}

impl Style {
    /// Of a series that is the `nth` of its kind.
    pub fn of(series: &Series, nth: usize) -> Style {
        let tone = series.tone.unwrap_or(nth);
        let of = |colours: &[RGBColor]| colours[tone % colours.len()];
        let (colour, width, radius) = match series.whose {
            Whose::Ours => (of(&OURS), 3, 5),
            Whose::Linux => (of(&LINUX), 3, 5),
            Whose::Historic => (of(&HISTORIC), 1, 3),
            Whose::Goal => (GOAL, 1, 0),
        };
        // The second and third round of colours is told apart by its width.
        let width = if tone < OURS.len() { width } else { 1 };
        let (strength, width) = if series.is_faint { (0.5, 1) } else { (1.0, width) };
        Style { colour: colour.mix(strength), width, radius }
    }

    /// For lines.
    pub fn line(self) -> ShapeStyle {
        self.colour.stroke_width(self.width)
    }

    /// For dots and bars.
    pub fn filled(self) -> ShapeStyle {
        self.colour.filled()
    }
}
