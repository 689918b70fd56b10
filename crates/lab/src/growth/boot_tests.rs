//! A terabyte begins with the metadata of 2 GiB, whether it is zero or not: by count, not by time.

use super::begin;
use super::count::Counter;
use super::options::Config;
use super::what::What;
use crate::conflicts::machine;
use softfault_recorded::Order;

const TIB: u64 = 1 << 40;
const GIB_FRAMES: u64 = 1 << 18;

#[test]
fn a_terabyte_that_is_not_zero_is_laid_out_later() {
    machine::become_cpu(0);
    let config = Config { cpus: 4, bytes: TIB };
    let [zero, unknown] = [What::Boot, What::BootUnknown].map(|what| {
        let mut counter = Counter::new();
        let vm = counter.count(|| begin(config, what)).unwrap();
        // Sections that have not had their turn are passed by.
        let nr_laid_out = vm.fragmentation(Order::PMD).nr_free;
        (counter.steps(), nr_laid_out, vm)
    });
    let (nr_steps, nr_laid_out, vm) = &unknown;
    assert!(*nr_laid_out <= 2 * GIB_FRAMES + GIB_FRAMES / 4, "{nr_laid_out} frames have their metadata");
    assert!(zero.1 > 1000 * GIB_FRAMES);
    // All of it is free memory all the same.
    assert_eq!(vm.vmstat().nr_free_pages, zero.2.vmstat().nr_free_pages);
    // The descriptors of those sections that hold other metadata are written; all others would be 2^28.
    assert!(*nr_steps < zero.0 + 4 * GIB_FRAMES, "{nr_steps} words, and {} where it is zero", zero.0);
    assert!(vm.initialise_section());
    assert_eq!(vm.fragmentation(Order::PMD).nr_free, nr_laid_out + GIB_FRAMES / 8);
}
