//! `softfault conflicts`: counts the cache lines that move between CPUs in page faults, for
//! up to 512 CPUs.
//!
//! ```text
//!                history: how memory came to be what it is, where it has aged
//!                │
//! options ──> simulate: faults, turn by turn, on the recorded core
//!                │ every touch of a shared cell          machine: CPUs in turn
//!                └──> lines: who wrote the line last ──> report, output
//! ```
//! This file is the experiment for the runner.

mod history;
mod lines;
pub(crate) mod machine;
mod options;
mod output;
mod pool;
mod report;
mod simulate;

pub use options::Options;

use crate::bench::{Experiment, Need, Sampled, Settings};
use crate::error::LabError;
use report::Report;
use simulate::Counted;

impl Experiment for Options {
    const NAME: &'static str = "conflicts";
    type Bench = ();
    /// The layout.
    type Job = &'static str;
    type Sample = Counted;
    type Report = Report;

    fn check(&self) -> Result<Option<Need>, LabError> {
        self.check_arguments().map(|()| Some(self.memory()))
    }

    fn set_up(&self) -> Result<(), LabError> {
        Ok(())
    }

    fn jobs(&self, (): &()) -> Vec<Vec<&'static str>> {
        vec![vec![self.layout.name()]]
    }

    fn sample(&self, (): &mut (), _: &&'static str) -> Result<Counted, LabError> {
        simulate::run(self, || ())
    }

    fn report(&self, (): (), sampled: Vec<Sampled<&'static str, Counted>>) -> Result<Report, LabError> {
        let counted = sampled.into_iter().flat_map(|of| of.samples).next();
        counted.map(|counted| Report::new(self, counted)).ok_or_else(|| LabError::subsystem("the run", "has no sample"))
    }

    fn settings(&self) -> Settings<'_> {
        self.output.settings()
    }
}
