//! Break before make, kept and forgotten.

use crate::config::Mode;
use crate::testing::{BOTH_MODES, Bench, RO, RW, leaf};
use softfault::addr::Pfn;
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
