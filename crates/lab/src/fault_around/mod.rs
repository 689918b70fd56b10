//! `softfault fault-around`: the program of 2014 that showed what it saves to map the neighbours of a page
//! that are in memory, on the hosted machine and on the host's Linux.
//!
//! ```text
//! options ──> plan ──> ours, linux (timed, in the steps of bench/crew) ──> reckon ──> table, output
//!                      pattern: what is read                        history (2014)
//! ```
//! This file is the experiment for the runner.

mod history;
mod in_qemu;
mod linux;
mod load;
mod options;
mod ours;
mod output;
mod pattern;
mod plan;
mod reckon;
mod table;
mod tmpfs;

pub use options::Options;

use crate::bench::{self, Arena, Experiment, Knob, Need, Sampled, Settings};
use crate::error::LabError;
use crate::os;
use in_qemu::InQemu;
use linux::Memory;
use load::{Load, Sample};
use plan::{Job, System};
use reckon::Report;
use softfault_host::{Hosted, HostedConfig};
use std::path::Path;

/// The window of all processes.
const WINDOW_OF_HOST: &str = "/sys/kernel/debug/fault_around_bytes";

/// Our machine, Linux's file, and the host's setting.
pub struct Bench {
    load: Load,
    arena: Arena,
    memory: Option<Memory>,
    knob: Option<Knob>,
    in_qemu: Option<InQemu>,
}

impl Experiment for Options {
    const NAME: &'static str = "fault-around";
    type Bench = Bench;
    type Job = Job;
    type Sample = Sample;
    type Report = Report;

    fn check(&self) -> Result<Option<Need>, LabError> {
        self.check_for(self.max_threads(os::allowed_cpus()?.len())).map(Some)
    }

    fn set_up(&self) -> Result<Bench, LabError> {
        let cpus = os::allowed_cpus()?;
        let max_threads = self.max_threads(cpus.len());
        let config = HostedConfig::default()
            .with_nr_cpus(max_threads)
            .with_arena_bytes(self.arena_bytes(max_threads))
            .with_huge(true);
        let mut hosted = Hosted::new(config).map_err(|e| LabError::host("the hosted machine", e))?;
        bench::warm(&mut hosted);
        let memory = if self.with_linux() { Some(Memory::new(self.nr_pages(), self.folios)?) } else { None };
        let load = Load {
            pattern: self.pattern,
            nr_pages: self.nr_pages(),
            folios: self.folios,
            neighbours: self.neighbours,
            cpus,
        };
        Ok(Bench {
            in_qemu: self.qemu.then(|| InQemu::measure(self, &load)).transpose()?,
            load,
            arena: Arena::of(hosted),
            knob: memory.as_ref().and_then(|_| Knob::at(Path::new(WINDOW_OF_HOST)).ok()),
            memory,
        })
    }

    fn jobs(&self, bench: &Bench) -> Vec<Vec<Job>> {
        plan::jobs(self, bench.load.cpus.len(), bench.knob.is_some())
    }

    fn sample(&self, bench: &mut Bench, job: &Job) -> Result<Sample, LabError> {
        let Bench { load, arena, memory, knob, in_qemu } = bench;
        if let (System::LinuxSet, Some(knob), Some(order)) = (job.system, knob, job.window.order()) {
            knob.set(order.bytes())
                .map_err(|e| LabError::host(format!("{WINDOW_OF_HOST} set to {}", order.bytes()), e))?;
        }
        match (job.system, memory) {
            (System::LinuxInQemu, _) => in_qemu.as_ref().and_then(|of| of.sample(job.window)).ok_or_else(no_sample),
            (System::Softfault, _) => ours::run(arena, load, job.window, job.nr_threads),
            (_, Some(memory)) => linux::run(memory, load, *job),
            (_, None) => Err(no_sample()),
        }
    }

    fn report(&self, bench: Bench, sampled: Vec<Sampled<Job, Sample>>) -> Result<Report, LabError> {
        let kernel = bench.in_qemu.map(|of| of.kernel);
        Ok(Report { kernel_in_qemu: kernel, ..Report::new(self, &bench.load, &sampled) })
    }

    fn settings(&self) -> Settings<'_> {
        self.repeated.settings()
    }
}

fn no_sample() -> LabError {
    LabError::subsystem("a row of Linux", "was not prepared")
}
