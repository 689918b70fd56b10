//! `softfault fragment`: fragments memory, measures the fragmentation, and times a program
//! that may use huge pages but finds none.
//!
//! ```text
//! options ──> holders: one frame kept in each block ──> program (timed, twice) ──> reckon
//!                                                                table, output <──┘
//! ```
//! This file is the experiment for the runner; timing happens in [`program`].

mod holders;
mod options;
mod output;
mod program;
mod reckon;
mod table;

pub use options::Options;

use crate::bench::{Arena, Experiment, Need, Sampled, Settings, warm};
use crate::error::LabError;
use crate::os;
use program::{Job, Sample};
use reckon::Report;
use softfault_host::{Hosted, HostedConfig};

/// The machine, and the host's CPU on which it runs.
pub struct Bench {
    arena: Arena,
    cpu: usize,
}

impl Experiment for Options {
    const NAME: &'static str = "fragment";
    type Bench = Bench;
    type Job = Job;
    type Sample = Sample;
    type Report = Report;

    fn check(&self) -> Result<Option<Need>, LabError> {
        self.memory().map(Some)
    }

    fn set_up(&self) -> Result<Bench, LabError> {
        let cpu = *os::allowed_cpus()?.first().ok_or_else(|| LabError::host("sched_getaffinity", "no CPU"))?;
        let mut hosted = Hosted::new(HostedConfig::default().with_arena_bytes(self.arena_bytes()).with_huge(true))
            .map_err(|e| LabError::host("the hosted machine", e))?;
        warm(&mut hosted);
        Ok(Bench { arena: Arena::of(hosted), cpu })
    }

    fn jobs(&self, _: &Bench) -> Vec<Vec<Job>> {
        vec![Job::BOTH.to_vec()]
    }

    fn sample(&self, bench: &mut Bench, job: &Job) -> Result<Sample, LabError> {
        os::on_cpu(bench.cpu, || program::run(self, &mut bench.arena, *job))
    }

    fn report(&self, _: Bench, sampled: Vec<Sampled<Job, Sample>>) -> Result<Report, LabError> {
        Report::new(self, &sampled)
    }

    fn settings(&self) -> Settings<'_> {
        self.repeated.settings()
    }
}
