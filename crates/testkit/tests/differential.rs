//! A short run of `cargo xtask soak differential`: the host's Linux, the core
//! and the model on the same sequences.

use softfault::{Event, Tunables};
use softfault_host::HostedConfig;
use softfault_testkit::features::Features;
use softfault_testkit::generate::{Limits, sequence};
use softfault_testkit::judge::{Judge, Sides};
use softfault_testkit::linux::Linux;
use softfault_testkit::table::Table;

/// Of what the core has, what the host has, too.
fn host_features() -> Features {
    Linux::start().unwrap().features().unwrap().and(Features::default())
}

/// Sequences from `first` on for as long as `more` says.
fn compare(first: u64, mut more: impl FnMut(u64) -> bool) {
    let sides = Sides { linux: true, linux_pool: false, hosted: true, check_every: 50 };
    let config = HostedConfig::default()
        .with_arena_bytes(512 << 20)
        .with_swap_bytes(64 << 20)
        .with_strict_bbm(true)
        .with_tlb_entries(64);
    let limits = Limits { features: host_features(), linux: true, ..Limits::default() };
    let mut judge = Judge::new(sides, config, Tunables::default()).unwrap();
    let mut table = Table::default();
    let mut most = [0; 3];
    for seed in (first..).take_while(|seed| more(seed - first)) {
        // Every fifth sequence has files; another one has a pool, and is not for Linux.
        let file_percent = if seed % 5 == 4 { 25 } else { 0 };
        let pool_percent = if seed % 5 == 2 { 60 } else { 0 };
        let steps = sequence(seed, Limits { file_percent, pool_percent, ..limits });
        let ops: Vec<_> = steps.iter().map(|(op, _)| *op).collect();
        // In every second sequence memory fails and pages leave memory.
        judge.set_trouble((!seed.is_multiple_of(2)).then_some(seed)).unwrap();
        if let Some(found) = judge.judge(&ops).unwrap() {
            let (ops, found) = judge.minimise(&ops, found);
            let text: Vec<String> = ops.iter().map(ToString::to_string).collect();
            panic!("seed {seed}: {found}\n{}", text.join("\n"));
        }
        steps.iter().for_each(|(op, expected)| table.add(op, expected.outcome));
        if judge.vm().event(Event::FramesPoisoned) > 50 {
            most =
                most.max([Event::FramesPoisoned, Event::Pswpout, Event::Pswpin].map(|event| judge.vm().event(event)));
        }
    }
    assert!(most.iter().all(|nr| *nr > 50), "frames failed, pages written and read: {most:?}");
    assert!(table.percent_good() >= 60, "only {}% of the steps succeed", table.percent_good());
}

#[test]
fn the_core_does_what_linux_does() {
    compare(0, |nr| nr < 150);
}

/// For planted faults (`planted-...` in `xtask/mutants/kept`): some need a few thousand
/// sequences.
#[test]
#[ignore = "takes 40 seconds; `cargo xtask soak differential` is the same with a choice"]
fn the_core_does_what_linux_does_for_long() {
    compare(1, |nr| nr < 1000);
}
