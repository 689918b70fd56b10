//! Posted flushes: served before the next access, none lost, bounded.

use crate::config::Mode;
use crate::cpu::CpuGuard;
use crate::testing::{Bench, RO, leaf};
use softfault::machine::CpuId;
use softfault::table::format::Entry;

/// CPU 1 caches `nr_pages`; CPU 0 takes them away one by one; CPU 1 looks again.
fn take_away(nr_pages: u64) -> (Bench, u64) {
    let bench = Bench::small(2, Mode::Interrupt);
    (0..nr_pages).for_each(|page| bench.set(page, 0, leaf(bench.frame(), RO)));
    let touched = |cpu: &CpuGuard<'_>| (0..nr_pages).filter(|page| bench.load(cpu, page << 12).is_ok()).count() as u64;
    {
        let cpu = bench.machine.bind(CpuId(1)).unwrap();
        assert_eq!(touched(&cpu), nr_pages);
    }
    {
        let _cpu = bench.machine.bind(CpuId(0)).unwrap();
        for page in 0..nr_pages {
            bench.set(page, 0, Entry::Busy);
            bench.shoot(page);
        }
    }
    let cpu = bench.machine.bind(CpuId(1)).unwrap();
    let left = touched(&cpu);
    drop(cpu);
    (bench, left)
}

#[test]
fn posts_are_served_before_the_next_access() {
    let (bench, left) = take_away(10);
    assert_eq!(left, 0);
    let stats = bench.machine.stats(CpuId(1)).unwrap();
    assert_eq!((stats.served, stats.overflows), (10, 0));
}

#[test]
fn too_many_posts_take_everything() {
    let (bench, left) = take_away(40);
    assert_eq!(left, 0);
    let stats = bench.machine.stats(CpuId(1)).unwrap();
    assert_eq!((stats.served, stats.overflows), (16, 1));
    assert_eq!(bench.machine.stats(CpuId(0)).unwrap().served, 0, "the caller flushes its own at once");
}
