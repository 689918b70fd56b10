//! Shared by all experiments: the `Experiment` trait and its runner, tables, JSON, plots, options, and the machine on
//! which an experiment runs its rows.
//!
//! It names no experiment. A new experiment needs options with their help, an [`Experiment`] implementation, a [`Report`]
//! and a line in `main.rs`; `experiment_tests.rs` has a whole one.

mod arena;
mod chart;
pub mod crew;
mod experiment;
mod host_pool;
mod json;
mod knob;
mod memory;
mod options;
mod order;
mod stats;
mod table;
mod window;
mod zeroing;

pub use arena::{AGED_FREE_OF_64, Arena, Frames, PAGE_BYTES, bind, calibrated, prepare_frames, warm};
pub use chart::{Better, Chart, Mark, Places, Scale, Series, Whose};
pub use experiment::{Experiment, Report, Sampled, measure, run, show};
pub use host_pool::HostPool;
pub use json::Lines;
pub use knob::Knob;
pub use memory::Need;
pub use options::{
    Against, MAX_THREADS, Once, Output, Repeated, Settings, defaults, parse_fault_locking, parse_gib,
    parse_hugetlb_locking, thread_counts, typed,
};
pub use order::RandomOrder;
pub use stats::{Figure, median, paired, spread};
pub use table::{Columns, milliseconds, percent, plain_table, short_gib, times};
pub use window::{Window, parse_window};
pub use zeroing::{Chosen, parse_zeroing};
