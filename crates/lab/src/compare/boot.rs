//! A boot of one system with the probe as its first program, and what the probe
//! reports of it.

use super::linux::Kernel;
use super::options::Options;
use super::record::{self, Ran};
use super::system::System;
use super::table;
use crate::run::content::{About, Content, Entry};
use crate::run::files::Payload;
use crate::run::packets::End;
use crate::run::qemu::{Machine, Outcome, Output};
use crate::run::scratch::Scratch;
use crate::run::verdict::{EXIT_TIMEOUT, judge, last_line};
use crate::run::{RunError, archive, image};
use serde::de::DeserializeOwned;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the probe is: on ours under the one name, under the other it knows that
/// it is Linux's init. Outside `.softfault`, which the reference kernel keeps to
/// itself.
const PROBE: &str = "/.softfault-probe";
const PROBE_AS_INIT: &str = "/.softfault-init";
/// File by which the probe sets Linux's huge pages.
const HUGE_PAGES: &str = "/.softfault/huge-pages";
/// Lines of Linux's log that tell why it ended early.
const NR_LOG_LINES: usize = 12;

/// A file that this command adds.
fn made(path: &str, mode: u32, bytes: &[u8]) -> Entry {
    Entry { path: path.to_owned(), about: About::made(mode, 0), content: Content::File(bytes.to_vec()) }
}

/// Everything that the boots have in common.
pub struct Bench {
    /// Describes the machines.
    pub title: String,
    machines: Vec<(System, Machine)>,
    serial: PathBuf,
    marker: String,
    // Removed with the bench, after the machines.
    _scratch: Scratch,
}

impl Bench {
    /// Packs the archives; `linux` is there if it is among the systems.
    pub fn new(options: &Options, linux: Option<&Kernel>) -> Result<Bench, RunError> {
        if options.icount {
            return Bench::asking(options, linux, vec![b"count".to_vec()]);
        }
        let payload = Payload::collect(&options.machine, &options.command)?;
        let mut command = vec![b"run".to_vec(), options.inner.to_string().into_bytes()];
        command.extend(payload.command.iter().cloned());
        Bench::prepare(options, linux, &payload, command)
    }
    /// Packs archives without a program: the probe does what these words say.
    pub fn asking(options: &Options, linux: Option<&Kernel>, words: Vec<Vec<u8>>) -> Result<Bench, RunError> {
        let payload = Payload { files: Vec::new(), command: Vec::new() };
        Bench::prepare(options, linux, &payload, words)
    }

    fn prepare(
        options: &Options,
        linux: Option<&Kernel>,
        payload: &Payload,
        words: Vec<Vec<u8>>,
    ) -> Result<Bench, RunError> {
        let given = &options.machine;
        let marker = record::marker();
        let scratch = Scratch::new()?;
        let serial = scratch.put("serial", &[])?;
        let mut machines = Vec::new();
        for system in options.systems() {
            let (path, kernel, append) = match (system, linux) {
                (System::Softfault, _) => (PROBE, scratch.put("kernel", image::KERNEL)?, options.softfault_append()),
                (System::Linux, Some(linux)) => {
                    (PROBE_AS_INIT, linux.image.clone(), format!("{} rdinit={PROBE_AS_INIT}", options.linux_append()))
                }
                (System::Linux, None) => continue,
            };
            let mut inside = payload.clone();
            inside.files.push(made(path, 0o755, image::PROBE));
            if system == System::Linux {
                inside.files.push(made(HUGE_PAGES, 0o644, options.huge_pages().as_bytes()));
            }
            let mut command = vec![path.as_bytes().to_vec(), marker.clone().into_bytes()];
            command.extend(words.iter().cloned());
            inside.command = command;
            let archive = archive::pack(&inside);
            options.check_memory(archive.len() as u64)?;
            let machine = Machine {
                nr_cpus: options.nr_cpus()?,
                mem_bytes: given.mem,
                cpu: options.cpu().to_owned(),
                counted: options.icount,
                kernel,
                archive: scratch.put(&format!("archive-{}", system.key()), &archive)?,
                append,
                serial: Some(serial.clone()),
                keys: None,
                timeout_s: given.timeout,
                verbose: given.verbose,
            };
            machines.push((system, machine));
        }
        let title = table::title(options, linux)?;
        Ok(Bench { title, machines, serial, marker, _scratch: scratch })
    }
    /// Boots the system; gives each run of the program in it.
    pub fn time(&self, system: System) -> Result<Vec<Ran>, RunError> {
        let outcome = self.boot(system)?;
        let (outputs, _) = record::cut(&self.marker, &outcome.output);
        let (errors, _) = record::cut(&self.marker, &outcome.errors);
        let ran = |(output, errors): (&record::Part, &record::Part)| {
            let record = parse(system, errors.line)?;
            Ok(Ran { record, output: output.text.to_vec(), errors: errors.text.to_vec() })
        };
        outputs.iter().zip(&errors).map(ran).collect()
    }
    /// Boots the system; gives what the probe counted.
    pub fn count<T: DeserializeOwned>(&self, system: System) -> Result<T, RunError> {
        let first = self.records(system)?.into_iter().next();
        first.ok_or_else(|| RunError::Host(format!("{}: the probe counted nothing", system.name())))
    }
    /// Boots the system; gives all records of the probe.
    pub fn records<T: DeserializeOwned>(&self, system: System) -> Result<Vec<T>, RunError> {
        let outcome = self.boot(system)?;
        let (parts, _) = record::cut(&self.marker, &outcome.errors);
        parts.iter().map(|part| parse(system, part.line)).collect()
    }

    /// Stays until the machine ends; what it says without a record is an error.
    fn boot(&self, system: System) -> Result<Outcome, RunError> {
        let found = self.machines.iter().find(|(of, _)| *of == system);
        let (_, machine) = found.ok_or_else(|| RunError::Host(format!("{} was not prepared", system.name())))?;
        let outcome = machine.run(Output::Kept)?;
        let (parts, rest) = record::cut(&self.marker, &outcome.errors);
        let is_good = outcome.end == Some(End::Exit(0)) && !parts.is_empty() && !outcome.timed_out;
        if machine.verbose && system == System::Linux {
            eprint!("{}", fs::read_to_string(&self.serial).unwrap_or_default());
        }
        if is_good {
            return Ok(outcome);
        }
        if !machine.verbose {
            eprint!("{}", self.log(system, &outcome));
        }
        let why = match String::from_utf8_lossy(rest).lines().rev().find_map(|l| l.strip_prefix("probe: ")) {
            Some(complaint) => (1, complaint.to_owned()),
            None => why(system, &outcome, machine.timeout_s),
        };
        Err(RunError::Machine { code: why.0, why: format!("{}: {}", system.name(), why.1) })
    }
    fn log(&self, system: System, outcome: &Outcome) -> String {
        let log = match system {
            System::Softfault => String::from_utf8_lossy(&outcome.log).into_owned(),
            System::Linux => tail(&self.serial),
        };
        log + &outcome.qemu_errors
    }
}

/// Code and reason of a boot that ended without a record.
fn why(system: System, outcome: &Outcome, timeout_s: u64) -> (u8, String) {
    let verdict = judge(outcome, timeout_s);
    match (system, outcome.end, verdict.why) {
        (_, Some(End::Exit(0)), _) => (1, "the probe ended without a record".to_owned()),
        (_, Some(End::Exit(code)), _) => (1, format!("the probe ended with status {code}")),
        // It has no way to say so; a panic resets the machine.
        (System::Linux, None, _) if outcome.qemu_status == Some(0) && !outcome.timed_out => {
            (1, "it ended without running the probe: it panicked, or was turned off".to_owned())
        }
        (_, _, Some(why)) if verdict.code == EXIT_TIMEOUT => {
            (EXIT_TIMEOUT, format!("{why}; its output is seen with: softfault run"))
        }
        (_, _, why) => (verdict.code, why.unwrap_or_else(|| last_line(outcome.qemu_errors.as_bytes()))),
    }
}

fn parse<T: DeserializeOwned>(system: System, line: &[u8]) -> Result<T, RunError> {
    serde_json::from_slice(line).map_err(|e| {
        let text = String::from_utf8_lossy(line);
        RunError::Host(format!("{}: the probe's record cannot be read: {e}: {text}", system.name()))
    })
}

/// The last lines of a file.
fn tail(file: &Path) -> String {
    let text = fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(NR_LOG_LINES)..].iter().map(|line| format!("{line}\n")).collect()
}
