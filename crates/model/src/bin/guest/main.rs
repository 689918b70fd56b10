//! Generated sequences against the kernel that this program runs on: the
//! reference kernel, or the host's Linux. The model has said beforehand what
//! each step must give.
//!
//! - `guest alone SEED SEQUENCES STEPS`: one sequence after the other;
//! - `guest turns THREADS SEED SEQUENCES STEPS`: the same, by threads that each
//!   keep to a CPU and do steps in turn, so that a translation that one of them
//!   should have lost is seen;
//! - `guest threads THREADS SEED SEQUENCES STEPS`: a sequence on each thread at
//!   once, in a part of the window of its own; threads move from CPU to CPU;
//! - `guest wrong SEED STEPS`: expects what cannot be of a sequence's last step,
//!   to show that a difference is told.
//!
//! Exits with 0, or with 1 and the shortest sequence found that differs on
//! standard output; with 2 if the arguments are wrong. `play.rs` has sequences,
//! `stage.rs` threads.

mod play;
mod stage;

use play::{Counts, Play, report};
use softfault_model::features::Features;
use softfault_model::generate::{Limits, part, sequence};
use softfault_model::model::Expected;
use softfault_model::native::{self, Cpus};
use softfault_model::op::{Op, Outcome};
use std::process::ExitCode;

const USAGE: &str = "usage: guest alone SEED SEQUENCES STEPS | guest turns THREADS SEED SEQUENCES STEPS | \
                     guest threads THREADS SEED SEQUENCES STEPS | guest wrong SEED STEPS";
/// Threads whose parts the window has room for, generously.
const MAX_THREADS: u64 = 32;

/// How a sequence is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By this thread.
    Alone,
    /// By so many threads in turn.
    Turns(u64),
    /// By so many at once.
    Threads(u64),
    /// By this thread, with one wrong expectation.
    Wrong,
}

struct Options {
    mode: Mode,
    seed: u64,
    nr_sequences: u64,
    nr_ops: usize,
}

fn options(args: &[String]) -> Option<Options> {
    let (mode, numbers) = args.split_first()?;
    let numbers: Vec<u64> = numbers.iter().map(|text| text.parse().ok()).collect::<Option<_>>()?;
    let is_some = |nr: &u64| (1..=MAX_THREADS).contains(nr);
    let (mode, seed, nr_sequences, nr_ops) = match (mode.as_str(), &numbers[..]) {
        ("alone", [seed, nr_sequences, nr_ops]) => (Mode::Alone, seed, nr_sequences, nr_ops),
        ("turns", [nr, seed, nr_sequences, nr_ops]) if is_some(nr) => (Mode::Turns(*nr), seed, nr_sequences, nr_ops),
        ("threads", [nr, seed, nr_sequences, nr_ops]) if is_some(nr) => {
            (Mode::Threads(*nr), seed, nr_sequences, nr_ops)
        }
        ("wrong", [seed, nr_ops]) => (Mode::Wrong, seed, &1, nr_ops),
        _ => return None,
    };
    Some(Options { mode, seed: *seed, nr_sequences: *nr_sequences, nr_ops: usize::try_from(*nr_ops).ok()? })
}

/// Whether it went as it should.
fn one(mode: Mode, seed: u64, limits: Limits, cpus: Cpus, counts: &mut Counts) -> bool {
    let mut play = Play::new(sequence(seed, limits));
    if let Some((_, expected)) = play.steps.last_mut().filter(|_| mode == Mode::Wrong) {
        expected.outcome = Outcome::Errno(1);
    }
    stage::run(&mut play, mode, cpus);
    counts.add(&play);
    let Some(found) = play.difference() else { return true };
    let ops: Vec<Op> = play.steps.iter().map(|(op, _)| *op).collect();
    let (ops, found) = play::minimise(ops, found, mode, cpus);
    report(&format!("seed {seed}"), &ops, &found);
    false
}

/// Several at once. A difference is not made shorter: it may not happen again.
fn several(nr_threads: u64, seed: u64, limits: Limits, cpus: Cpus, counts: &mut Counts) -> bool {
    let limits = |i| {
        let part = part(i, limits.nr_ops, false);
        Limits { pages: part.pages, heap: part.heap, grows: part.grows, knobs: part.knobs, ..limits }
    };
    let beside_others = |(op, expected): (Op, Expected)| (op, expected.beside_others(op.call));
    let steps = |i| sequence(seed << 8 | i, limits(i)).into_iter().map(beside_others).collect();
    let mut plays: Vec<Play> = (0..nr_threads).map(|i| Play::new(steps(i))).collect();
    stage::at_once(&mut plays, cpus);
    let mut good = true;
    for (i, play) in plays.iter().enumerate() {
        counts.add(play);
        if let Some(found) = play.difference() {
            let ops: Vec<Op> = play.steps[..=found.step].iter().map(|(op, _)| *op).collect();
            report(&format!("seed {seed}, thread {i}"), &ops, &found);
            good = false;
        }
    }
    good
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(options) = options(&args) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    native::prepare();
    let kernel = native::features();
    for feature in kernel.missing() {
        println!("this kernel lacks {}: left out", feature.name());
    }
    let features = kernel.and(Features::default());
    let limits = Limits { nr_ops: options.nr_ops, nr_programs: 1, features, linux: true, ..Limits::default() };
    // Asked before any thread keeps to one of them.
    let (cpus, mut counts) = (Cpus::allowed(), Counts::default());
    for seed in options.seed..options.seed.saturating_add(options.nr_sequences) {
        let good = match options.mode {
            Mode::Threads(nr) => several(nr, seed, limits, cpus, &mut counts),
            mode => one(mode, seed, limits, cpus, &mut counts),
        };
        if !good {
            return ExitCode::from(1);
        }
    }
    println!("{} steps, {}% succeeded", counts.nr_steps, counts.nr_good * 100 / counts.nr_steps.max(1));
    ExitCode::SUCCESS
}
