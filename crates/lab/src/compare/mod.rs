//! `softfault compare`: the same program on the reference kernel and on Debian's
//! Linux, in the same QEMU, boots in turns.
//!
//! ```text
//! options ──> linux (a kernel) ──> boot (QEMU, the probe) ──> record ──> reckon ──> table, json, plot
//!                                                        └──> count (--icount)
//! ```
//! This file is the conductor. The clock is read inside the machines, by the
//! probe (`probe/`), and nowhere else.

mod around;
mod boot;
mod count;
mod json;
mod linux;
mod options;
mod plot;
mod reckon;
mod record;
mod system;
mod table;

pub use around::{Around, around};
pub use options::Options;

use crate::run::RunError;
use boot::{Bench, Ran};
use std::io::{self, Write};
use std::process::ExitCode;
use system::System;

/// Runs it; the exit code is the program's, or says what went wrong.
pub fn main(options: &Options) -> ExitCode {
    let code = run(options).unwrap_or_else(|error| {
        eprintln!("softfault compare: {error}");
        error.exit_code()
    });
    ExitCode::from(code)
}

fn run(options: &Options) -> Result<u8, RunError> {
    let nr_cpus = options.nr_cpus()?;
    let needs_linux = options.systems().contains(&System::Linux);
    let linux = needs_linux.then(|| linux::find(options.linux.as_deref())).transpose()?;
    let bench = Bench::new(options, linux.as_ref())?;
    let title = table::title(options, nr_cpus, linux.as_ref());
    if options.icount {
        let counts = count::run(options, &bench)?;
        if !options.json {
            println!("{title}\n");
        }
        print!("{counts}");
        return Ok(0);
    }
    let mut firsts = Vec::new();
    let rows = measure(options, &bench, &mut firsts)?;
    if let Some(file) = &options.plot {
        plot::draw(file, &options.command[0].to_string_lossy(), &rows)?;
    }
    let codes: Vec<u8> = firsts.iter().map(|(_, ran)| ran.record.exit_code()).collect();
    // A program that failed on one of them did less there.
    let ratio = reckon::ratio(&rows).filter(|_| codes.iter().all(|code| *code == codes[0]));
    if options.json {
        let rows: Vec<_> = rows.into_iter().zip(codes.iter().copied()).collect();
        print!("{}", json::lines(options, nr_cpus, &rows, ratio.as_ref()));
    } else {
        println!("\n{title}\n\n{}", table::rows(&rows, ratio.as_ref()));
    }
    tell_differences(&firsts);
    Ok(codes.into_iter().find(|code| *code != 0).unwrap_or(0))
}

/// Boots the systems in turns; the first run of each goes to `firsts`.
fn measure(options: &Options, bench: &Bench, firsts: &mut Vec<(System, Ran)>) -> Result<Vec<reckon::Row>, RunError> {
    let mut systems: Vec<(System, Vec<reckon::Sample>)> =
        options.systems().into_iter().map(|system| (system, Vec::new())).collect();
    let progress = crate::progress::bar(u64::from(options.reps) * systems.len() as u64);
    for rep in 0..options.reps {
        // The host slows down and recovers: neither system is always the second.
        let nr_systems = systems.len();
        for i in 0..nr_systems {
            let (system, samples) = &mut systems[(i + rep as usize) % nr_systems];
            progress.set_message(format!("boot {} of {}, {}", rep + 1, options.reps, system.name()));
            progress.tick();
            let mut runs = bench.time(*system)?;
            samples.push(reckon::sample(*system, &runs, options.rate.as_ref())?);
            progress.inc(1);
            if rep == 0 {
                let first = runs.swap_remove(0);
                if i == 0 {
                    progress.suspend(|| pass_on(options, &first))?;
                }
                firsts.push((*system, first));
            }
        }
    }
    progress.finish_and_clear();
    Ok(systems.into_iter().map(|(system, samples)| reckon::row(system, samples)).collect())
}

/// Passes the program's output on; with --json, standard output is for the figures.
fn pass_on(options: &Options, ran: &Ran) -> Result<(), RunError> {
    let failed = |e: io::Error| RunError::Host(format!("output: {e}"));
    let mut output: Box<dyn Write> = if options.json { Box::new(io::stderr()) } else { Box::new(io::stdout()) };
    output.write_all(&ran.output).and_then(|()| output.flush()).map_err(failed)?;
    io::stderr().write_all(&ran.errors).map_err(failed)
}

/// Reports differences between the first runs.
fn tell_differences(firsts: &[(System, Ran)]) {
    let [(first, one), (second, other)] = firsts else { return };
    let codes = (one.record.exit_code(), other.record.exit_code());
    if codes.0 != codes.1 {
        eprintln!(
            "softfault compare: exit statuses differ: {} on {}, {} on {}",
            codes.0,
            first.name(),
            codes.1,
            second.name()
        );
        eprint!("{}", String::from_utf8_lossy(&other.errors));
    }
    if one.output != other.output {
        eprintln!(
            "softfault compare: standard output differs between the systems (as that of programs that print times does)"
        );
    }
}
