//! `softfault anon-w-seq`, the experiment of 2017: processes write their own memory in
//! sequence. Each 2 MiB is first cleared in the order under test.
//!
//! ```text
//! options ──> crew (the processes) ──> rows ──> output
//!              └ worker, once a process: clearing/folios, clearing/linux
//! ```
//! This file is the experiment for the runner. Timing happens in [`worker`] and nowhere else.

mod crew;
mod options;
mod output;
mod rows;
mod work;
mod worker;

pub use options::Options;

use crate::bench::{self, Experiment, Need, Sampled, Settings};
use crate::clearing::linux;
use crate::error::LabError;
use crate::os;
use crew::Crew;
use rows::Report;
use work::Work;

/// Runs the experiment, or one of its processes.
pub fn run(options: &Options) -> Result<(), LabError> {
    options.worker.map_or_else(|| bench::run(options), |cpu| worker::run(options, cpu))
}

impl Experiment for Options {
    const NAME: &'static str = "anon-w-seq";
    type Bench = Crew;
    type Job = Work;
    /// Bytes written per second by all processes.
    type Sample = f64;
    type Report = Report;

    fn check(&self) -> Result<Option<Need>, LabError> {
        self.memory().map(Some)
    }

    fn set_up(&self) -> Result<Crew, LabError> {
        let (cpus, nr_processes) = (os::allowed_cpus()?, self.nr_processes()?);
        if nr_processes > cpus.len() {
            eprintln!("softfault: {nr_processes} processes share {} CPUs", cpus.len());
        }
        Crew::start(self, nr_processes, &cpus)
    }

    fn jobs(&self, crew: &Crew) -> Vec<Vec<Work>> {
        let with_linux = self.with_linux() && linux::or_note(crew.gives_huge_pages());
        vec![self.works(with_linux)]
    }

    fn sample(&self, crew: &mut Crew, work: &Work) -> Result<f64, LabError> {
        crew.bytes_per_s(*work)
    }

    fn report(&self, crew: Crew, sampled: Vec<Sampled<Work, f64>>) -> Result<Report, LabError> {
        Ok(Report::new(self, crew.nr_processes(), &sampled))
    }

    fn settings(&self) -> Settings<'_> {
        self.repeated.settings()
    }
}
