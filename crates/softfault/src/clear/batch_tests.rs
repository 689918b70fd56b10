//! Which batches are a trial.

use super::*;
use crate::machine::CpuId;
use crate::testing::vm_of;
use crate::tunables::Tunables;

/// Batches that are too small, or partly clean already (0 here), are never timed.
#[test]
fn only_a_batch_that_is_timed_is_a_trial() {
    let vm = vm_of(1, 4096, Tunables::default()).unwrap();
    let cpu = vm.cpu(CpuId(0));
    vm.machine.clock_step.set(1000);
    assert_eq!(vm.learn(cpu, 64), WriteDensity::Dense);
    // Its time is known now: the next one is a trial.
    for nr_frames in [0, 1, LEAST_FRAMES - 1].into_iter().cycle().take(1000) {
        assert_eq!(vm.learn(cpu, nr_frames), WriteDensity::Dense, "{nr_frames}");
    }
    assert_eq!(vm.learn(cpu, LEAST_FRAMES), WriteDensity::Sparse, "the trial has waited");
    assert_eq!(vm.learn(cpu, 64), WriteDensity::Dense, "and is over");
}

/// A lesson holds for batches of all sizes.
#[test]
fn small_batches_are_zeroed_for_the_density_that_was_learned() {
    let vm = vm_of(1, 4096, Tunables::default()).unwrap();
    let cpu = vm.cpu(CpuId(0));
    let after =
        |learned: Learned, density| learned.after(density, if density == WriteDensity::Sparse { 100 } else { 1000 });
    let learned = (0..8).fold(Learned::from_word(0), |learned, _| after(learned, learned.next()));
    cpu.batches.learned.set(learned.to_word());
    assert_eq!(vm.learn(cpu, 8), WriteDensity::Sparse);
}
