//! Settings are read as they were set, impossible ones change nothing, and what
//! faults ask agrees with the pure functions.

use super::*;
use crate::policy::huge::Sizes;
use crate::policy::huge::{CowHuge, Defrag, Enabled, SizeEnabled, eligible};
use crate::testing;
use crate::tunables::Tunables;
use crate::tunables::huge::KhugepagedKnobs;
use crate::vm::NewVmError;

/// Whatever the default of `enabled` is.
const NEVER: HugeKnobs = HugeKnobs { enabled: Enabled::Never, ..HugeKnobs::DEFAULT };

/// Every combination of `enabled` with settings of three sizes in which each of
/// the others has each value, too.
fn all() -> impl Iterator<Item = HugeKnobs> {
    let sizes = (0..64).map(|n| -> Sizes { core::array::from_fn(|i| SizeEnabled::ALL[n >> (2 * (i % 3)) & 3]) });
    sizes.flat_map(|sizes| {
        Enabled::ALL.iter().map(move |enabled| HugeKnobs { enabled: *enabled, sizes, ..HugeKnobs::DEFAULT })
    })
}

#[test]
fn what_is_set_is_read() {
    let vm = testing::vm(64, Tunables::default());
    assert_eq!(vm.huge_knobs(), HugeKnobs::DEFAULT);
    let other = HugeKnobs {
        use_zero_page: false,
        cow: CowHuge::Copy,
        khugepaged: KhugepagedKnobs {
            defrag: false,
            pages_to_scan: u32::MAX,
            scan_sleep_millisecs: 0,
            alloc_sleep_millisecs: u32::MAX,
            max_ptes_none: 0,
            max_ptes_swap: 511,
            max_ptes_shared: 1,
        },
        ..HugeKnobs::DEFAULT
    };
    for defrag in Defrag::ALL {
        for shrink_underused in [false, true] {
            let knobs = HugeKnobs { defrag: *defrag, shrink_underused, ..other };
            vm.set_huge_knobs(&knobs).unwrap();
            assert_eq!(vm.huge_knobs(), knobs);
        }
    }
    for knobs in all() {
        vm.set_huge_knobs(&knobs).unwrap();
        assert_eq!(vm.huge_knobs(), knobs);
    }
}

#[test]
fn the_masks_are_the_pure_functions_answers() {
    let vm = testing::vm(64, Tunables::default());
    let huge = [VmaFlags::empty(), VmaFlags::HUGEPAGE, VmaFlags::NOHUGEPAGE];
    for knobs in all() {
        vm.set_huge_knobs(&knobs).unwrap();
        for flags in huge.into_iter().flat_map(|flags| [flags, flags | VmaFlags::WRITE, flags | VmaFlags::SHARED]) {
            assert_eq!(vm.huge_orders(flags), eligible(knobs.enabled, &knobs.sizes, flags), "{knobs:?} {flags:?}");
        }
        let most = vm.huge_orders(VmaFlags::HUGEPAGE);
        assert_eq!(vm.huge_orders(VmaFlags::empty()).and(most), vm.huge_orders(VmaFlags::empty()));
        assert_eq!(vm.mid_orders_any(), most.iter().any(|order| order < Order::PMD), "{knobs:?}");
        assert_eq!(vm.khugepaged_wanted(), most.contains(Order::PMD), "{knobs:?}");
    }
}

#[test]
fn what_is_impossible_is_named_and_changes_nothing() {
    let vm = testing::vm(64, Tunables { thp: NEVER, ..Tunables::default() });
    let with = |change: &dyn Fn(&mut HugeKnobs)| {
        let mut knobs = HugeKnobs { enabled: Enabled::Always, ..HugeKnobs::DEFAULT };
        change(&mut knobs);
        knobs
    };
    let cases = [
        (with(&|k| k.khugepaged.pages_to_scan = 0), KnobError::PagesToScan),
        (with(&|k| k.khugepaged.max_ptes_none = 512), KnobError::MaxPtesNone),
        (with(&|k| k.khugepaged.max_ptes_swap = 1024), KnobError::MaxPtesSwap),
        (with(&|k| k.khugepaged.max_ptes_shared = u32::MAX), KnobError::MaxPtesShared),
    ];
    for (knobs, error) in cases {
        assert_eq!(vm.set_huge_knobs(&knobs), Err(error));
        assert_eq!(vm.huge_knobs(), NEVER);
        let refused = testing::try_vm(64, Tunables { thp: knobs, ..Tunables::default() });
        assert_eq!(refused.err(), Some(NewVmError::BadKnobs(error)));
    }
    for order in [0, 1, 10, 255] {
        let mut change = |knobs: &mut HugeKnobs| knobs.set_size(Order(order), SizeEnabled::Always);
        assert_eq!(vm.change_huge_knobs(&mut change), Err(KnobError::NoSuchSize));
        assert_eq!(HugeKnobs::DEFAULT.size(Order(order)), None);
    }
    vm.change_huge_knobs(&mut |knobs| knobs.set_size(Order(4), SizeEnabled::Always)).unwrap();
    assert_eq!(vm.huge_orders(VmaFlags::empty()), Orders(1 << 4));
    assert_eq!(vm.huge_knobs().size(Order(4)), Some(SizeEnabled::Always));
}

#[test]
fn off_is_for_good() {
    let vm = testing::vm(64, Tunables { thp: NEVER, thp_off: true, ..Tunables::default() });
    assert!(vm.huge_off());
    for knobs in all() {
        let allows = !eligible(knobs.enabled, &knobs.sizes, VmaFlags::HUGEPAGE).is_empty();
        assert_eq!(vm.set_huge_knobs(&knobs), if allows { Err(KnobError::Off) } else { Ok(()) }, "{knobs:?}");
        assert!(vm.huge_orders(VmaFlags::HUGEPAGE).is_empty() && vm.huge_off());
    }
    let space = vm.new_space().unwrap();
    assert!(space.collapse_orders(VmaFlags::HUGEPAGE).is_empty());
    let asked = HugeKnobs { enabled: Enabled::Madvise, ..HugeKnobs::DEFAULT };
    let refused = testing::try_vm(64, Tunables { thp: asked, thp_off: true, ..Tunables::default() });
    assert_eq!(refused.err(), Some(NewVmError::BadKnobs(KnobError::Off)));
}

#[test]
fn a_space_may_refuse_for_itself_and_its_children() {
    let knobs = HugeKnobs { enabled: Enabled::Always, ..HugeKnobs::DEFAULT };
    let vm = testing::vm(64, Tunables { thp: knobs, ..Tunables::default() });
    let space = vm.new_space().unwrap();
    let both = |space: &crate::AddressSpace<'_, _>| {
        (space.huge_orders(VmaFlags::HUGEPAGE), space.collapse_orders(VmaFlags::READ))
    };
    assert_eq!(both(&space), (Orders::PMD, Orders::PMD));
    space.set_thp_disable(true);
    assert!(space.thp_disable());
    assert_eq!(both(&space), (Orders::NONE, Orders::NONE));
    let child = space.fork().unwrap();
    assert_eq!(both(&child), (Orders::NONE, Orders::NONE));
    child.set_thp_disable(false);
    assert_eq!(both(&child), (Orders::PMD, Orders::PMD));
    assert!(space.thp_disable(), "the child's own");
    assert!(!vm.new_space().unwrap().thp_disable());
}
