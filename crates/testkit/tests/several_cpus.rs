//! The model against the hosted machine with several CPUs, in both modes of
//! invalidation and under all four fault-locking modes.

mod common;

use common::{Format, Hosted, IS_FULL, fewer};
use softfault::{Event, FaultLocking, Tunables, Vm};
use softfault_host::Mode;
use softfault_testkit::formats::Tested;
use softfault_testkit::generate::{Limits, part, sequence};
use softfault_testkit::hosted::HugeCounts;
use softfault_testkit::{lockstep, parallel};

const BOTH_MODES: [Mode; 2] = [Mode::Interrupt, Mode::Broadcast];

fn vm(nr_cpus: usize, mode: Mode, fault_locking: FaultLocking) -> Vm<Hosted> {
    let config = Format::config()
        .with_nr_cpus(nr_cpus)
        .with_mode(mode)
        .with_arena_bytes(256 << 20)
        .with_swap_bytes(16 << 20)
        .with_tlb_entries(128)
        .with_strict_bbm(true);
    let hosted = Hosted::with_format(config).unwrap();
    let tunables = Tunables::default().with_fault_locking(fault_locking);
    Vm::new(hosted, tunables).unwrap()
}

/// Of the steps of every fourth sequence, about files.
fn file_percent(seed: u64) -> u64 {
    if seed % 4 == 3 { 25 } else { 0 }
}

fn small(nr_ops: usize, seed: u64) -> Limits {
    let (pages, task_size) = ((Limits::default().pages.0, 2048), Format::TASK_SIZE);
    // Another one of four has a pool.
    let pool_percent = if seed % 4 == 2 { 60 } else { 0 };
    Limits { nr_ops, pages, task_size, file_percent: file_percent(seed), pool_percent, ..Limits::default() }
}

/// Of CPU `i`, where all run at once.
fn limits(i: u64, nr_ops: usize, seed: u64) -> Limits {
    let file_percent = file_percent(seed + i);
    Limits { task_size: Format::TASK_SIZE, file_percent, ..part(i, nr_ops, seed.is_multiple_of(2)) }
}

fn in_turn(mode: Mode) {
    let mut huge = HugeCounts::default();
    let mut nr_swapped = [0; 3];
    for fault_locking in FaultLocking::ALL {
        let vm = vm(4, mode, fault_locking);
        for seed in 0..fewer(8) {
            let steps = sequence(seed, small(250, seed));
            if let Some(found) = lockstep::run(&vm, &steps, seed, 60) {
                let text: Vec<String> = steps.iter().take(found.step + 1).map(|(op, _)| op.to_string()).collect();
                panic!("{mode:?}, {fault_locking:?}, seed {seed}: {found}\n{}", text.join("\n"));
            }
        }
        huge.add(&vm);
        nr_swapped
            .iter_mut()
            .zip([Event::Pswpout, Event::Pswpin, Event::FramesPoisoned])
            .for_each(|(nr, event)| *nr += vm.event(event));
    }
    assert!(
        !IS_FULL || nr_swapped.iter().zip([50, 50, 15]).all(|(nr, least)| *nr > least),
        "pages written, read, and failed: {nr_swapped:?}"
    );
    assert!(!IS_FULL || huge.nr_faults > 10 && huge.nr_mid > 10 && huge.nr_splits > 10, "{huge}");
    let nr_dirty = huge.nr_dirty;
    assert!(!IS_FULL || nr_dirty.iter().all(|nr| *nr > 100), "pages of each word of blocks: {nr_dirty:?}");
}

#[test]
fn in_turn_with_interrupts() {
    in_turn(Mode::Interrupt);
}

#[test]
fn in_turn_without_interrupts() {
    in_turn(Mode::Broadcast);
}

#[test]
fn at_once() {
    let mut huge = HugeCounts::default();
    for mode in BOTH_MODES {
        for fault_locking in FaultLocking::ALL {
            let vm = vm(4, mode, fault_locking);
            for seed in 0..fewer(6) {
                let limits = |i| limits(i, 250, seed);
                let all: Vec<_> = (0..4).map(|i| sequence(seed * 4 + i, limits(i))).collect();
                if let Some((cpu, found)) = parallel::run(&vm, &all, seed).into_iter().next() {
                    let last = found.step.min(all[cpu].len() - 1);
                    let text: Vec<String> = all[cpu][..=last].iter().map(|(op, _)| op.to_string()).collect();
                    panic!("{mode:?}, {fault_locking:?}, seed {seed}, CPU {cpu}: {found}\n{}", text.join("\n"));
                }
            }
            huge.add(&vm);
        }
    }
    assert!(!IS_FULL || huge.nr_faults > 10 && huge.nr_mid > 10 && huge.nr_splits > 10, "{huge}");
    let nr_dirty = huge.nr_dirty;
    assert!(!IS_FULL || nr_dirty.iter().all(|nr| *nr > 100), "pages of each word of blocks: {nr_dirty:?}");
}

/// The edges of the words that sets of CPUs are made of: 33, 65, 512 CPUs, of which
/// eight threads are some, others with each seed.
#[test]
fn in_turn_on_large_machines() {
    for (nr_cpus, nr_seeds) in [(33, 6), (65, 12), (512, 6)] {
        for mode in BOTH_MODES {
            for seed in 0..fewer(nr_seeds) {
                let vm = vm(nr_cpus, mode, FaultLocking::Lockfree);
                let steps = sequence(1000 + seed, small(250, seed));
                if let Some(found) = lockstep::run(&vm, &steps, seed, 120) {
                    panic!("{nr_cpus} CPUs, {mode:?}, seed {seed}: {found}");
                }
            }
        }
    }
}

#[test]
fn at_once_on_large_machines() {
    for nr_cpus in [33, 65, 512] {
        for mode in BOTH_MODES {
            for seed in 0..fewer(3) {
                let vm = vm(nr_cpus, mode, FaultLocking::Lockfree);
                let all: Vec<_> = (0..8).map(|i| sequence(seed * 8 + i, limits(i, 150, seed))).collect();
                if let Some((i, found)) = parallel::run(&vm, &all, seed).into_iter().next() {
                    panic!("{nr_cpus} CPUs, {mode:?}, seed {seed}, sequence {i}: {found}");
                }
            }
        }
    }
}
