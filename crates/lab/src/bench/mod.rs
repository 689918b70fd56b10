//! What all experiments share: their shape and its runner, tables, JSON, plots, options; the machine that the rows of
//! an experiment share.
//!
//! It knows no experiment. A new one is its options and their help, an [`Experiment`] for them, a [`Report`], and a line in
//! `main.rs`;
//! `experiment_tests.rs` has a whole one.

mod arena;
mod chart;
mod experiment;
mod json;
mod memory;
mod options;
mod order;
mod stats;
mod table;

pub use arena::{AGED_FREE_OF_64, Arena, Frames, PAGE_BYTES, bind, calibrated, prepare_frames, warm};
pub use chart::{Better, Chart, Mark, Places, Scale, Series, Whose};
pub use experiment::{Experiment, Report, Sampled, measure, run};
pub use json::Lines;
pub use memory::Need;
pub use options::{Against, Once, Repeated, Settings, defaults, parse_fault_locking, parse_gib, typed};
pub use order::RandomOrder;
pub use stats::{Figure, median, paired, spread};
pub use table::{Columns, milliseconds, percent, plain_table, short_gib, times};
