//! Writes the corpus of the fuzz target `calls`: generated sequences, of which
//! each has a call, class of arguments and result that fewer than some of those
//! before it had.
//!
//! `cargo run --release -p softfault-testkit --example make_corpus -- fuzz/corpus/calls`

use softfault::FaultLocking;
use softfault_host::Mode;
use softfault_testkit::fuzz::{Case, Setup};
use softfault_testkit::generate::{Limits, sequence};
use softfault_testkit::table::class_of;
use std::collections::BTreeMap;
use std::path::Path;

/// Files wanted, and sequences looked at for them at most.
const NR_FILES: usize = 160;
const NR_SEEDS: u64 = 40_000;
/// A cell that so many files have is full.
const ENOUGH: u32 = 3;

fn case(seed: u64) -> Case {
    let setup = Setup {
        fault_locking: FaultLocking::ALL[seed as usize % 4],
        mode: [Mode::Interrupt, Mode::Broadcast][seed as usize / 4 % 2],
        several: seed / 8 % 2 == 1,
        seed: (seed / 16 % 16) as u8,
    };
    let limits = Limits { nr_ops: 20 + (seed % 7 * 20) as usize, nr_programs: 1 + seed % 4, ..Limits::default() };
    Case::new(setup, sequence(seed, limits).into_iter().map(|(op, _)| op))
}

/// Returns how many of the sequence's cells are still wanted.
fn gain(case: &Case, seen: &BTreeMap<String, u32>) -> usize {
    let mut cells = cells(case);
    cells.retain(|cell| seen.get(cell).is_none_or(|nr| *nr < ENOUGH));
    cells.len()
}

fn cells(case: &Case) -> Vec<String> {
    let cell =
        |op, label| format!("{:?} {} {label}", case.setup.fault_locking, class_of(op)) + &format!("{:?}", op.call);
    let mut cells: Vec<String> = case.steps.iter().map(|(op, expected)| cell(op, expected.outcome.label())).collect();
    cells.sort();
    cells.dedup();
    cells
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let to = std::env::args().nth(1).ok_or("the folder to write to is missing")?;
    let (mut seen, mut nr_files, mut nr_bytes) = (BTreeMap::new(), 0, 0);
    // Each round takes what gains less.
    for least in [8, 4, 2, 1] {
        for seed in 0..NR_SEEDS {
            let case = case(seed);
            if nr_files < NR_FILES && gain(&case, &seen) >= least {
                let bytes = case.encode();
                std::fs::write(Path::new(&to).join(format!("seed-{seed:05}")), &bytes)?;
                cells(&case).into_iter().for_each(|cell| *seen.entry(cell).or_insert(0) += 1);
                (nr_files, nr_bytes) = (nr_files + 1, nr_bytes + bytes.len());
            }
        }
    }
    println!("{nr_files} files, {nr_bytes} bytes, {} cells", seen.len());
    Ok(())
}
