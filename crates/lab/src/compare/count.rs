//! `--icount`: instructions per operation, which are the same in each run.
//!
//! Under `-icount shift=0` the time-stamp counter counts instructions, the
//! kernel's and the program's, and each step of a `rep` as one; the probe reads
//! it. Memory is cleared by `rep stosq` on both, in 512 steps a page: these are
//! taken off the write fault, for they are the same work for any kernel.

use super::boot::Bench;
use super::json::object;
use super::options::Options;
use super::system::System;
use crate::bench::plain_table;
use crate::run::RunError;
use serde::{Deserialize, Serialize};

/// Steps of `rep stosq` in a page.
const CLEAR_STEPS: u64 = 4096 / 8;
/// Steps where the CPU offers `erms`: Linux clears by `rep stosb` then, ours does not.
const CLEAR_STEPS_BYTES: u64 = 4096;

/// What the probe counted; the keys are those that it writes.
#[derive(Deserialize)]
struct Counted {
    write_fault_and_clear: u64,
    read_fault: u64,
    read_fault_16: u64,
    munmap_page: u64,
    getppid: u64,
    fork_1mib: u64,
}

/// The keys of the JSON, in their order.
#[derive(Serialize)]
struct Line<'a> {
    experiment: &'a str,
    system: &'a str,
    write_fault: u64,
    write_fault_and_clear: u64,
    read_fault: u64,
    read_fault_16: u64,
    munmap_page: u64,
    getppid: u64,
    fork_1mib: u64,
    unit: &'a str,
}

#[derive(Serialize)]
struct Ratios {
    ratio_write_fault: f64,
    ratio_read_fault: f64,
    ratio_read_fault_16: f64,
    ratio_munmap_page: f64,
    ratio_getppid: f64,
    ratio_fork_1mib: f64,
}

/// A line of the table: what it is, how much of it there is, what is wanted of
/// the reference kernel.
struct Figure {
    name: &'static str,
    of: fn(&Line) -> u64,
    goal: Option<u64>,
}

const FIGURES: [Figure; 7] = [
    Figure { name: "write fault, without clearing", of: |l| l.write_fault, goal: Some(900) },
    Figure { name: "write fault, with it", of: |l| l.write_fault_and_clear, goal: None },
    Figure { name: "read fault of the zero page", of: |l| l.read_fault, goal: Some(500) },
    Figure { name: "read fault that maps 16 pages of a file", of: |l| l.read_fault_16, goal: None },
    Figure { name: "munmap, per page", of: |l| l.munmap_page, goal: Some(300) },
    Figure { name: "getppid", of: |l| l.getppid, goal: None },
    Figure { name: "fork, exit, wait; 1 MiB", of: |l| l.fork_1mib, goal: Some(190_000) },
];

fn line(options: &Options, system: System, counted: &Counted) -> Line<'static> {
    let by_bytes = system == System::Linux && options.is_artefact();
    let clear_steps = if by_bytes { CLEAR_STEPS_BYTES } else { CLEAR_STEPS };
    Line {
        experiment: "compare --icount",
        system: system.key(),
        write_fault: counted.write_fault_and_clear.saturating_sub(clear_steps),
        write_fault_and_clear: counted.write_fault_and_clear,
        read_fault: counted.read_fault,
        read_fault_16: counted.read_fault_16,
        munmap_page: counted.munmap_page,
        getppid: counted.getppid,
        fork_1mib: counted.fork_1mib,
        unit: "instructions",
    }
}

/// Boots each system once, and gives what is to be printed.
pub fn run(options: &Options, bench: &Bench) -> Result<String, RunError> {
    let systems = options.systems();
    let progress = crate::progress::bar(systems.len() as u64);
    let mut lines = Vec::new();
    for system in systems {
        progress.set_message(system.name());
        lines.push(line(options, system, &bench.count(system)?));
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(if options.json { json(&lines) } else { table(&lines) })
}

fn json(lines: &[Line]) -> String {
    let mut text: String = lines.iter().map(object).collect();
    if let [ours, linux] = lines {
        let ratio = |of: fn(&Line) -> u64| of(linux) as f64 / of(ours) as f64;
        text.push_str(&object(&Ratios {
            ratio_write_fault: ratio(|l| l.write_fault),
            ratio_read_fault: ratio(|l| l.read_fault),
            ratio_read_fault_16: ratio(|l| l.read_fault_16),
            ratio_munmap_page: ratio(|l| l.munmap_page),
            ratio_getppid: ratio(|l| l.getppid),
            ratio_fork_1mib: ratio(|l| l.fork_1mib),
        }));
    }
    text
}

fn table(lines: &[Line]) -> String {
    let mut head = vec!["instructions"];
    head.extend(lines.iter().map(|line| line.system));
    if lines.len() == 2 {
        head.push("ratio");
    }
    head.push("goal");
    let mut table = plain_table(&head, 1);
    for figure in &FIGURES {
        let counts: Vec<u64> = lines.iter().map(figure.of).collect();
        let mut cells = vec![figure.name.to_owned()];
        cells.extend(counts.iter().map(u64::to_string));
        if let [ours, linux] = counts[..] {
            cells.push(format!("{:.2}", linux as f64 / ours as f64));
        }
        cells.push(figure.goal.map_or("-".into(), |goal| goal.to_string()));
        table.add_row(cells);
    }
    format!("{table}\n")
}
