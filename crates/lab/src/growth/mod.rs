//! `softfault growth`: what a call costs in a terabyte on 512 CPUs, over what it costs in a
//! gigabyte on one.
//!
//! ```text
//! options ──> a machine of each size ──> state: bitmaps of blocks, or ageing: by use
//!                                          │
//!                  report: table, json  <── rows: calls on CPUs by chance ── count: words touched
//!                          plot
//! ```
//! This file is the conductor.

mod ageing;
mod call;
mod count;
#[cfg(test)]
mod fallback_tests;
mod options;
mod plot;
mod report;
mod rows;
mod state;
mod what;

pub use options::Options;

use crate::conflicts::machine::{self, Simulated};
use crate::error::LabError;
use crate::os;
use crate::progress;
use count::Counter;
use options::{Config, State};
use report::Report;
use rows::{Row, Stage};
use softfault_recorded::{Tunables, Vm};
use what::What;

const PAGE_BYTES: u64 = 4096;
/// Of which the median counts.
const TIMED_BOOTS: usize = 5;

/// Runs it and prints what was asked for.
pub fn run(options: &Options) -> Result<(), LabError> {
    os::end_with_the_reader();
    let report = measure(options)?;
    if options.json {
        print!("{}", report.json());
    } else {
        print!("{}", report.text());
    }
    if let Some(file) = &options.plot {
        plot::draw(file, &report)?;
        eprintln!("softfault: plot written to {}", file.display());
    }
    Ok(())
}

/// Everything that is printed.
fn measure(options: &Options) -> Result<Report, LabError> {
    options.check()?;
    let (configs, states) = (options.configs(), options.states());
    let bar = progress::bar((configs.len() * states.len()) as u64);
    let mut rows = Vec::new();
    for config in &configs {
        for state in &states {
            bar.set_message(format!("{}, {}", report::name_of(*config), state.name()));
            rows.extend(in_machine(options, *config, *state)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(Report { configs, rows })
}

/// All rows in one machine.
fn in_machine(options: &Options, config: Config, state: State) -> Result<Vec<Row>, LabError> {
    machine::become_cpu(0);
    let vm = begin(config)?;
    let programs = match state {
        State::AgedReally => ageing::age(&vm, config, options.seed)?,
        _ => {
            state::simulate(&vm, state);
            Vec::new()
        }
    };
    check(&vm, "of the state")?;
    let mut stage = Stage::new(&vm, state, config, options);
    if state == State::Aged {
        stage.warm_up()?;
    }
    let calls = What::ALL.into_iter().filter(|what| *what != What::Boot);
    let mut rows = calls.map(|what| stage.run(what)).collect::<Result<Vec<_>, _>>()?;
    check(&vm, "after the calls")?;
    drop(programs);
    drop(vm);
    if state == State::Fresh {
        rows.insert(0, boot(config)?);
    }
    Ok(rows)
}

/// Over memory that is zero, of which nothing is the host's yet.
fn begin(config: Config) -> Result<Vm<Simulated>, LabError> {
    let simulated = Simulated::new(usize::from(config.cpus), config.bytes / PAGE_BYTES)?;
    Vm::new(simulated, Tunables::default()).map_err(|e| LabError::subsystem("Vm::new", e))
}

/// `Vm::new` once recorded, and some times not.
fn boot(config: Config) -> Result<Row, LabError> {
    let mut counter = Counter::new();
    let vm = counter.count(|| begin(config))?;
    let name = |addr| vm.describe(addr).map_or("elsewhere".into(), |p| format!("{}.{}", p.structure, p.field));
    let places = counter.places(name);
    drop(vm);
    for _ in 0..TIMED_BOOTS {
        drop(counter.time(|| begin(config))?);
    }
    let (what, state) = (What::Boot, State::Fresh);
    Ok(Row { what, state, config, steps: counter.steps(), ns: counter.ns(), places })
}

fn check(vm: &Vm<Simulated>, when: &str) -> Result<(), LabError> {
    let told = vm.check_summaries_at_rest();
    told.map_err(|e| {
        LabError::subsystem(format!("the summaries {when}"), format!("should be true, and are not: {e:?}"))
    })
}
