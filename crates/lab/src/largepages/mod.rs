//! `softfault largepages`: the program of 2011 that demonstrated transparent huge pages, on
//! the hosted machine and on the host's Linux, without and with huge pages, and with those of a pool.
//!
//! ```text
//! options ──> plan ──> ours, linux (timed) ──> reckon ──> table, output
//!                      passes (counted)           history (2011)
//! ```
//! This file is the experiment for the runner. Timing happens in [`ours`] and [`linux`], both
//! through [`program`], and nowhere else.

mod history;
mod linux;
mod options;
mod ours;
mod output;
mod passes;
mod plan;
mod program;
mod reckon;
mod table;

pub use options::Options;

use crate::bench::{Experiment, HostPool, Need, Sampled, Settings};
use crate::error::LabError;
use crate::os;
use crate::stage::{PAGE_BYTES, PIECE_BYTES};
use ours::Arenas;
use plan::{Job, System};
use program::Sample;
use reckon::Report;

/// Our machines, and how large the program is.
pub struct Bench {
    arenas: Arenas,
    nr_pages: u64,
    cpu: usize,
    /// The host's pool, or why there is none.
    pool: Option<Result<HostPool, String>>,
}

impl Experiment for Options {
    const NAME: &'static str = "largepages";
    type Bench = Bench;
    type Job = Job;
    type Sample = Sample;
    type Report = Report;

    /// Memory is looked at in [`Options::settle`], which may make the default smaller.
    fn check(&self) -> Result<Option<Need>, LabError> {
        Ok(None)
    }

    fn set_up(&self) -> Result<Bench, LabError> {
        let nr_pages = self.settle()?;
        let cpu = *os::allowed_cpus()?.first().ok_or_else(|| LabError::host("sched_getaffinity", "no CPU"))?;
        // Before our arenas take what is free.
        let pool = self.with_host_pool().then(|| HostPool::grown(PIECE_BYTES, nr_pages * PAGE_BYTES / PIECE_BYTES));
        Ok(Bench { arenas: Arenas::new(self, nr_pages)?, nr_pages, cpu, pool })
    }

    fn jobs(&self, bench: &Bench) -> Vec<Vec<Job>> {
        vec![plan::jobs(self, matches!(bench.pool, Some(Ok(_))))]
    }

    fn sample(&self, bench: &mut Bench, job: &Job) -> Result<Sample, LabError> {
        let Bench { arenas, nr_pages, cpu, .. } = bench;
        os::on_cpu(*cpu, || match job.system {
            System::Softfault => ours::run(arenas, job.thp, *nr_pages),
            System::Linux => linux::run(job.thp, *nr_pages),
        })
    }

    fn report(&self, bench: Bench, sampled: Vec<Sampled<Job, Sample>>) -> Result<Report, LabError> {
        let Bench { mut arenas, nr_pages, cpu, pool } = bench;
        let passes = os::on_cpu(cpu, || passes::count(&mut arenas, nr_pages))?;
        Ok(Report::new(self, nr_pages, &sampled, (passes, pool.and_then(Result::err)), &arenas))
    }

    fn settings(&self) -> Settings<'_> {
        self.repeated.settings()
    }
}
