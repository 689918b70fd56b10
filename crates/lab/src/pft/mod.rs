//! `softfault pft`: first-touch faults per second, four disciplines of ours and
//! the host's Linux, in the table of 2004.
//!
//! ```text
//! options ──> plan ──> measure (timed) ──> stats ──> table, json, plot
//!                                                     history (the rows of 2004)
//! ```
//! This file is the conductor. Timing happens in [`measure`] and nowhere else.

mod history;
mod json;
mod measure;
mod options;
mod plan;
mod plot;
mod stats;
mod table;
mod ways;
mod write;

pub use options::Options;

use crate::bench::{Against, Arena, RandomOrder, calibrated, warm};
use crate::error::LabError;
use crate::os;
use crate::progress;
use measure::{Load, Sample};
use options::{Pages, Rss};
use plan::{Job, Work};
use softfault::clear::{ClearTable, Ways};
use softfault::policy::huge::Enabled;
use softfault::{HugeKnobs, Order, Tunables};
use softfault_host::{Hosted, HostedConfig};
use stats::Row;

/// Runs it and prints what was asked for.
pub fn run(options: &Options) -> Result<(), LabError> {
    os::end_with_the_reader();
    let cpus = os::allowed_cpus()?;
    note_what_is_odd(options, cpus.len());
    let Measured { rows, zeroing } = measure_rows(options, &cpus)?;
    if options.json {
        json::print(&rows);
    } else {
        println!("{}", ours(options, &rows));
        if !options.frames.are_zero() && options.pages == Pages::Small {
            println!("{}\n", ways::table(&zeroing));
        }
        println!("{}", table::of_2004(&history::rows()));
    }
    if let Some(file) = &options.plot {
        plot::draw(file, options, &rows, &history::rows())?;
        eprintln!("softfault: plot written to {}", file.display());
    }
    Ok(())
}

/// The table of our rows and Linux's.
pub fn ours(options: &Options, rows: &[Row]) -> String {
    table::ours(options, rows, &os::kernel_release())
}

/// What a run has found.
pub struct Measured {
    /// All rows of the experiment, in the order in which they are printed.
    pub rows: Vec<Row>,
    /// What the library's choice of zeroing rests on.
    pub zeroing: ClearTable,
}

/// Runs everything.
pub fn measure_rows(options: &Options, cpus: &[usize]) -> Result<Measured, LabError> {
    let thread_counts = options.thread_counts(cpus.len());
    let max_threads = *thread_counts.last().expect("thread_counts is never empty");
    options.check(max_threads)?;
    let mut hosted = Hosted::new(
        HostedConfig::default()
            .with_nr_cpus(max_threads)
            .with_arena_bytes(options.arena_bytes(max_threads))
            .with_huge(true),
    )
    .map_err(|e| LabError::host("the hosted machine", e))?;
    options.check_zeroing(Ways::of(&hosted))?;
    warm(&mut hosted);
    let measured = calibrated(&mut hosted);
    let mut arena = Arena::of(hosted);

    let jobs = plan::jobs(options, &thread_counts);
    let bar = progress::bar((jobs.len() * options.reps as usize) as u64);
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); jobs.len()];
    let mut order = RandomOrder::new(options.seed);
    for rep in 1..=options.reps {
        for i in order.shuffled(jobs.len()) {
            bar.set_message(format!("repetition {rep}: {}", jobs[i]));
            samples[i].push(measure_one(options, &jobs[i], &mut arena, cpus, &measured)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(Measured { rows: stats::rows(options, &jobs, &samples), zeroing: measured })
}

/// `measured`: how the library zeroes where nobody forces it.
fn measure_one(
    options: &Options,
    job: &Job,
    arena: &mut Arena,
    cpus: &[usize],
    measured: &ClearTable,
) -> Result<Sample, LabError> {
    let (nr_pages, write) = (options.nr_pages(), options.written());
    let load = Load { nr_threads: job.nr_threads, cpus, nr_pages, pages: options.pages, write };
    let how = measured.best(Order::PMD).filter(|_| options.pages == Pages::Huge);
    let enabled = if options.pages == Pages::Huge { Enabled::Always } else { Enabled::Never };
    let tunables = Tunables::default()
        .with_rss_percpu(options.rss == Rss::Percpu)
        .with_thp(HugeKnobs::DEFAULT.with_enabled(enabled))
        .with_clear_order(how)
        .with_zeroing(job.zeroing.tunable());
    match job.work {
        Work::Ours(discipline) => {
            let tunables = tunables.with_discipline(discipline);
            measure::faults(&load, arena, options.frames, tunables, measured)
        }
        Work::LinuxTouch => measure::linux_touch(&load),
        Work::LinuxPopulate => measure::linux_populate(&load),
        Work::ZeroSingly => measure::zero(&load, arena.hosted(), 1),
        Work::ZeroInBatches => match how {
            Some(how) => measure::clear(&load, arena.hosted_mut(), how),
            None => measure::zero(&load, arena.hosted(), tunables.zero_batch),
        },
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
