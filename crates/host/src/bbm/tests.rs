//! Break before make, kept and forgotten.

use crate::config::Mode;
use crate::testing::{BOTH_MODES, Bench, RO, RW, leaf};
use softfault::addr::{PageRange, Pfn, Vpn};
use softfault::machine::{CpuId, CpuSet, Flush, Machine};
use softfault::table::format::Entry;

/// CPU 1 uses page 0, `change` happens on CPU 0, which then uses page 0.
fn after(mode: Mode, change: impl Fn(&Bench)) -> (u64, Option<String>) {
    let bench = Bench::small(2, mode);
    bench.set(0, 0, leaf(Pfn(512), RO));
    let one = bench.machine.bind(CpuId(1)).unwrap();
    bench.load(&one, 0).unwrap();
    drop(one);
    let zero = bench.machine.bind(CpuId(0)).unwrap();
    change(&bench);
    bench.load(&zero, 0).unwrap();
    bench.machine.violations()
}

#[test]
fn a_frame_changed_without_a_break_is_reported() {
    for mode in BOTH_MODES {
        let (nr, first) = after(mode, |bench| bench.set(0, 0, leaf(Pfn(513), RO)));
        let first = first.unwrap();
        assert_eq!(nr, 1);
        assert!(first.contains("CPU 0") && first.contains("CPU 1") && first.contains("pfn:0x201"), "{first}");
    }
}

#[test]
fn a_size_changed_without_a_break_is_reported() {
    for mode in BOTH_MODES {
        let (nr, _) = after(mode, |bench| bench.set(0, 1, leaf(Pfn(512), RO)));
        assert_eq!(nr, 1, "the same frames in another size");
    }
}

/// As [`after`] with a huge page first, which `change` splits.
fn after_split(mode: Mode, change: impl Fn(&Bench)) -> u64 {
    let bench = Bench::small(2, mode);
    bench.set(0, 1, leaf(Pfn(512), RO));
    let one = bench.machine.bind(CpuId(1)).unwrap();
    // Another page of it than the one that is used later.
    bench.load(&one, 300 << 12).unwrap();
    drop(one);
    let zero = bench.machine.bind(CpuId(0)).unwrap();
    change(&bench);
    bench.load(&zero, 7 << 12).unwrap();
    bench.machine.violations().0
}

/// A leaf table with the frames that the huge page had.
fn split(bench: &Bench) {
    bench.set(0, 1, Entry::None);
    (0..512).for_each(|page| bench.set(page, 0, leaf(Pfn(512 + page as u32), RO)));
}

#[test]
fn a_split_without_a_break_is_reported() {
    for mode in BOTH_MODES {
        assert_eq!(after_split(mode, split), 1, "the same frames in another size");
        let broken = |page: u64| {
            move |bench: &Bench| {
                bench.set(0, 1, Entry::Busy);
                bench.shoot(page);
                split(bench);
            }
        };
        assert_eq!(after_split(mode, broken(511)), 0, "any page of it breaks it");
        assert_eq!(after_split(mode, broken(512)), 1, "the next one does not");
    }
}

#[test]
fn both_sizes_on_one_cpu_are_reported() {
    for mode in BOTH_MODES {
        let bench = Bench::small(1, mode);
        let cpu = bench.machine.bind(CpuId(0)).unwrap();
        bench.set(0, 1, leaf(Pfn(512), RW));
        bench.load(&cpu, 0).unwrap();
        bench.set(0, 1, Entry::None);
        bench.set(7, 0, leaf(Pfn(519), RW));
        bench.load(&cpu, 7 << 12).unwrap();
        assert_eq!(bench.machine.violations().0, 0, "cached, so nothing was filled");
        bench.store(&cpu, 7 << 12, 1).unwrap();
        assert_eq!(bench.machine.violations().0, 1, "walked for the dirty bit: page 7 by both sizes now");
    }
}

#[test]
fn a_collapse_that_forgets_cached_tables_is_reported() {
    for mode in BOTH_MODES {
        let collapse = |flush: Flush| {
            let bench = Bench::small(2, mode);
            bench.set(0, 0, leaf(Pfn(512), RO));
            bench.set(1, 0, leaf(Pfn(513), RO));
            let one = bench.machine.bind(CpuId(1)).unwrap();
            bench.load(&one, 0).unwrap();
            drop(one);
            let zero = bench.machine.bind(CpuId(0)).unwrap();
            bench.set(0, 1, Entry::Busy);
            bench.shoot_what(flush);
            bench.set(0, 1, leaf(Pfn(1024), RO));
            bench.load(&zero, 0).unwrap();
            drop(zero);
            let one = bench.machine.bind(CpuId(1)).unwrap();
            bench.load(&one, 1 << 12).unwrap();
            bench.machine.violations().0
        };
        let pages = Flush::Pages(PageRange::new(Vpn(0), Vpn(512)));
        assert_eq!(collapse(pages), 1, "CPU 1 still walks the old leaf table");
        assert_eq!(collapse(Flush::Space), 0);
    }
}

#[test]
fn a_shootdown_that_misses_a_cpu_is_reported() {
    for mode in BOTH_MODES {
        let (nr, _) = after(mode, |bench| {
            bench.machine.shootdown(bench.space, &CpuSet::first(1), Flush::Space);
            bench.set(0, 0, leaf(Pfn(513), RO));
        });
        assert_eq!(nr, 1);
    }
}

#[test]
fn what_is_allowed_is_not_reported() {
    for mode in BOTH_MODES {
        assert_eq!(after(mode, |bench| bench.set(0, 0, leaf(Pfn(512), RW))), (0, None), "rights alone");
        let broken = |bench: &Bench| {
            bench.set(0, 0, Entry::Busy);
            bench.shoot(0);
            bench.set(0, 0, leaf(Pfn(513), RO));
        };
        assert_eq!(after(mode, broken), (0, None), "broken, then made");
        assert_eq!(after(mode, |bench| bench.set(7, 0, leaf(Pfn(900), RO))), (0, None), "another page");
    }
}
