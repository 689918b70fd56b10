//! The fuzz target `calls` without a fuzzer: every file of its corpus, and some
//! strings of bytes that are new.

mod common;

use common::{Format, IS_FULL, fewer};
use softfault::FaultLocking;
use softfault_host::Mode;
use softfault_testkit::fuzz::{Case, MAX_STEPS, Setup, run_on};
use softfault_testkit::generate::{Limits, sequence};
use softfault_testkit::op::{Call, Outcome};
use softfault_testkit::random::Random;
use std::collections::BTreeSet;
use std::path::Path;

fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/calls");
    let files = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths
        .into_iter()
        .step_by(if IS_FULL { 1 } else { 8 })
        .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
        .collect()
}

#[test]
fn every_file_of_the_corpus() {
    let files = corpus();
    let mut calls = BTreeSet::new();
    for (name, bytes) in &files {
        let case = Case::decode(bytes);
        assert!(!case.steps.is_empty(), "{name} has no steps");
        if let Err(difference) = run_on::<Format>(bytes) {
            panic!("{name}: {difference}");
        }
        calls.extend(case.steps.iter().map(|(op, expected)| (op.call, expected.outcome.label())));
    }
    if !IS_FULL {
        return;
    }
    assert!(files.len() >= 100, "the corpus has {} files", files.len());
    // Strings of bytes have no calls about files and pools: the random sequences of `differential` have them.
    for call in Call::ALL.into_iter().filter(|call| !call.is_of_file() && !call.is_of_pool()) {
        assert!(calls.iter().any(|(seen, label)| *seen == call && label.starts_with("ok")), "no good {call:?}");
    }
    let refused = calls.iter().filter(|(_, label)| !label.starts_with("ok")).count();
    assert!(refused >= 20, "only {refused} ways to be refused");
}

#[test]
fn any_bytes_are_a_sequence() {
    let mut random = Random::new(8);
    let (mut nr_steps, nr_inputs) = (0, if IS_FULL { 300 } else { 20 });
    for _ in 0..nr_inputs {
        let len = random.below(900);
        let bytes: Vec<u8> = (0..len).map(|_| random.number() as u8).collect();
        let case = Case::decode(&bytes);
        assert!(case.steps.len() <= MAX_STEPS);
        nr_steps += case.steps.len();
        if let Err(difference) = run_on::<Format>(&bytes) {
            panic!("{bytes:?}: {difference}");
        }
    }
    assert!(nr_steps > 10 * nr_inputs, "{nr_steps} steps in {nr_inputs} inputs");
}

#[test]
fn changed_bytes_of_the_corpus() {
    let mut random = Random::new(9);
    for (name, mut bytes) in corpus().into_iter().filter(|(_, bytes)| !bytes.is_empty()).take(fewer(120) as usize) {
        for _ in 0..1 + random.below(8) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.number() as u8;
        }
        if let Err(difference) = run_on::<Format>(&bytes) {
            panic!("{name} changed to {bytes:?}: {difference}");
        }
    }
}

const SETUP: Setup = Setup { fault_locking: FaultLocking::Split, mode: Mode::Broadcast, several: true, seed: 5 };

#[test]
fn what_is_encoded_is_decoded() {
    for seed in 0..50 {
        let ops = sequence(seed, Limits { nr_ops: 200, ..Limits::default() }).into_iter().map(|(op, _)| op);
        let case = Case::new(SETUP, ops);
        assert!(case.steps.len() > 150, "{} steps are left", case.steps.len());
        let again = Case::decode(&case.encode());
        assert_eq!(again.setup, SETUP);
        let plain = |case: &Case| -> Vec<_> {
            let loses = |call| matches!(call, Call::Store | Call::Load);
            case.steps
                .iter()
                .map(|(op, expected)| {
                    if loses(op.call) {
                        (op.call, op.args[0], Outcome::Value(0))
                    } else {
                        (op.call, op.args[1], expected.outcome)
                    }
                })
                .collect()
        };
        assert_eq!(plain(&again), plain(&case), "seed {seed}");
    }
}

#[test]
fn a_wrong_expectation_is_found() {
    for several in [false, true] {
        // Where the seed is odd memory fails, and the model says anew what each step must give.
        let setup = Setup { several, seed: 2, ..SETUP };
        let mut case = Case::new(setup, sequence(1, Limits::default()).into_iter().map(|(op, _)| op));
        assert_eq!(case.judge(), Ok(()));
        let step = case.steps.len() - 1;
        case.steps[step].1.outcome = Outcome::Errno(1);
        assert!(case.judge().is_err_and(|text| text.contains("EPERM")), "{several}");
    }
}
