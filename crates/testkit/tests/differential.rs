//! A short run of `cargo xtask soak differential`: the host's Linux, the core
//! and the model on the same sequences.

use softfault::Tunables;
use softfault_host::HostedConfig;
use softfault_testkit::generate::{Limits, sequence};
use softfault_testkit::judge::{Judge, Sides};
use softfault_testkit::table::Table;

#[test]
fn the_core_does_what_linux_does() {
    let sides = Sides { linux: true, hosted: true, check_every: 50 };
    let config = HostedConfig { arena_bytes: 512 << 20, strict_bbm: true, tlb_entries: 64, ..HostedConfig::default() };
    let mut judge = Judge::new(sides, config, Tunables::default()).unwrap();
    let mut table = Table::default();
    for seed in 0..150 {
        let steps = sequence(seed, Limits::default());
        let ops: Vec<_> = steps.iter().map(|(op, _)| *op).collect();
        if let Some(found) = judge.judge(&ops).unwrap() {
            let (ops, found) = judge.minimise(&ops, found);
            let text: Vec<String> = ops.iter().map(ToString::to_string).collect();
            panic!("seed {seed}: {found}\n{}", text.join("\n"));
        }
        steps.iter().for_each(|(op, expected)| table.add(op, expected.outcome));
    }
    assert!(table.percent_good() >= 60, "only {}% of the steps succeed", table.percent_good());
}
