//! Misses and loads, on tables made by hand.

use super::{TlbStats, nested_loads};
use crate::config::{HostedConfig, Mode};
use crate::cpu::CpuGuard;
use crate::testing::{Bench, RO, RW, leaf};
use softfault::addr::Pfn;
use softfault::machine::CpuId;

const NR_HUGE: u64 = 64;
const NR_PAGES: u64 = NR_HUGE * 512;

/// 1,536 entries, and room for every table that maps the pages by 4 KiB.
fn bench() -> Bench {
    Bench::new(HostedConfig { arena_bytes: 16 << 20, ..HostedConfig::default() })
}

/// All pages map the same few frames: what is counted is where the TLB looks.
fn small(bench: &Bench) {
    (0..NR_PAGES).for_each(|page| bench.set(page, 0, leaf(Pfn(512), RO)));
}

fn huge(bench: &Bench) {
    (0..NR_HUGE).for_each(|i| bench.set(i * 512, 1, leaf(Pfn(512), RO)));
}

/// One load from each page, and what was counted meanwhile.
fn strided_pass(bench: &Bench, cpu: &CpuGuard<'_>) -> TlbStats {
    bench.machine.reset_tlb_stats(CpuId(0));
    for page in 0..NR_PAGES {
        bench.load(cpu, page << 12).unwrap();
    }
    bench.machine.tlb_stats(CpuId(0)).unwrap()
}

#[test]
fn a_strided_pass_misses_512_times_less_with_huge_pages() {
    let (of_small, of_huge) = (bench(), bench());
    small(&of_small);
    huge(&of_huge);
    let cpu = of_small.machine.bind(CpuId(0)).unwrap();
    let (cold, second) = (strided_pass(&of_small, &cpu), strided_pass(&of_small, &cpu));
    assert_eq!((cold.lookups, cold.misses), (NR_PAGES, NR_PAGES));
    // More pages than the TLB holds: a second pass finds few of them.
    assert!(second.misses > NR_PAGES - 1536, "{second:?}");
    drop(cpu);

    let cpu = of_huge.machine.bind(CpuId(0)).unwrap();
    let cold_huge = strided_pass(&of_huge, &cpu);
    assert_eq!((cold_huge.lookups, cold_huge.misses), (NR_PAGES, NR_HUGE));
    assert!(cold.misses >= 400 * cold_huge.misses);
    assert_eq!(strided_pass(&of_huge, &cpu).misses, 0, "64 translations fit");
}

#[test]
fn loads_native_and_nested() {
    assert_eq!((nested_loads(4, 4), nested_loads(4, 3), nested_loads(3, 3)), (24, 19, 15));
    let bench = bench();
    bench.set(0, 0, leaf(Pfn(512), RW));
    bench.set(512, 1, leaf(Pfn(512), RW));
    let cpu = bench.machine.bind(CpuId(0)).unwrap();
    let of = |addr: u64| {
        bench.machine.reset_tlb_stats(CpuId(0));
        bench.load(&cpu, addr).unwrap();
        let stats = bench.machine.tlb_stats(CpuId(0)).unwrap();
        (stats.misses, stats.loads, stats.loads_nested_small, stats.loads_nested_huge)
    };
    assert_eq!(of(0), (1, 4, 24, 19));
    assert_eq!(of(512 << 12), (1, 3, 19, 15));
    assert_eq!(of(0), (0, 0, 0, 0), "cached");
    bench.shoot(0);
    assert_eq!(of(0), (1, 4, 24, 19), "a cached table pointer is not counted on");
}

#[test]
fn a_fault_is_a_miss_without_loads_and_a_dirty_walk_is_a_miss_with_them() {
    let bench = Bench::small(1, Mode::Interrupt);
    let cpu = bench.machine.bind(CpuId(0)).unwrap();
    let stats = || bench.machine.tlb_stats(CpuId(0)).unwrap();
    assert!(bench.load(&cpu, 0).is_err());
    assert_eq!((stats().lookups, stats().misses, stats().loads), (1, 1, 0));
    bench.set(0, 0, leaf(Pfn(512), RW));
    bench.load(&cpu, 0).unwrap();
    bench.store(&cpu, 0, 1).unwrap();
    bench.store(&cpu, 0, 2).unwrap();
    assert_eq!((stats().lookups, stats().misses, stats().loads), (4, 3, 8));
    assert_eq!(bench.machine.stats(CpuId(0)).unwrap().walks, 3, "which a reset leaves alone");
    bench.machine.reset_tlb_stats(CpuId(0));
    assert_eq!(stats(), TlbStats::default());
    assert_eq!(bench.machine.stats(CpuId(0)).unwrap().walks, 3);
    assert!(!bench.machine.reset_tlb_stats(CpuId(1)) && bench.machine.tlb_stats(CpuId(1)).is_none());
}
