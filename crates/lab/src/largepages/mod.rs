//! `softfault largepages`: the program that transparent huge pages were shown
//! with in 2011, on our hosted machine and on the host's Linux, without and with
//! huge pages.
//!
//! ```text
//! options ──> plan ──> ours, linux (timed) ──> reckon ──> table, json, plot
//!                      passes (counted)                   history (2011)
//! ```
//! This file is the conductor. Timing happens in [`ours`] and [`linux`], both
//! through [`program`], and nowhere else.

mod history;
mod json;
mod linux;
mod options;
mod ours;
mod passes;
mod plan;
mod plot;
mod program;
mod reckon;
mod table;

pub use options::Options;
pub use reckon::Report;

use crate::bench::RandomOrder;
use crate::error::LabError;
use crate::os;
use crate::progress;
use ours::Arenas;
use plan::{Job, System};
use program::Sample;

/// Runs it and prints what was asked for.
pub fn run(options: &Options) -> Result<(), LabError> {
    os::end_with_the_reader();
    let report = measure(options)?;
    if options.json {
        json::print(&report);
    } else {
        println!("{}", report.text());
    }
    if let Some(file) = &options.plot {
        plot::draw(file, &report)?;
        eprintln!("softfault: plot written to {}", file.display());
    }
    Ok(())
}

/// Everything that is printed.
pub fn measure(options: &Options) -> Result<Report, LabError> {
    let nr_pages = options.settle()?;
    let cpu = *os::allowed_cpus()?.first().ok_or_else(|| LabError::host("sched_getaffinity", "no CPU"))?;
    let mut arenas = Arenas::new(options, nr_pages)?;
    let jobs = plan::jobs(options);
    let bar = progress::bar(jobs.len() as u64 * u64::from(options.reps) + 1);
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); jobs.len()];
    let mut order = RandomOrder::new(options.seed);
    for rep in 1..=options.reps {
        for i in order.shuffled(jobs.len()) {
            bar.set_message(format!("repetition {rep}: {}", jobs[i]));
            samples[i].push(os::on_cpu(cpu, || measure_one(&jobs[i], nr_pages, &mut arenas))?);
            bar.inc(1);
        }
    }
    bar.set_message("passes through the emulated TLB");
    let passes = os::on_cpu(cpu, || passes::count(&mut arenas, nr_pages))?;
    bar.finish_and_clear();
    Ok(Report::new(options, nr_pages, &jobs, &samples, passes, &arenas))
}

fn measure_one(job: &Job, nr_pages: u64, arenas: &mut Arenas) -> Result<Sample, LabError> {
    match job.system {
        System::Softfault => ours::run(arenas, job.thp, nr_pages),
        System::Linux => linux::run(job.thp, nr_pages),
    }
}
