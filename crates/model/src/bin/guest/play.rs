//! A sequence for this process, what came of it, and the shortest one that shows
//! a difference.

use crate::{Mode, stage};
use softfault_model::generate::Sequence;
use softfault_model::model::{Expected, Model};
use softfault_model::native::{self, Cpus, Turn};
use softfault_model::op::{Call, Op, Outcome};
use softfault_model::random::Random;
use softfault_model::shortest::shortest;

/// Steps before which a thread moves to another CPU, where threads do.
const HOPS_PERCENT: u64 = 10;

/// A step that did not do what it should.
pub struct Difference {
    /// Its number.
    pub step: usize,
    /// Outcome in the model.
    pub expected: Outcome,
    /// Outcome on the kernel.
    pub seen: Outcome,
}

/// Steps, and room for what comes of them.
pub struct Play {
    /// The steps, with their expected outcomes.
    pub steps: Sequence,
    /// Their outcomes, up to the first difference.
    pub seen: Vec<Outcome>,
}

impl Play {
    /// Without the steps that would touch what is this process's own.
    pub fn new(mut steps: Sequence) -> Play {
        steps.retain(|(op, _)| native::is_safe(op) && op.call != Call::Fork);
        Play { seen: Vec::with_capacity(steps.len()), steps }
    }

    /// By the calling thread, which hops between these CPUs. Allocates nothing.
    pub fn run(&mut self, turn: &Turn, hops: Option<Cpus>) {
        let mut random = Random::new(self.steps.len() as u64);
        for (op, expected) in &self.steps {
            if let Some(cpus) = hops.filter(|_| random.chance(HOPS_PERCENT)) {
                cpus.hop(random.number());
            }
            let seen = turn.step(op);
            self.seen.push(seen);
            if !expected.allows(seen) {
                break;
            }
        }
    }

    /// The first, if there is one.
    pub fn difference(&self) -> Option<Difference> {
        let judged = self.steps.iter().zip(&self.seen).enumerate();
        let mut wrong = judged.filter(|(_, ((_, expected), seen))| !expected.allows(**seen));
        wrong.next().map(|(step, ((_, expected), seen))| Difference { step, expected: expected.outcome, seen: *seen })
    }
}

fn judge(ops: &[Op], mode: Mode, cpus: Cpus) -> Option<Difference> {
    let mut model = Model::default();
    let expected: Vec<Expected> = ops.iter().map_while(|op| model.apply(op).ok()).collect();
    let mut play = Play::new(ops.iter().copied().zip(expected).collect());
    stage::run(&mut play, mode, cpus);
    play.difference()
}

/// Drops steps as long as a difference remains.
pub fn minimise(mut ops: Vec<Op>, found: Difference, mode: Mode, cpus: Cpus) -> (Vec<Op>, Difference) {
    ops.truncate(found.step + 1);
    shortest(ops, found, |fewer| {
        let found = judge(fewer, mode, cpus)?;
        let nr_steps = found.step + 1;
        Some((found, nr_steps))
    })
}

/// On standard output.
pub fn report(what: &str, ops: &[Op], found: &Difference) {
    println!("{what}: step {}: model {}, this kernel {}", found.step, found.expected, found.seen);
    ops.iter().for_each(|op| println!("  {op}"));
}

/// Steps done and how many of them succeeded.
#[derive(Default)]
pub struct Counts {
    /// All.
    pub nr_steps: usize,
    /// Those that did what they were asked.
    pub nr_good: usize,
}

impl Counts {
    /// Counts a sequence that has been done.
    pub fn add(&mut self, play: &Play) {
        self.nr_steps += play.seen.len();
        self.nr_good += play.seen.iter().filter(|outcome| outcome.is_success()).count();
    }
}
