//! The soak tests: `soak differential|lockstep|parallel|huge|relax|hugetlb [--seconds N] ...`.
//!
//! `differential` runs sequences from consecutive seeds on the host's Linux, on
//! the core and on the model; in every second one memory of the core's machine fails, and pages
//! are swapped out. It ends at the first difference, with the shortest
//! sequence that shows it, or when the time is up or `--steps` are done, with a
//! table of what was covered. `lockstep` and `parallel` run sequences on several CPUs of the hosted
//! machine, in both of its modes and under all fault-locking modes, against the model.
//! `huge` has several CPUs make, split, share, move, pin and collapse huge pages in
//! several spaces, with every page's content known. `relax` has three actors take
//! turns wherever the core waits, by a seed. `hugetlb` has several CPUs fault on the last page of a pool, in so many rounds of H1
//! and as many of H2, shared and private.
//! Exit codes: 0 no difference, 1 a difference, 2 bad arguments, 3 the test could
//! not run.

use softfault::table::format::X86_64;
use softfault::{FaultLocking, HugetlbLocking, MAX_CPUS, Tunables, Vm};
use softfault_host::{Hosted, HostedConfig, Mode};
use softfault_testkit::churn::Size;
use softfault_testkit::generate::{Limits, part, sequence};
use softfault_testkit::hosted::HugeCounts;
use softfault_testkit::judge::{Difference, Judge, Sides};
use softfault_testkit::last_page::{self, Case, Played};
use softfault_testkit::linux::Linux;
use softfault_testkit::op::{Op, Outcome};
use softfault_testkit::spread::NR_THREADS;
use softfault_testkit::table::{Table, class_of};
use softfault_testkit::{baton, churn, lockstep, parallel};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const USAGE: &str = "usage: soak differential|lockstep|parallel|huge|relax [--seconds N] [--seed S] [--sides linux|linux-pool,hosted] [--check EVERY] [--differences N] [--steps N] [--cpus N] [--fault-locking NAME] [--files PERCENT] [--pools PERCENT] | hugetlb [--rounds N] [--cpus N]";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Test {
    Differential,
    Lockstep,
    Parallel,
    Huge,
    Relax,
    Hugetlb,
}

struct Options {
    test: Test,
    /// CPUs, for `lockstep` and `parallel`.
    nr_cpus: usize,
    seconds: u64,
    /// With which `differential` ends, if that comes before the time is up.
    nr_steps: u64,
    seed: u64,
    sides: Sides,
    /// The only fault-locking mode, or all.
    fault_locking: Option<FaultLocking>,
    /// Different differences to look for before it ends.
    nr_differences: usize,
    /// Rounds of each case, for `hugetlb`.
    nr_rounds: u64,
    /// Steps about files in each sequence, in percent; or some in every third one.
    file_percent: Option<u64>,
    /// Steps about pages of a pool in each sequence, in percent; or some in every fourth one.
    pool_percent: Option<u64>,
}

impl Options {
    fn file_percent(&self, seed: u64) -> u64 {
        self.file_percent.unwrap_or(if seed.is_multiple_of(3) { FILE_PERCENT } else { 0 })
    }

    fn pool_percent(&self, seed: u64) -> u64 {
        self.pool_percent.unwrap_or(if seed % 8 == 2 || seed % 8 == 5 { POOL_PERCENT } else { 0 })
    }
}

/// Of steps in a sequence with a pool.
const POOL_PERCENT: u64 = 60;
/// Of steps in a sequence with files.
const FILE_PERCENT: u64 = 25;

fn options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let test = match args.next().as_deref() {
        Some("differential") => Test::Differential,
        Some("lockstep") => Test::Lockstep,
        Some("parallel") => Test::Parallel,
        Some("huge") => Test::Huge,
        Some("relax") => Test::Relax,
        Some("hugetlb") => Test::Hugetlb,
        other => {
            let given = other.unwrap_or("missing");
            return Err(format!(
                "the test is {given}, should be differential, lockstep, parallel, huge, relax or hugetlb"
            ));
        }
    };
    let mut options = Options {
        test,
        fault_locking: None,
        nr_cpus: 4,
        seconds: 10,
        nr_steps: u64::MAX,
        seed: 1,
        sides: Sides { linux: true, linux_pool: false, hosted: true, check_every: 100 },
        nr_differences: 1,
        nr_rounds: 1_000_000,
        file_percent: None,
        pool_percent: None,
    };
    while let Some(name) = args.next() {
        let value = args.next().ok_or(format!("{name} should have a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} is {value}, should be a number"));
        match name.as_str() {
            "--seconds" => options.seconds = number()?,
            "--steps" => options.nr_steps = number()?,
            "--seed" => options.seed = number()?,
            "--rounds" => options.nr_rounds = number()?,
            "--files" => options.file_percent = Some(number()?.min(100)),
            "--pools" => options.pool_percent = Some(number()?.min(100)),
            "--differences" => options.nr_differences = number()?.max(1) as usize,
            "--fault-locking" | "--discipline" => {
                let named = FaultLocking::ALL.into_iter().find(|d| d.name() == value);
                options.fault_locking =
                    Some(named.ok_or(format!(
                        "--fault-locking is {value}, should be global, fastpath2004, split or lockfree"
                    ))?);
            }
            "--cpus" => {
                options.nr_cpus = number()? as usize;
                // Each CPU of the huge soak has a thread.
                let most = if matches!(options.test, Test::Huge | Test::Hugetlb) { 64 } else { MAX_CPUS };
                let least = if options.test == Test::Hugetlb { 4 } else { 2 };
                if !(least..=most).contains(&options.nr_cpus) {
                    return Err(format!("--cpus is {value}, should be {least} to {most}"));
                }
            }
            "--check" => options.sides.check_every = number()? as usize,
            "--sides" => {
                let has = |side| value.split(',').any(|name| name == side);
                if !value.split(',').all(|name| ["linux", "linux-pool", "hosted"].contains(&name)) {
                    return Err(format!("--sides is {value}, should be a list of linux, linux-pool and hosted"));
                }
                let (linux, linux_pool, hosted) = (has("linux") || has("linux-pool"), has("linux-pool"), has("hosted"));
                options.sides = Sides { linux, linux_pool, hosted, ..options.sides };
            }
            _ => return Err(format!("{name} is no option of this test")),
        }
    }
    Ok(options)
}

/// The seed under way, for the watchdog, or [`REPORTING`].
static UNDER_WAY: AtomicU64 = AtomicU64::new(0);
const REPORTING: u64 = u64::MAX;

/// Ends the process, as after a difference, when one seed takes five minutes: the
/// core is in a loop, or waits for what never comes. A busy machine takes one.
fn watch() {
    std::thread::spawn(|| {
        let mut before = None;
        loop {
            let now = UNDER_WAY.load(Ordering::Relaxed);
            if before.replace(now) == Some(now) && now != REPORTING {
                println!("seed {now} hangs: no end after five minutes");
                std::process::exit(1);
            }
            std::thread::sleep(Duration::from_secs(300));
        }
    });
}

/// Sequences on several CPUs until the time is up.
fn several(options: &Options) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let (started, mut nr_steps, mut kinds) = (Instant::now(), 0, BTreeSet::new());
    let mut huge = HugeCounts::default();
    let machines: Vec<(Mode, FaultLocking)> = [Mode::Interrupt, Mode::Broadcast]
        .into_iter()
        .flat_map(|mode| FaultLocking::ALL.map(|fault_locking| (mode, options.fault_locking.unwrap_or(fault_locking))))
        .collect();
    let mut seed = options.seed;
    while started.elapsed() < Duration::from_secs(options.seconds) && kinds.len() < options.nr_differences {
        let (mode, fault_locking) = machines[(seed - options.seed) as usize % machines.len()];
        UNDER_WAY.store(seed, Ordering::Relaxed);
        let vm = machine(options.nr_cpus, mode, fault_locking)?;
        let threads = 0..options.nr_cpus.min(NR_THREADS) as u64;
        let (sequences, found) = if options.test == Test::Lockstep {
            let pages = (Limits::default().pages.0, 2048);
            let (file_percent, pool_percent) = (options.file_percent(seed), options.pool_percent(seed));
            let steps = sequence(seed, Limits { pages, file_percent, pool_percent, ..Limits::default() });
            let found = lockstep::run(&vm, &steps, seed, options.sides.check_every);
            (vec![steps], found.map(|found| (0, found)).into_iter().collect())
        } else {
            let file_percent = options.file_percent(seed);
            let limits = |i| Limits { file_percent, ..part(i, 300, seed.is_multiple_of(2)) };
            let all: Vec<_> = threads.map(|i| sequence(seed << 8 | i, limits(i))).collect();
            let found = parallel::run(&vm, &all, seed);
            (all, found)
        };
        for (i, found) in found {
            let ops: Vec<Op> = sequences[i].iter().map(|(op, _)| *op).collect();
            if kinds.insert(kind_of(&ops, &found)) {
                println!("{mode:?}, {fault_locking:?}, seed {seed}, sequence {i}: {found}");
                let last = found.step.min(ops.len() - 1);
                ops[last.saturating_sub(6)..=last].iter().for_each(|op| println!("  {op}"));
            }
        }
        huge.add(&vm);
        nr_steps += sequences.iter().map(Vec::len).sum::<usize>();
        seed += 1;
    }
    println!("{nr_steps} steps, seeds {} to {}, {} kinds of difference", options.seed, seed - 1, kinds.len());
    println!("{huge}");
    Ok(ExitCode::from(u8::from(!kinds.is_empty())))
}

/// Rounds with huge pages until the time is up.
fn huge(options: &Options) -> ExitCode {
    let (started, mut counts, mut seed) = (Instant::now(), HugeCounts::default(), options.seed);
    let size = Size::of(options.nr_cpus);
    let mut shown = 0;
    while started.elapsed() < Duration::from_secs(options.seconds) {
        UNDER_WAY.store(seed, Ordering::Relaxed);
        match churn::run::<X86_64>(seed, size) {
            Ok(more) => counts += more,
            Err(what) => {
                println!("seed {seed}: {what}");
                println!("again: cargo xtask soak huge --seconds 1 --seed {seed} --cpus {}", options.nr_cpus);
                return ExitCode::from(1);
            }
        }
        seed += 1;
        let seconds = started.elapsed().as_secs();
        if seconds >= shown + 10 {
            shown = seconds;
            println!("{seconds} s, {} rounds; {counts}", seed - options.seed);
        }
    }
    println!("seeds {} to {}: no byte changed, no frame lost", options.seed, seed - 1);
    println!("{counts}");
    ExitCode::SUCCESS
}

/// Rounds of actors that take turns, until the time is up.
fn relax(options: &Options) -> ExitCode {
    let (started, mut seed) = (Instant::now(), options.seed);
    while started.elapsed() < Duration::from_secs(options.seconds) {
        UNDER_WAY.store(seed, Ordering::Relaxed);
        if let Err(what) = baton::Round::random(seed).play() {
            println!("seed {seed}: {what}");
            return ExitCode::from(1);
        }
        seed += 1;
    }
    println!("seeds {} to {}: no byte lost, no frame lost", options.seed, seed - 1);
    ExitCode::SUCCESS
}

/// Rounds of each case, a part of them with each discipline.
fn hugetlb(options: &Options) -> ExitCode {
    const PART: u64 = 500;
    let started = Instant::now();
    for case in Case::ALL {
        let (mut nr, mut all) = (0, Played::default());
        while nr < options.nr_rounds {
            UNDER_WAY.store(nr, Ordering::Relaxed);
            let locking = HugetlbLocking::ALL[(nr / PART) as usize % HugetlbLocking::ALL.len()];
            let part = PART.min(options.nr_rounds - nr);
            match last_page::play(case, locking, options.nr_cpus, part) {
                Ok(played) => all += played,
                Err(what) => {
                    println!("{case:?}, {}, after {nr} rounds: {what}", locking.name());
                    return ExitCode::from(1);
                }
            }
            nr += part;
        }
        println!("{case:?}: {nr} rounds, {all}; {} s", started.elapsed().as_secs());
    }
    ExitCode::SUCCESS
}

fn machine(nr_cpus: usize, mode: Mode, fault_locking: FaultLocking) -> Result<Vm<Hosted>, Box<dyn std::error::Error>> {
    let arena_bytes = 256 << 20;
    let config = HostedConfig::default()
        .with_nr_cpus(nr_cpus)
        .with_mode(mode)
        .with_arena_bytes(arena_bytes)
        .with_swap_bytes(arena_bytes / 4)
        .with_strict_bbm(true)
        .with_tlb_entries(64);
    let hosted = Hosted::new(config)?;
    let tunables = Tunables::default().with_fault_locking(fault_locking);
    Ok(Vm::new(hosted, tunables)?)
}

fn soak(options: &Options) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut limits = Limits { linux: options.sides.linux, linux_pool: options.sides.linux_pool, ..Limits::default() };
    if options.sides.linux {
        let host = Linux::start()?.features()?;
        for feature in host.missing() {
            println!("this host's kernel lacks {}: left out", feature.name());
        }
        limits.features = if options.sides.hosted { host.and(limits.features) } else { host };
    }
    let arena_bytes = 256 << 20;
    let config = HostedConfig::default()
        .with_arena_bytes(arena_bytes)
        .with_swap_bytes(arena_bytes / 4)
        .with_strict_bbm(true)
        .with_tlb_entries(64);
    let mut judge = Judge::new(options.sides, config, Tunables::default())?;
    let (mut table, mut seed, started) = (Table::default(), options.seed, Instant::now());
    let (mut kinds, mut shown) = (BTreeSet::new(), 0);
    while started.elapsed() < Duration::from_secs(options.seconds) && table.nr() < options.nr_steps {
        UNDER_WAY.store(seed, Ordering::Relaxed);
        let steps = sequence(
            seed,
            Limits { file_percent: options.file_percent(seed), pool_percent: options.pool_percent(seed), ..limits },
        );
        let ops: Vec<Op> = steps.iter().map(|(op, _)| *op).collect();
        judge.set_trouble((!seed.is_multiple_of(2)).then_some(seed))?;
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
        let seconds = started.elapsed().as_secs();
        if seconds >= shown + 60 {
            shown = seconds;
            eprintln!("{seconds} s, {} steps, seed {seed}", table.nr());
        }
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
    println!("{}", judge.huge_counts());
    Ok(ExitCode::SUCCESS)
}

fn report(judge: &mut Judge, seed: u64, ops: &[Op], found: Difference) {
    UNDER_WAY.store(REPORTING, Ordering::Relaxed);
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

fn run(options: &Options) -> Result<ExitCode, Box<dyn std::error::Error>> {
    watch();
    match options.test {
        Test::Differential => soak(options),
        Test::Lockstep | Test::Parallel => several(options),
        Test::Huge => Ok(huge(options)),
        Test::Relax => Ok(relax(options)),
        Test::Hugetlb => Ok(hugetlb(options)),
    }
}

fn main() -> ExitCode {
    match options(std::env::args().skip(1)) {
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            ExitCode::from(2)
        }
        Ok(options) => run(&options).unwrap_or_else(|error| {
            eprintln!("the soak could not run: {error}");
            ExitCode::from(3)
        }),
    }
}
