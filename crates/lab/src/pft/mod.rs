//! `softfault pft`: first-touch faults per second, four fault-locking modes of ours and
//! the host's Linux, in the table of 2004.
//!
//! ```text
//! options ──> plan ──> measure (timed) ──> stats ──> table, output
//!                                           history (the rows of 2004)
//! ```
//! This file is the experiment for the runner. Timing happens in [`measure`] and nowhere else.

mod history;
mod measure;
mod options;
mod output;
mod plan;
mod stats;
mod table;
mod ways;
mod write;

pub use options::Options;

use crate::bench::{Against, Arena, Experiment, Need, Sampled, Settings, calibrated, warm};
use crate::error::LabError;
use crate::os;
use measure::{Load, Sample};
use options::{Pages, Rss};
use plan::{Job, Work};
use softfault::clear::{ClearTable, Ways};
use softfault::policy::huge::Enabled;
use softfault::{HugeKnobs, Order, Tunables};
use softfault_host::{Hosted, HostedConfig};
use stats::Report;

/// The machine, and the host's CPUs that its threads run on.
pub struct Bench {
    arena: Arena,
    cpus: Vec<usize>,
    /// How the library zeroes where nobody forces it.
    measured: ClearTable,
}

impl Experiment for Options {
    const NAME: &'static str = "pft";
    type Bench = Bench;
    type Job = Job;
    type Sample = Sample;
    type Report = Report;

    fn check(&self) -> Result<Option<Need>, LabError> {
        let nr_cpus = os::allowed_cpus()?.len();
        note_what_is_odd(self, nr_cpus);
        self.check_for(self.max_threads(nr_cpus)).map(Some)
    }

    fn set_up(&self) -> Result<Bench, LabError> {
        let cpus = os::allowed_cpus()?;
        let max_threads = self.max_threads(cpus.len());
        let config = HostedConfig::default().with_nr_cpus(max_threads);
        let mut hosted = Hosted::new(config.with_arena_bytes(self.arena_bytes(max_threads)).with_huge(true))
            .map_err(|e| LabError::host("the hosted machine", e))?;
        self.zeroing.iter().try_for_each(|chosen| chosen.check(Ways::of(&hosted)))?;
        warm(&mut hosted);
        let measured = calibrated(&mut hosted);
        Ok(Bench { arena: Arena::of(hosted), cpus, measured })
    }

    fn jobs(&self, bench: &Bench) -> Vec<Vec<Job>> {
        vec![plan::jobs(self, &self.thread_counts(bench.cpus.len()))]
    }

    fn sample(&self, bench: &mut Bench, job: &Job) -> Result<Sample, LabError> {
        let Bench { arena, cpus, measured } = bench;
        let (nr_pages, write) = (self.nr_pages(), self.written());
        let load = Load { nr_threads: job.nr_threads, cpus, nr_pages, pages: self.pages, write };
        let how = measured.best(Order::PMD).filter(|_| self.pages == Pages::Huge);
        let enabled = if self.pages == Pages::Huge { Enabled::Always } else { Enabled::Never };
        let tunables = Tunables::default()
            .with_rss_percpu(self.rss == Rss::Percpu)
            .with_thp(HugeKnobs::DEFAULT.with_enabled(enabled))
            .with_clear_order(how)
            .with_zeroing(job.zeroing.tunable());
        match job.work {
            Work::Ours(fault_locking) => {
                let tunables = tunables.with_fault_locking(fault_locking);
                measure::faults(&load, arena, self.frames, tunables, measured)
            }
            Work::LinuxTouch => measure::linux_touch(&load),
            Work::LinuxPopulate => measure::linux_populate(&load),
            Work::ZeroSingly => measure::zero(&load, arena.hosted(), 1),
            Work::ZeroInBatches => match how {
                Some(how) => measure::clear(&load, arena.hosted_mut(), how, measured.large()),
                None => measure::zero(&load, arena.hosted(), tunables.zero_batch),
            },
        }
    }

    fn report(&self, bench: Bench, sampled: Vec<Sampled<Job, Sample>>) -> Result<Report, LabError> {
        let (rows, kernel) = (stats::rows(self, &sampled), os::kernel_release());
        Ok(Report { options: self.clone(), kernel, rows, zeroing: bench.measured })
    }

    fn settings(&self) -> Settings<'_> {
        self.repeated.settings()
    }
}

fn note_what_is_odd(options: &Options, nr_cpus: usize) {
    if options.against == Against::Linux && !options.with_linux() {
        eprintln!(
            "softfault: no rows of Linux: with --frames {} a comparison would mean nothing",
            options.frames.name()
        );
    }
    if let Some(over) = options.thread_counts(nr_cpus).into_iter().find(|&t| t > nr_cpus) {
        eprintln!("softfault: {over} threads share {nr_cpus} CPUs: such rows measure the host's scheduler too");
    }
}
