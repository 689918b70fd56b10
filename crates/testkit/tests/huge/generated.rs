//! Generated calls about huge pages, against the testkit's model of an address space.

use super::common::{Format, IS_FULL, fewer};
use super::*;
use softfault::{Tunables, Vm};
use softfault_testkit::formats::Tested;
use softfault_testkit::generate::{Limits, sequence};
use softfault_testkit::hosted::HugeCounts;
use softfault_testkit::lockstep;

/// The checker looks at everything after each step; `several_cpus` has longer sequences without that.
#[test]
fn generated_calls_agree_with_the_model() {
    let mut counts = HugeCounts::default();
    let limits =
        Limits { nr_ops: 400, huge_percent: 40, knobs: false, task_size: Format::TASK_SIZE, ..Limits::default() };
    for seed in 0..fewer(12) {
        let config = Format::config().with_nr_cpus(2).with_arena_bytes(96 << 20).with_zeroed(false);
        let mut thp = knobs().with_cow([CowHuge::Copy, CowHuge::Split][seed as usize % 2]);
        if seed % 3 == 0 {
            thp.sizes.fill(SizeEnabled::Always);
        }
        let vm = Vm::new(Hosted::with_format(config).unwrap(), Tunables::default().with_thp(thp)).unwrap();
        let steps = sequence(seed, limits);
        if let Some(found) = lockstep::run(&vm, &steps, seed, 1) {
            let text: Vec<String> = steps.iter().take(found.step + 1).map(|(op, _)| op.to_string()).collect();
            panic!("seed {seed}: {found}\n{}", text.join("\n"));
        }
        counts.add(&vm);
    }
    assert!(!IS_FULL || counts.nr_faults > 100 && counts.nr_mid > 100 && counts.nr_splits > 60, "{counts}");
}
