//! The model against the host's Linux.

use super::Linux;
use crate::generate::{Limits, sequence};

#[test]
fn the_model_agrees_with_the_host() {
    let mut linux = Linux::start().unwrap();
    for seed in 0..200 {
        let sequence = sequence(seed, Limits::default());
        let ops: Vec<_> = sequence.iter().map(|(op, _)| *op).collect();
        let seen = linux.run(&ops).unwrap_or_else(|error| {
            let text: Vec<String> = ops.iter().enumerate().map(|(i, op)| format!("{i}: {op}")).collect();
            panic!("seed {seed}: {error}\n{}", text.join("\n"))
        });
        for (i, ((op, expected), seen)) in sequence.iter().zip(&seen).enumerate() {
            assert!(
                expected.allows(*seen),
                "seed {seed}, step {i}: {op} should give {} and gave {seen}",
                expected.outcome
            );
        }
    }
}
