//! Generated sequences against the kernel that this program runs on: the
//! reference kernel, or the host's Linux.
//!
//! `guest alone SEED SEQUENCES STEPS` runs one sequence after the other;
//! `guest threads NR SEED SEQUENCES STEPS` runs one on each of NR threads at a
//! time, each in a part of the window of its own. The model has said beforehand
//! what each step must give. `guest wrong SEED STEPS` expects what cannot be of
//! a sequence's last step, to show that a difference is told. Exits with 0, or with 1 and the shortest sequence
//! that differs on standard output; with 2 if the arguments are wrong.

use softfault_testkit::generate::{Limits, Sequence, sequence};
use softfault_testkit::model::{Expected, Model};
use softfault_testkit::native::{self, Turn};
use softfault_testkit::op::{Call, Op, Outcome};
use softfault_testkit::parallel;
use std::process::ExitCode;
use std::sync::{Barrier, OnceLock};
use std::thread;

const USAGE: &str =
    "usage: guest alone SEED SEQUENCES STEPS | guest threads NR SEED SEQUENCES STEPS | guest wrong SEED STEPS";
/// Threads whose parts the window has room for, generously.
const MAX_THREADS: u64 = 32;

struct Options {
    nr_threads: Option<u64>,
    /// Whether the last step is expected to do what it cannot.
    wrong: bool,
    seed: u64,
    nr_sequences: u64,
    nr_ops: usize,
}

fn options(args: &[String]) -> Option<Options> {
    let (mode, numbers) = args.split_first()?;
    let numbers: Vec<u64> = numbers.iter().map(|text| text.parse().ok()).collect::<Option<_>>()?;
    let (nr_threads, seed, nr_sequences, nr_ops) = match (mode.as_str(), &numbers[..]) {
        ("alone", [seed, nr_sequences, nr_ops]) => (None, *seed, *nr_sequences, *nr_ops),
        ("threads", [nr, seed, nr_sequences, nr_ops]) if (1..=MAX_THREADS).contains(nr) => {
            (Some(*nr), *seed, *nr_sequences, *nr_ops)
        }
        ("wrong", [seed, nr_ops]) => (None, *seed, 1, *nr_ops),
        _ => return None,
    };
    Some(Options { nr_threads, wrong: mode == "wrong", seed, nr_sequences, nr_ops: usize::try_from(nr_ops).ok()? })
}

/// A step that did not do what it should.
struct Difference {
    step: usize,
    expected: Outcome,
    seen: Outcome,
}

/// A sequence for this process, and room for what comes of it.
struct Play {
    steps: Sequence,
    seen: Vec<Outcome>,
}

impl Play {
    fn new(steps: Sequence) -> Play {
        let steps: Sequence =
            steps.into_iter().filter(|(op, _)| native::is_safe(op) && op.call != Call::Fork).collect();
        Play { seen: Vec::with_capacity(steps.len()), steps }
    }

    /// Allocates nothing.
    fn run(&mut self, turn: &Turn) {
        for (op, expected) in &self.steps {
            let seen = turn.step(op);
            self.seen.push(seen);
            if !expected.allows(seen) {
                break;
            }
        }
    }

    fn difference(&self) -> Option<Difference> {
        let judged = self.steps.iter().zip(&self.seen).enumerate();
        let mut wrong = judged.filter(|(_, ((_, expected), seen))| !expected.allows(**seen));
        wrong.next().map(|(step, ((_, expected), seen))| Difference { step, expected: expected.outcome, seen: *seen })
    }
}

/// Alone, and cleans up.
fn judge(ops: &[Op]) -> Option<Difference> {
    let mut model = Model::default();
    let expected: Vec<Expected> = ops.iter().map_while(|op| model.apply(op).ok()).collect();
    let mut play = Play::new(ops.iter().copied().zip(expected).collect());
    let turn = Turn::begin();
    play.run(&turn);
    turn.end();
    play.difference()
}

/// Drops steps as long as a difference remains.
fn minimise(mut ops: Vec<Op>, mut found: Difference) -> (Vec<Op>, Difference) {
    ops.truncate(found.step + 1);
    let mut chunk = ops.len() / 2;
    while chunk > 0 {
        let (mut at, mut dropped) = (0, false);
        while at < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + chunk).min(ops.len()));
            match judge(&fewer) {
                Some(difference) => {
                    fewer.truncate(difference.step + 1);
                    (ops, found, dropped) = (fewer, difference, true);
                }
                None => at += chunk,
            }
        }
        if !dropped || chunk > 1 {
            chunk /= 2;
        }
    }
    (ops, found)
}

fn report(what: &str, ops: &[Op], found: &Difference) {
    println!("{what}: step {}: model {}, this kernel {}", found.step, found.expected, found.seen);
    ops.iter().for_each(|op| println!("  {op}"));
}

/// Steps done and how many of them succeeded.
#[derive(Default)]
struct Counts {
    nr_steps: usize,
    nr_good: usize,
}

impl Counts {
    fn add(&mut self, play: &Play) {
        self.nr_steps += play.seen.len();
        self.nr_good += play.seen.iter().filter(|outcome| outcome.is_success()).count();
    }
}

fn alone(seed: u64, limits: Limits, wrong: bool, counts: &mut Counts) -> bool {
    let mut play = Play::new(sequence(seed, limits));
    if let Some((_, expected)) = play.steps.last_mut().filter(|_| wrong) {
        expected.outcome = Outcome::Errno(1);
    }
    let turn = Turn::begin();
    play.run(&turn);
    turn.end();
    counts.add(&play);
    let Some(found) = play.difference() else { return true };
    // The steps that were left out may have been the model's, so it goes again.
    let ops: Vec<Op> = play.steps.iter().map(|(op, _)| *op).collect();
    let (ops, found) = minimise(ops, found);
    report(&format!("seed {seed}"), &ops, &found);
    false
}

/// One sequence on each thread at once. Nobody allocates while a step may be
/// under way: the threads are there before, and stay until all is over.
fn together(plays: &mut [Play]) {
    let (barrier, turn) = (&Barrier::new(plays.len() + 1), &OnceLock::new());
    let act = &|play: &mut Play| {
        barrier.wait();
        barrier.wait();
        if let Some(turn) = turn.get() {
            play.run(turn);
        }
        barrier.wait();
        barrier.wait();
    };
    thread::scope(|scope| {
        plays.iter_mut().for_each(|play| _ = scope.spawn(move || act(play)));
        barrier.wait();
        let turn = turn.get_or_init(Turn::begin);
        barrier.wait();
        barrier.wait();
        turn.end();
        barrier.wait();
    });
}

fn threads(nr_threads: u64, seed: u64, limits: Limits, counts: &mut Counts) -> bool {
    let limits = |i| {
        let part = parallel::limits(i, limits.nr_ops);
        Limits { pages: part.pages, heap: part.heap, grows: part.grows, ..limits }
    };
    let mut plays: Vec<Play> = (0..nr_threads).map(|i| Play::new(sequence(seed << 8 | i, limits(i)))).collect();
    together(&mut plays);
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
    let guards = native::has_guards();
    if !guards {
        println!("this kernel lacks MADV_GUARD_INSTALL: left out");
    }
    let limits = Limits { nr_ops: options.nr_ops, nr_programs: 1, guards, ..Limits::default() };
    let mut counts = Counts::default();
    for seed in options.seed..options.seed + options.nr_sequences {
        let good = match options.nr_threads {
            None => alone(seed, limits, options.wrong, &mut counts),
            Some(nr) => threads(nr, seed, limits, &mut counts),
        };
        if !good {
            return ExitCode::from(1);
        }
    }
    println!("{} steps, {}% succeeded", counts.nr_steps, counts.nr_good * 100 / counts.nr_steps.max(1));
    ExitCode::SUCCESS
}
