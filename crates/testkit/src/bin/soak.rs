//! The soak tests: `soak differential --seconds N [--seed S] [--sides LIST]`.
//!
//! Sequences from consecutive seeds on the host's Linux, on the core and on the
//! model; ends at the first difference, with the shortest sequence that shows
//! it, or when the time is up, with a table of what was covered. Exit codes: 0
//! no difference, 1 a difference, 2 bad arguments, 3 the test could not run.

use softfault::Tunables;
use softfault_host::HostedConfig;
use softfault_testkit::generate::{Limits, sequence};
use softfault_testkit::judge::{Difference, Judge, Sides};
use softfault_testkit::linux::{Linux, LinuxError};
use softfault_testkit::op::{Call, Op, Outcome, PAGE, WINDOW};
use softfault_testkit::table::{Table, class_of};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str =
    "usage: soak differential [--seconds N] [--seed S] [--sides linux,hosted] [--check EVERY] [--differences N]";

struct Options {
    seconds: u64,
    seed: u64,
    sides: Sides,
    /// Different differences to look for before it ends.
    nr_differences: usize,
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let sides = Sides { linux: true, hosted: true, check_every: 100 };
    let mut options = Options { seconds: 10, seed: 1, sides, nr_differences: 1 };
    match args.next().as_deref() {
        Some("differential") => {}
        other => return Err(format!("the test is {:?}, should be `differential`", other.unwrap_or("missing"))),
    }
    while let Some(name) = args.next() {
        let value = args.next().ok_or(format!("{name} should have a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} is {value}, should be a number"));
        match name.as_str() {
            "--seconds" => options.seconds = number()?,
            "--seed" => options.seed = number()?,
            "--differences" => options.nr_differences = number()?.max(1) as usize,
            "--check" => options.sides.check_every = number()? as usize,
            "--sides" => {
                let has = |side| value.split(',').any(|name| name == side);
                if !value.split(',').all(|name| ["linux", "hosted"].contains(&name)) {
                    return Err(format!("--sides is {value}, should be a list of linux and hosted"));
                }
                options.sides = Sides { linux: has("linux"), hosted: has("hosted"), ..options.sides };
            }
            _ => return Err(format!("{name} is no option of this test")),
        }
    }
    Ok(options)
}

/// The calls that this host's kernel lacks.
fn missing_calls() -> Result<Vec<&'static str>, LinuxError> {
    let probes = [
        ("MADV_GUARD_INSTALL (Linux 6.13)", Call::Madvise, [WINDOW, PAGE, 102, 0]),
        ("MADV_POPULATE_READ (Linux 5.14)", Call::Madvise, [WINDOW, PAGE, 22, 0]),
        ("MREMAP_DONTUNMAP (Linux 5.7)", Call::Mremap, [WINDOW, PAGE, PAGE, 5]),
    ];
    let mut linux = Linux::start()?;
    let mut missing = Vec::new();
    for (name, call, args) in probes {
        let map = Op::new(0, Call::Mmap, &[WINDOW, 2 * PAGE, 3, 0x32]);
        let outcomes = linux.run(&[map, Op::new(0, call, &args)])?;
        if !outcomes[1].is_success() {
            missing.push(name);
        }
    }
    Ok(missing)
}

fn soak(options: &Options) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut limits = Limits::default();
    if options.sides.linux {
        for name in missing_calls()? {
            println!("this host's kernel lacks {name}: left out");
            limits.guards &= !name.contains("GUARD");
        }
    }
    let config = HostedConfig { arena_bytes: 512 << 20, strict_bbm: true, tlb_entries: 64, ..HostedConfig::default() };
    let mut judge = Judge::new(options.sides, config, Tunables::default())?;
    let (mut table, mut seed, started) = (Table::default(), options.seed, Instant::now());
    let mut kinds = BTreeSet::new();
    while started.elapsed() < Duration::from_secs(options.seconds) {
        let steps = sequence(seed, limits);
        let ops: Vec<Op> = steps.iter().map(|(op, _)| *op).collect();
        if let Some(found) = judge.judge(&ops)? {
            let kind = kind_of(&ops, &found);
            if kinds.insert(kind) {
                report(&mut judge, seed, &ops, found);
            }
            if kinds.len() >= options.nr_differences {
                break;
            }
        }
        steps.iter().for_each(|(op, expected)| table.add(op, tidy(expected.outcome)));
        seed += 1;
    }
    if !kinds.is_empty() {
        println!("{} kinds of difference in seeds {} to {seed}", kinds.len(), options.seed);
        return Ok(ExitCode::from(1));
    }
    print!("{table}");
    let (thin, all) = table.thin_cells(100);
    println!(
        "{} steps in {} sequences, seeds {} to {}, no difference; {}% succeeded; {thin} of {all} cells have fewer than 100",
        table.nr(),
        seed - options.seed,
        options.seed,
        seed - 1,
        table.percent_good()
    );
    Ok(ExitCode::SUCCESS)
}

fn report(judge: &mut Judge, seed: u64, ops: &[Op], found: Difference) {
    println!("seed {seed} differs at {found}\nshortest sequence found:");
    let (ops, found) = judge.minimise(ops, found);
    ops.iter().for_each(|op| println!("  {op}"));
    println!("{found}\n");
}

/// Differences of one kind have one cause, mostly.
fn kind_of(ops: &[Op], found: &Difference) -> String {
    let call = ops.get(found.step).map_or("the end".into(), |op| format!("{:?} {}", op.call, class_of(op)));
    let side = |outcome: Option<Outcome>| outcome.map_or(String::new(), |o| tidy(o).label());
    let note = found.note.split(':').next().unwrap_or_default();
    format!("{call} {} {} {} {note}", tidy(found.expected).label(), side(found.linux), side(found.hosted))
}

/// Values differ from step to step; for the table success is success.
fn tidy(outcome: Outcome) -> Outcome {
    if let Outcome::Value(_) = outcome { Outcome::Value(0) } else { outcome }
}

fn main() -> ExitCode {
    match options(std::env::args().skip(1)) {
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            ExitCode::from(2)
        }
        Ok(options) => soak(&options).unwrap_or_else(|error| {
            eprintln!("the soak could not run: {error}");
            ExitCode::from(3)
        }),
    }
}
