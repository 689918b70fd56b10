//! An experiment of the document: its commands, and how their rows are shown. `list.rs`, `files.rs` and `hugetlb.rs` have them.

mod files;
mod hugetlb;
mod list;

use super::store::Row;
pub use list::EXPERIMENTS;

/// Whether another CPU would give other figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Depends {
    /// Times and rates.
    OnTheCpu,
    /// Counts on simulated CPUs or in an emulator.
    OnNothing,
}

/// A command of the laboratory, without `--json`.
pub struct Command {
    /// For the document.
    pub full: &'static str,
    /// In seconds, to see that it works.
    pub quick: &'static str,
}

/// How a value is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// As it is.
    Text,
    /// A whole number.
    Count,
    /// With so many digits behind the point.
    Fixed(usize),
    /// A ratio.
    Times,
    /// A part of one.
    Percent,
    /// A rate.
    Millions,
    /// A time in seconds.
    Milliseconds,
}

/// A column of a table.
pub struct Column {
    /// Its name.
    pub head: &'static str,
    /// The key in JSON.
    pub key: &'static str,
    /// How it is written.
    pub how: How,
}

/// Makes few rows of many.
pub type Gather = fn(&[Row]) -> Vec<Row>;

/// A table of some of an experiment's rows.
pub struct Table {
    /// Keys and the values that they must have, several with `|`.
    pub only: &'static [(&'static str, &'static str)],
    /// From left to right.
    pub columns: &'static [Column],
    /// Shown is what this makes of the rows.
    pub gather: Option<Gather>,
}

/// An experiment, which is a section of the document.
pub struct Experiment {
    /// For `--only`, and of the file.
    pub name: &'static str,
    /// Of the section.
    pub title: &'static str,
    /// The quantity, and notes for the reader of the figures.
    pub about: &'static str,
    /// Whether another CPU would give other figures.
    pub depends: Depends,
    /// The commands.
    pub runs: &'static [Command],
    /// The tables.
    pub tables: &'static [Table],
}

impl Experiment {
    /// Whether a table needs the key.
    pub fn shows(&self, key: &str) -> bool {
        let in_table = |table: &Table| {
            table.only.iter().any(|(only, _)| *only == key) || table.columns.iter().any(|column| column.key == key)
        };
        self.tables.iter().any(in_table)
    }
}

impl Table {
    /// Whether it has the row.
    pub fn takes(&self, row: &Row) -> bool {
        let has = |(key, values): &(&str, &str)| {
            row.get(*key).is_some_and(|value| {
                let text = value.as_str().map_or_else(|| value.to_string(), String::from);
                values.split('|').any(|wanted| wanted == text)
            })
        };
        self.only.iter().all(has)
    }
}

const fn column(head: &'static str, key: &'static str, how: How) -> Column {
    Column { head, key, how }
}

const fn table(only: &'static [(&'static str, &'static str)], columns: &'static [Column]) -> Table {
    Table { only, columns, gather: None }
}
