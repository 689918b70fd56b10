//! Arguments that several experiments have.

use clap::ValueEnum;
use softfault::Discipline;

/// What stands beside our rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Against {
    /// The host's kernel
    Linux,
    /// Nothing
    None,
}

/// Some memory.
pub fn parse_gib(text: &str) -> Result<f64, String> {
    let wanted = "should be a number of GiB from 0.001 to 16384, such as 1 or 0.25";
    let gib: f64 = text.parse().map_err(|_| wanted.to_string())?;
    if (0.001..=16384.0).contains(&gib) { Ok(gib) } else { Err(wanted.into()) }
}

/// One discipline by its name.
pub fn parse_discipline(text: &str) -> Result<Discipline, String> {
    Discipline::ALL.into_iter().find(|d| d.name() == text).ok_or_else(|| {
        let names: Vec<&str> = Discipline::ALL.iter().map(|d| d.name()).collect();
        format!("should be one of {}", names.join(", "))
    })
}
