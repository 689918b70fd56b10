//! `softfault anon-w-seq`: processes that each write their own memory in
//! sequence, every 2 MiB of it cleared first in the order under test: the
//! experiment of 2017.
//!
//! ```text
//! options ──> crew (the processes) ──> rows ──> output, plot
//!              └ worker, once a process: clearing/folios, clearing/linux
//! ```
//! This file is the conductor. Timing happens in [`worker`] and nowhere else.

mod crew;
mod options;
mod output;
mod plot;
mod rows;
mod worker;

pub use options::Options;

use crate::bench::RandomOrder;
use crate::error::LabError;
use crate::os;
use crate::progress;
use crew::Crew;
use rows::{Row, Work};

/// Runs it and prints what was asked for.
pub fn run(options: &Options) -> Result<(), LabError> {
    if let Some(cpu) = options.worker {
        return worker::run(options, cpu);
    }
    os::end_with_the_reader();
    let (rows, nr_processes) = (measure_rows(options)?, options.nr_processes()?);
    if options.json {
        output::print_json(options, nr_processes, &rows);
    } else {
        println!("{}", output::text(options, nr_processes, &rows, &os::kernel_release()));
    }
    if let Some(file) = &options.plot {
        plot::draw(file, options, &rows)?;
        eprintln!("softfault: plot written to {}", file.display());
    }
    Ok(())
}

/// All rows, Linux's last.
pub fn measure_rows(options: &Options) -> Result<Vec<Row>, LabError> {
    options.check()?;
    let cpus = os::allowed_cpus()?;
    if options.nr_processes()? > cpus.len() {
        eprintln!("softfault: {} processes share {} CPUs", options.nr_processes()?, cpus.len());
    }
    let mut crew = Crew::start(options, &cpus)?;
    let works = options.works(crew.gives_huge_pages());
    if options.with_linux() && !works.contains(&Work::Linux) {
        eprintln!("softfault: no row of Linux: it gives no huge pages (/sys/kernel/mm/transparent_hugepage/enabled)");
    }
    let bar = progress::bar(u64::from(options.reps) * works.len() as u64);
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); works.len()];
    let mut random = RandomOrder::new(options.seed);
    for rep in 1..=options.reps {
        for i in random.shuffled(works.len()) {
            bar.set_message(format!("repetition {rep}: {}", works[i].name()));
            samples[i].push(crew.bytes_per_s(works[i])?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(rows::rows(&works, &samples))
}
