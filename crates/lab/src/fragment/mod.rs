//! `softfault fragment`: memory fragmented on purpose, how far it is, and what a
//! program pays there for being allowed huge pages that it cannot get.
//!
//! ```text
//! options ──> holders: one frame kept in each block ──> program (timed, twice) ──> reckon
//!                                                            table, json, plot <──┘
//! ```
//! This file is the conductor; timing happens in [`program`].

mod holders;
mod json;
mod options;
mod plot;
mod program;
mod reckon;
mod table;

pub use options::Options;
pub use reckon::Report;

use crate::bench::{Arena, RandomOrder, warm};
use crate::error::LabError;
use crate::os;
use crate::progress;
use program::{ENABLED, Sample};
use softfault_host::{Hosted, HostedConfig};

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
    options.check()?;
    let cpu = *os::allowed_cpus()?.first().ok_or_else(|| LabError::host("sched_getaffinity", "no CPU"))?;
    let mut hosted = Hosted::new(HostedConfig::default().with_arena_bytes(options.arena_bytes()).with_huge(true))
        .map_err(|e| LabError::host("the hosted machine", e))?;
    warm(&mut hosted);
    let mut arena = Arena::of(hosted);
    let bar = progress::bar(u64::from(options.reps) * ENABLED.len() as u64);
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); ENABLED.len()];
    let mut order = RandomOrder::new(options.seed);
    for rep in 1..=options.reps {
        for i in order.shuffled(ENABLED.len()) {
            bar.set_message(format!("repetition {rep}: enabled={}", ENABLED[i].name()));
            samples[i].push(os::on_cpu(cpu, || program::run(options, &mut arena, ENABLED[i]))?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Report::new(options, samples)
}
