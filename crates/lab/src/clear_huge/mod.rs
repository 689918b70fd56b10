//! `softfault clear-huge`: how fast each order clears (or copies) a 2 MiB page, and how
//! fast the program's next loads are.
//!
//! ```text
//! options ──> measure (timed) ──> rows ──> table, output
//!             clearing/folios, clearing/linux, streamer
//! ```
//! This file is the experiment for the runner. Timing happens in [`measure`] and nowhere else.

mod linux_cow;
mod measure;
mod options;
mod output;
mod place;
mod rows;
mod streamer;
mod table;
mod work;

pub use options::Options;

use crate::bench::{self, Experiment, Need, Sampled, Settings};
use crate::clearing::linux;
use crate::error::LabError;
use crate::os;
use linux_cow::Cow;
use measure::Systems;
use place::{DISTANCES, Place};
use rows::Report;
use work::{Job, Load, Sample, Work};

/// Runs the experiment, or the process that forks.
pub fn run(options: &Options) -> Result<(), LabError> {
    options.worker.map_or_else(|| bench::run(options), linux_cow::run)
}

/// The pages, and what is run.
pub struct Bench {
    systems: Systems,
    works: Vec<Work>,
}

impl Experiment for Options {
    const NAME: &'static str = "clear-huge";
    type Bench = Bench;
    type Job = Job;
    type Sample = Sample;
    type Report = Report;

    fn check(&self) -> Result<Option<Need>, LabError> {
        Ok(Some(self.memory()))
    }

    fn set_up(&self) -> Result<Bench, LabError> {
        let cpus = os::allowed_cpus()?;
        let (here, other) = (cpus[0], cpus.get(1).copied());
        os::pin(here)?;
        if other.is_none() {
            eprintln!("softfault: one CPU only: no rows with the other one streaming");
        }
        let works = self.works(self.with_linux() && linux::or_note(linux::gives_huge_pages()?));
        let cow = works.contains(&Work::LinuxCow).then(|| Cow::on(here)).transpose()?;
        Ok(Bench { systems: Systems::new(self.folios, cow, other, self.settings().seed)?, works })
    }

    /// Every work at every distance at which it leaves something to touch: idle, then beside a CPU that streams.
    fn jobs(&self, bench: &Bench) -> Vec<Vec<Job>> {
        let at = |load: Load, work: Work| {
            let places = DISTANCES.iter().map(|&distance| Place::new(self.target, distance));
            let places = places.filter(move |place| !work.is_small() || place.distance == 0);
            places.map(move |place| Job { load, work, place })
        };
        let beside = |load: Load| bench.works.iter().flat_map(|&work| at(load, work)).collect();
        let mut groups = vec![beside(Load::Idle)];
        groups.extend(bench.systems.can_stream().then(|| beside(Load::Streaming)));
        groups
    }

    fn sample(&self, bench: &mut Bench, job: &Job) -> Result<Sample, LabError> {
        bench.systems.sample(job)
    }

    fn report(&self, _: Bench, sampled: Vec<Sampled<Job, Sample>>) -> Result<Report, LabError> {
        Ok(Report::new(self, &sampled))
    }

    fn settings(&self) -> Settings<'_> {
        self.repeated.settings()
    }
}
