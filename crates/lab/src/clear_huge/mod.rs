//! `softfault clear-huge`: how fast each order clears (or copies) a 2 MiB page,
//! and how warm it leaves what the program touches next.
//!
//! ```text
//! options ──> measure (timed) ──> rows ──> table, json, plot
//!             clearing/folios, clearing/linux, streamer
//! ```
//! This file is the conductor. Timing happens in [`measure`] and nowhere else.

mod json;
mod linux_cow;
mod measure;
mod options;
mod plot;
mod rows;
mod streamer;
mod table;

pub use options::Options;

use crate::bench::RandomOrder;
use crate::clearing::folios::Folios;
use crate::clearing::linux::{self, Fresh};
use crate::error::LabError;
use crate::os;
use crate::progress;
use linux_cow::Cow;
use measure::{Job, Lines, Load, Place, Sample, Work};
use options::DISTANCES;
use rows::Row;
use streamer::Streamer;

/// Runs it and prints what was asked for.
pub fn run(options: &Options) -> Result<(), LabError> {
    if let Some(cpu) = options.worker {
        return linux_cow::run(cpu);
    }
    os::end_with_the_reader();
    options.check()?;
    let rows = measure_rows(options)?;
    if options.json {
        json::print(options, &rows);
    } else {
        println!("{}", table::text(options, &rows, &os::kernel_release()));
    }
    if let Some(file) = &options.plot {
        plot::draw(file, options, &rows)?;
        eprintln!("softfault: plot written to {}", file.display());
    }
    Ok(())
}

/// All rows, idle ones first.
pub fn measure_rows(options: &Options) -> Result<Vec<Row>, LabError> {
    let cpus = os::allowed_cpus()?;
    let (here, other) = (cpus[0], cpus.get(1).copied());
    os::pin(here)?;
    if other.is_none() {
        eprintln!("softfault: one CPU only: no rows with the other one streaming");
    }
    let works = works(options)?;
    let cow = works.contains(&Work::LinuxCow).then(|| Cow::on(here)).transpose()?;
    let mut systems = Systems { folios: Folios::new(options.folios)?, cow };
    let loads: &[Load] = if other.is_some() { &[Load::Idle, Load::Streaming] } else { &[Load::Idle] };
    let nr_jobs = jobs(options, &works).len();
    let bar = progress::bar(loads.len() as u64 * u64::from(options.reps) * nr_jobs as u64);
    let mut rows = Vec::new();
    let mut random = RandomOrder::new(options.seed);
    for &load in loads {
        let _streamer = other.filter(|_| load == Load::Streaming).map(Streamer::on).transpose()?;
        bar.set_message(load.name());
        let samples = samples(options, &works, &mut systems, &mut random, || bar.inc(1))?;
        rows.extend(rows::rows(options, load, &works, &samples));
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// Who has the pages.
struct Systems {
    folios: Folios,
    cow: Option<Cow>,
}

/// What is run, in the order of the output.
fn works(options: &Options) -> Result<Vec<Work>, LabError> {
    let mut works: Vec<Work> = options.orders().into_iter().map(|how| options.work(how)).collect();
    if options.copy {
        works.push(Work::CopySubpage);
    }
    if options.with_linux() {
        if linux::gives_huge_pages()? {
            works.push(if options.copy { Work::LinuxCow } else { Work::Linux });
        } else {
            eprintln!(
                "softfault: no row of Linux: it gives no huge pages (/sys/kernel/mm/transparent_hugepage/enabled)"
            );
        }
    }
    Ok(works)
}

/// Every work at every distance at which it leaves something to touch.
fn jobs(options: &Options, works: &[Work]) -> Vec<Job> {
    let at = |work: Work| {
        let places = DISTANCES.iter().map(move |&distance| Job { work, place: Place::new(options.target, distance) });
        places.filter(move |job| !work.is_small() || job.place.distance == 0)
    };
    works.iter().flat_map(|&work| at(work)).collect()
}

/// `result[job]` has a sample of each repetition; all jobs of a repetition are
/// run in a random order, so that the host's moods hit all of them alike.
fn samples(
    options: &Options,
    works: &[Work],
    systems: &mut Systems,
    random: &mut RandomOrder,
    mut step: impl FnMut(),
) -> Result<Vec<(Job, Vec<Sample>)>, LabError> {
    let lines: Lines = random.shuffled(crate::clearing::span::NR_LINES);
    let mut all: Vec<(Job, Vec<Sample>)> = jobs(options, works).into_iter().map(|job| (job, Vec::new())).collect();
    let nr_linux = all.iter().filter(|(job, _)| job.work == Work::Linux).count() as u64;
    let mut next_folio = 0;
    for _ in 0..options.reps {
        let fresh = Fresh::new(nr_linux)?;
        let mut next_fresh = 0;
        for i in random.shuffled(all.len()) {
            let (job, samples) = &mut all[i];
            samples.push(match job.work {
                Work::Linux => {
                    next_fresh += 1;
                    measure::linux(&fresh, next_fresh - 1, job.place, &lines)
                }
                Work::LinuxCow => {
                    let cow = systems.cow.as_mut().expect("it was started for this work");
                    cow.sample(options.target)?
                }
                work => {
                    next_folio += 2;
                    measure::ours(&systems.folios, next_folio, work, job.place, &lines)?
                }
            });
            step();
        }
        // What Linux gives next time is cold then, as ours is.
        (0..fresh.nr()).for_each(|i| fresh.span(i).evict());
    }
    Ok(all)
}
