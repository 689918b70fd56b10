//! What several experiments have in common: the machine that their rows share, the
//! order of a repetition, medians, tables, arguments.
//!
//! It knows no experiment.

mod arena;
mod options;
mod order;
mod stats;
mod table;

pub use arena::{AGED_FREE_OF_64, Arena, Frames, PAGE_BYTES, bind, calibrated, prepare_frames, warm};
pub use options::{Against, parse_discipline, parse_gib};
pub use order::RandomOrder;
pub use stats::{median, spread};
pub use table::plain_table;
