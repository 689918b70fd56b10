//! The model against the host's Linux.

use super::Linux;
use crate::generate::{Limits, Sequence, sequence};
use crate::model::Model;
use crate::random::Random;

/// Steps dropped at random lead where the generator would not go.
#[test]
fn the_model_agrees_about_shaken_sequences() {
    let mut linux = Linux::start().unwrap();
    let limits = limits(&mut linux);
    let mut random = Random::new(0);
    for seed in 0..600 {
        let keep = 30 + random.below(60);
        let mut model = Model::new(limits.features).beside_linux();
        let steps = sequence(seed, limits).into_iter().filter(|_| random.chance(keep));
        // Where the model is at a loss, the sequence ends.
        let steps: Vec<_> = steps.map_while(|(op, _)| Some((op, model.apply(&op).ok()?))).collect();
        compare(&mut linux, seed, &steps);
    }
}

#[test]
fn the_model_agrees_with_the_host() {
    let mut linux = Linux::start().unwrap();
    let limits = limits(&mut linux);
    for seed in 0..200 {
        compare(&mut linux, seed, &sequence(seed, limits));
    }
}

/// All that the host has, also what the core lacks.
fn limits(linux: &mut Linux) -> Limits {
    Limits { features: linux.features().unwrap(), linux: true, ..Limits::default() }
}

fn compare(linux: &mut Linux, seed: u64, steps: &Sequence) {
    let ops: Vec<_> = steps.iter().map(|(op, _)| *op).collect();
    let text = || ops.iter().enumerate().map(|(i, op)| format!("{i}: {op}\n")).collect::<String>();
    let expected: Vec<_> = steps.iter().map(|(_, expected)| *expected).collect();
    let seen = linux.run_expecting(&ops, &expected).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", text()));
    for (i, ((_, expected), seen)) in steps.iter().zip(&seen).enumerate() {
        let good = expected.allows(*seen);
        assert!(good, "seed {seed}, step {i} should give {} and gave {seen}\n{}", expected.outcome, text());
    }
}
