//! `softfault parallel-fault`: the program of 2013 that showed what one mutex around page faults on huge pages costs, on the
//! hosted machine and on the host's Linux.
//!
//! ```text
//! options ──> plan ──> ours, linux, clear (timed, in the steps of bench/crew) ──> reckon ──> table, output
//!                      load: who touches what    way, linux_clear: how           history (2013)
//! ```
//! This file is the experiment for the runner.

mod clear;
mod history;
mod linux;
mod linux_clear;
mod load;
mod options;
mod ours;
mod output;
mod plan;
mod reckon;
mod table;
mod way;

pub use options::Options;

use crate::bench::{self, Arena, Experiment, HostPool, Need, Sampled, Settings};
use crate::error::LabError;
use crate::os;
use linux_clear::LinuxWay;
use load::{Load, Sample};
use plan::{Job, System};
use reckon::Report;
use softfault::clear::{ClearTable, Ways as Instructions};
use softfault_host::{Hosted, HostedConfig};
use way::{Way, Ways};

/// Our machine, and the host's pool.
pub struct Bench {
    load: Load,
    max_threads: usize,
    arena: Arena,
    measured: ClearTable,
    ways: Ways,
    /// Or why there is none.
    pool: Option<Result<HostPool, String>>,
}

impl Experiment for Options {
    const NAME: &'static str = "parallel-fault";
    type Bench = Bench;
    type Job = Job;
    type Sample = Sample;
    type Report = Report;

    /// Memory is looked at in [`Options::settle`], which may make the default smaller.
    fn check(&self) -> Result<Option<Need>, LabError> {
        Ok(None)
    }

    fn set_up(&self) -> Result<Bench, LabError> {
        let cpus = os::allowed_cpus()?;
        let max_threads = self.max_threads(cpus.len());
        let nr_pages = self.settle(max_threads, os::available_bytes().unwrap_or(u64::MAX))?;
        // Before our arena takes what is free.
        let pool = self.with_linux().then(|| HostPool::grown(self.page.bytes(), nr_pages));
        let config = HostedConfig::default()
            .with_nr_cpus(max_threads)
            .with_arena_bytes(self.arena_bytes(nr_pages, max_threads))
            .with_huge(true);
        let mut hosted = Hosted::new(config).map_err(|e| LabError::host("the hosted machine", e))?;
        bench::warm(&mut hosted);
        let instructions = Instructions::of(&hosted);
        self.zeroing.check(instructions)?;
        let measured = bench::calibrated(&mut hosted);
        let (page_bytes, skip_bytes) = (self.page.bytes(), self.skip_bytes());
        let load = Load { shape: self.shape, nr_pages, page_bytes, skip_bytes, cpus };
        if matches!(pool, Some(Ok(_))) {
            // As our arena: pages that a virtual machine touches for the first time ever cost far more than a fault.
            linux::run(self, &load, max_threads)?;
        }
        let mut arena = Arena::of(hosted);
        let candidates = Way::candidates(&measured, self.zeroing, instructions);
        let limit = |nr_threads| Ok((nr_threads, clear::fastest(&mut arena, &candidates, &load, nr_threads)?));
        let limits = plan::thread_counts(max_threads).into_iter().map(limit).collect::<Result<_, LabError>>()?;
        let linux = LinuxWay::assumed(load.page_bytes);
        let ways = Ways { faults: Way::of_faults(&measured, self.zeroing), limits, linux };
        Ok(Bench { load, max_threads, arena, measured, ways, pool })
    }

    fn jobs(&self, bench: &Bench) -> Vec<Vec<Job>> {
        vec![plan::jobs(self, bench.max_threads, matches!(bench.pool, Some(Ok(_))))]
    }

    fn sample(&self, bench: &mut Bench, job: &Job) -> Result<Sample, LabError> {
        let Bench { load, arena, measured, ways, .. } = bench;
        match job.system {
            System::Softfault(locking) => ours::run(arena, measured, (self, load), (locking, job.nr_threads)),
            System::Linux => linux::run(self, load, job.nr_threads),
            System::LinuxClear => clear::run(arena, |part, at| ways.linux.clear(part, at), load, job.nr_threads),
            System::WarmClear => clear::run(arena, |part, at| ways.faults.clear(part, at), load, job.nr_threads),
            System::Clear => {
                let way = ways.limit(job.nr_threads).expect("a limit for each row");
                clear::run(arena, |part, at| way.clear(part, at), load, job.nr_threads)
            }
        }
    }

    fn report(&self, bench: Bench, sampled: Vec<Sampled<Job, Sample>>) -> Result<Report, LabError> {
        let why = bench.pool.and_then(Result::err);
        Ok(Report::new(self, &bench.load, &sampled, &bench.ways, why))
    }

    fn settings(&self) -> Settings<'_> {
        self.repeated.settings()
    }
}
