//! `softfault compare`: the same program on the reference kernel and on Debian's
//! Linux, in the same QEMU.
//!
//! ```text
//! options ──> linux (a kernel) ──> boot (QEMU, the probe) ──> record ──> reckon ──> table, output
//!                                                        └──> count (--icount)
//! ```
//! This file is the experiment for the runner, `count` another one. The clock is read inside the
//! machines, by the probe (`probe/`), and nowhere else.

mod around;
mod boot;
mod count;
mod linux;
mod options;
mod output;
mod reckon;
mod record;
mod system;
mod table;

pub use around::{Around, around};
pub use options::Options;

use crate::bench::{self, Experiment, Need, Sampled, Settings};
use crate::error::LabError;
use crate::run::RunError;
use boot::Bench;
use count::Icount;
use output::Report;
use reckon::Sample;
use record::Ran;
use std::process::ExitCode;
use system::System;

/// Runs it; the exit code is the program's, or says what went wrong.
pub fn main(options: &Options) -> ExitCode {
    run(options).unwrap_or_else(|error| {
        eprintln!("softfault compare: {error}");
        error.exit_code()
    })
}

fn run(options: &Options) -> Result<ExitCode, LabError> {
    if options.icount {
        let icount = Icount(options);
        bench::show(&icount, &bench::measure(&icount)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = bench::measure(options)?;
    report.pass_on()?;
    bench::show(options, &report)?;
    report.tell_differences();
    Ok(ExitCode::from(report.exit_code()))
}

/// Prepares the boots; Linux is found or fetched first.
fn prepare(options: &Options) -> Result<Bench, LabError> {
    options.nr_cpus().map_err(machine)?;
    let needs_linux = options.systems().contains(&System::Linux);
    let linux = needs_linux.then(|| linux::find(options.linux.as_deref())).transpose().map_err(machine)?;
    Bench::new(options, linux.as_ref()).map_err(machine)
}

/// The error of a boot, with its exit code.
fn machine(error: RunError) -> LabError {
    LabError::Machine { code: error.exit_code(), why: error.to_string() }
}

/// The boots, and the first run on each system.
type Machines = (Bench, Vec<(System, Ran)>);

impl Experiment for Options {
    const NAME: &'static str = "compare";
    type Bench = Machines;
    type Job = System;
    type Sample = Sample;
    type Report = Report;

    /// The memory is the machines'; QEMU takes what they touch of it.
    fn check(&self) -> Result<Option<Need>, LabError> {
        Ok(None)
    }

    fn set_up(&self) -> Result<Machines, LabError> {
        Ok((prepare(self)?, Vec::new()))
    }

    fn jobs(&self, _: &Machines) -> Vec<Vec<System>> {
        vec![self.systems()]
    }

    fn sample(&self, (bench, firsts): &mut Machines, &system: &System) -> Result<Sample, LabError> {
        let mut runs = bench.time(system).map_err(machine)?;
        let sample = reckon::sample(system, &runs, self.rate.as_ref()).map_err(machine)?;
        if firsts.iter().all(|(of, _)| *of != system) {
            firsts.push((system, runs.swap_remove(0)));
        }
        Ok(sample)
    }

    fn report(&self, machines: Machines, sampled: Vec<Sampled<System, Sample>>) -> Result<Report, LabError> {
        Ok(Report::new(self, machines, sampled))
    }

    fn settings(&self) -> Settings<'_> {
        self.repeated.settings()
    }
}
