//! `softfault conflicts`: counts the cache lines that move between CPUs in page faults, for
//! up to 512 CPUs.
//!
//! ```text
//!                history: how memory came to be what it is, where it has aged
//!                │
//! options ──> simulate: faults, turn by turn, on the recorded core
//!                │ every touch of a shared cell          machine: CPUs in turn
//!                └──> lines: who wrote the line last ──> report
//! ```

mod history;
mod lines;
pub(crate) mod machine;
mod options;
mod pool;
mod report;
mod simulate;

pub use options::Options;
pub use report::Report;

use crate::error::LabError;
use crate::os;

/// Runs it and prints what was asked for.
pub fn run(options: &Options) -> Result<(), LabError> {
    os::end_with_the_reader();
    let report = measure(options)?;
    if options.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.text());
    }
    Ok(())
}

/// Runs it.
pub fn measure(options: &Options) -> Result<Report, LabError> {
    options.check()?;
    let counted = simulate::run(options, || ())?;
    Ok(Report::new(options, counted))
}
