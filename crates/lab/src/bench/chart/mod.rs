//! Plots: their description by an experiment, and the SVG file.
//!
//! An experiment gives each series and its owner. The owner determines the style, in all plots alike: our rows and
//! Linux's stand out, historic rows are muted.

mod draw;
mod style;

use crate::error::LabError;
use std::path::Path;

/// A plot.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Below the x axis.
    pub x: String,
    /// How x values are placed.
    pub places: Places,
    /// Beside the y axis: the quantity and its unit.
    pub y: String,
    /// How y values are placed.
    pub scale: Scale,
    /// Which direction of y is better.
    pub better: Better,
    /// The series; the legend lists historic ones last.
    pub series: Vec<Series>,
}

/// How x values are placed.
#[derive(Clone, Debug)]
pub enum Places {
    /// Whole numbers, evenly.
    Even,
    /// Powers of two, evenly.
    Doubling,
    /// These words, at 0, 1, 2 and so on.
    Named(Vec<String>),
}

/// How y values are placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// From 0.
    Even,
    /// From 0 to 1.
    Share,
    /// Logarithmic; values that are not above 0 are left out.
    Log,
}

/// Which direction is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Better {
    /// Up.
    More,
    /// Down.
    Less,
}

/// The system of a series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// Softfault's, measured now.
    Ours,
    /// Linux's, measured now.
    Linux,
    /// As published once.
    Historic,
    /// The goal.
    Goal,
}

/// How points are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// Joined by a line.
    Line,
    /// A level line across the plot for each point.
    Level,
    /// Dots without a line; where places are named, series stand side by side.
    Dots,
    /// A bar from 0 with its value, one for each place.
    Bars,
}

/// Points with one name.
#[derive(Clone, Debug)]
pub struct Series {
    name: String,
    whose: Whose,
    mark: Mark,
    points: Vec<(f64, f64)>,
    tone: Option<usize>,
    is_faint: bool,
}

impl Series {
    /// A line through these points.
    pub fn new(name: impl Into<String>, whose: Whose, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
        let points = points.into_iter().collect();
        Series { name: name.into(), whose, mark: Mark::Line, points, tone: None, is_faint: false }
    }

    /// As it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a point at its end.
    pub fn add(&mut self, point: (f64, f64)) {
        self.points.push(point);
    }

    /// With one more point.
    pub fn with(mut self, point: (f64, f64)) -> Series {
        self.add(point);
        self
    }

    /// Draws it with another mark.
    pub fn mark(self, mark: Mark) -> Series {
        Series { mark, ..self }
    }

    /// Gives it the same colour as other series of this number.
    pub fn tone(self, tone: usize) -> Series {
        Series { tone: Some(tone), ..self }
    }

    /// Draws it thinner and lighter.
    pub fn faint(self, is_faint: bool) -> Series {
        Series { is_faint, ..self }
    }
}

impl Whose {
    /// By the word for the system in tables and JSON.
    pub fn system(name: &str) -> Whose {
        if name == "linux" { Whose::Linux } else { Whose::Ours }
    }
}

impl Chart {
    /// Writes it to `file`.
    pub fn write(&self, file: &Path) -> Result<(), LabError> {
        std::fs::write(file, self.svg()?).map_err(|e| LabError::Argument {
            name: "--plot",
            given: file.display().to_string(),
            wanted: format!("should be a file that can be written: {e}"),
        })
    }

    /// As text.
    pub fn svg(&self) -> Result<String, LabError> {
        draw::svg(self).map_err(|e| LabError::subsystem("drawing the plot", e))
    }

    /// Checks that the plot can be drawn and shows each of these texts.
    #[cfg(test)]
    pub fn assert_shows(&self, wanted: &[&str]) {
        let text = self.svg().expect("it can be drawn");
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        for wanted in wanted {
            assert!(text.contains(wanted), "{wanted} is not in the plot");
        }
    }
}
