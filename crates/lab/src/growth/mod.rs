//! `softfault growth`: the cost of each call in a terabyte on 512 CPUs, relative to its cost in a
//! gigabyte on one CPU.
//!
//! ```text
//! options ──> a machine of each size ──> state: bitmaps of blocks, or ageing: by use
//!                                          │
//!                  report: table, output <── rows: calls on CPUs by chance ── count: words touched
//! ```
//! This file is the experiment for the runner.

mod ageing;
#[cfg(test)]
mod boot_tests;
mod call;
mod count;
#[cfg(test)]
mod fallback_tests;
mod options;
mod output;
mod report;
mod rows;
mod state;
mod what;

pub use options::Options;

use crate::bench::{Experiment, Need, Sampled, Settings};
use crate::conflicts::machine::{self, Simulated};
use crate::error::LabError;
use count::Counter;
use options::{Config, State};
use report::Report;
use rows::{Row, Stage};
use softfault_recorded::{Tunables, Vm};
use std::fmt;
use what::What;

const PAGE_BYTES: u64 = 4096;
/// Of which the median counts.
const TIMED_BOOTS: usize = 5;

/// A machine with its memory in a state; all rows run in it.
pub struct Job {
    config: Config,
    state: State,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.config, self.state.name())
    }
}

impl Experiment for Options {
    const NAME: &'static str = "growth";
    type Bench = ();
    type Job = Job;
    type Sample = Vec<Row>;
    type Report = Report;

    /// Frames that nobody touches take no memory.
    fn check(&self) -> Result<Option<Need>, LabError> {
        self.check_machines().map(|()| None)
    }

    fn set_up(&self) -> Result<(), LabError> {
        Ok(())
    }

    /// One after the other, the smallest machine first: nothing here depends on the host's speed.
    fn jobs(&self, (): &()) -> Vec<Vec<Job>> {
        let states = self.states();
        let of = |config: Config| states.iter().map(move |&state| vec![Job { config, state }]);
        self.configs().into_iter().flat_map(of).collect()
    }

    fn sample(&self, (): &mut (), job: &Job) -> Result<Vec<Row>, LabError> {
        in_machine(self, job.config, job.state)
    }

    fn report(&self, (): (), sampled: Vec<Sampled<Job, Vec<Row>>>) -> Result<Report, LabError> {
        let rows = sampled.into_iter().flat_map(|of| of.samples).flatten().collect();
        Ok(Report { configs: self.configs(), rows })
    }

    fn settings(&self) -> Settings<'_> {
        self.once.settings()
    }
}

/// All rows in one machine.
fn in_machine(options: &Options, config: Config, state: State) -> Result<Vec<Row>, LabError> {
    machine::become_cpu(0);
    let vm = begin(config, What::Boot)?;
    let programs = match state {
        State::AgedReally => ageing::age(&vm, config, options.seed())?,
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
    let calls = What::ALL.into_iter().filter(|what| !matches!(what, What::Boot | What::BootUnknown));
    let mut rows = calls.map(|what| stage.run(what)).collect::<Result<Vec<_>, _>>()?;
    check(&vm, "after the calls")?;
    drop(programs);
    drop(vm);
    if state == State::Fresh {
        rows.splice(0..0, [boot(config, What::Boot)?, boot(config, What::BootUnknown)?]);
    }
    Ok(rows)
}

/// Over memory of which nothing is the host's yet: it is zero, whether the core knows that or not.
fn begin(config: Config, what: What) -> Result<Vm<Simulated>, LabError> {
    let simulated = Simulated::new(usize::from(config.cpus), config.bytes / PAGE_BYTES)?;
    let simulated = if what == What::BootUnknown { simulated.with_unknown_content() } else { simulated };
    Vm::new(simulated, Tunables::default()).map_err(|e| LabError::subsystem("Vm::new", e))
}

/// `Vm::new` once recorded, and some times not.
fn boot(config: Config, what: What) -> Result<Row, LabError> {
    let mut counter = Counter::new();
    let vm = counter.count(|| begin(config, what))?;
    let name = |addr| vm.describe(addr).map_or("elsewhere".into(), |p| format!("{}.{}", p.structure, p.field));
    let places = counter.places(name);
    drop(vm);
    for _ in 0..TIMED_BOOTS {
        drop(counter.time(|| begin(config, what))?);
    }
    let state = State::Fresh;
    Ok(Row { what, state, config, steps: counter.steps(), ns: counter.ns(), places })
}

fn check(vm: &Vm<Simulated>, when: &str) -> Result<(), LabError> {
    let told = vm.check_summaries_at_rest();
    told.map_err(|e| {
        LabError::subsystem(format!("the summaries {when}"), format!("should be true, and are not: {e:?}"))
    })
}
