//! The option `--zeroing`: who chooses the instructions that zero frames.

use crate::error::LabError;
use softfault::clear::{Ways, Zeroing};

/// How frames are zeroed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chosen {
    /// As the library's calibration chooses.
    Auto,
    /// As the command line says.
    Forced(Zeroing),
}

impl Chosen {
    /// The word in output and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Chosen::Auto => "auto",
            Chosen::Forced(way) => way.name(),
        }
    }
    /// The value of the tunable.
    pub fn tunable(self) -> Option<Zeroing> {
        match self {
            Chosen::Auto => None,
            Chosen::Forced(way) => Some(way),
        }
    }
    /// Refuses a way that this CPU lacks.
    pub fn check(self, ways: Ways) -> Result<(), LabError> {
        if self.tunable().is_none_or(|way| ways.has(way)) {
            return Ok(());
        }
        let names: Vec<&str> = ways.iter().map(Zeroing::name).collect();
        let wanted = format!("this CPU has no such way: should be one of auto, {}", names.join(", "));
        Err(LabError::Argument { name: "--zeroing", given: self.name().into(), wanted })
    }
}

/// Parses the value of the option.
pub fn parse_zeroing(text: &str) -> Result<Chosen, String> {
    if text == "auto" {
        return Ok(Chosen::Auto);
    }
    Zeroing::named(text).map(Chosen::Forced).ok_or_else(|| {
        let names = Zeroing::ALL.map(Zeroing::name);
        format!("should be one of auto, {}", names.join(", "))
    })
}
