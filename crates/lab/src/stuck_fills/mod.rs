//! `softfault stuck-fills`: what mmap, a resident fault and munmap take while reads of a file never end.
//!
//! ```text
//! options ──> calls: timed one by one, beside threads that sleep ──> report: percentiles, ratios
//!             gate: where these threads sleep, in a fill or outside
//! ```
//! This file is the experiment for the runner.

mod calls;
mod gate;
mod options;
mod report;

pub use options::Options;

use crate::bench::{Arena, Experiment, Need, Sampled, Settings, warm};
use crate::error::LabError;
use calls::{Beside, Sample};
use report::Report;
use softfault_host::{Hosted, HostedConfig};

impl Experiment for Options {
    const NAME: &'static str = "stuck-fills";
    type Bench = Arena;
    type Job = Beside;
    type Sample = Sample;
    type Report = Report;

    fn check(&self) -> Result<Option<Need>, LabError> {
        Ok(Some(Need::of("--ops", self.ops, self.arena_bytes())))
    }

    fn set_up(&self) -> Result<Arena, LabError> {
        let config = HostedConfig::default().with_nr_cpus(self.nr_cpus()).with_arena_bytes(self.arena_bytes());
        let mut hosted = Hosted::new(config).map_err(|e| LabError::host("the hosted machine", e))?;
        warm(&mut hosted);
        Ok(Arena::of(hosted))
    }

    fn jobs(&self, _: &Arena) -> Vec<Vec<Beside>> {
        vec![Beside::BOTH.to_vec()]
    }

    fn sample(&self, arena: &mut Arena, job: &Beside) -> Result<Sample, LabError> {
        calls::run(self, arena, *job)
    }

    fn report(&self, _: Arena, sampled: Vec<Sampled<Beside, Sample>>) -> Result<Report, LabError> {
        Ok(Report::new(self, &sampled))
    }

    fn settings(&self) -> Settings<'_> {
        self.repeated.settings()
    }
}
