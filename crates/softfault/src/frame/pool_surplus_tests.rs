//! Surplus pages that a reservation takes and gives back are held meanwhile. The races are in `crates/shuffled`.

use super::*;
use crate::addr::Order;
use crate::frame::held::HOLDERS;
use crate::machine::CpuId;
use crate::space::Vm;
use crate::testing::from_frame;
use crate::tunables::Tunables;
use std::vec;

const NR_FRAMES: u64 = 8 << 9;

/// I28: it counts as a holder from before its first page until the last one is back. A reservation that takes none leaves no trace.
#[test]
fn a_reservation_that_is_refused_in_the_middle_is_a_holder() {
    let vm = Vm::new(from_frame(0, NR_FRAMES, &[(0, NR_FRAMES)]), Tunables::default()).unwrap();
    vm.set_nr_overcommit_hugepages(Order::PMD, 100).unwrap();
    let nr_ended = || vm.cpu(CpuId(0)).held.get() >> HOLDERS.count_ones();
    vm.fail_allocation(Some(2));
    let before = nr_ended();
    assert_eq!(vm.hugetlb_reserve(PoolId::Of2M, 4), Err(NoHugePages));
    assert_eq!(nr_ended() - before, 2 + 1, "two pages, and the reservation");
    vm.fail_allocation(None);
    let before = nr_ended();
    for nr in [8, 100, 101, u64::MAX] {
        assert_eq!(vm.hugetlb_reserve(PoolId::Of2M, nr), Err(NoHugePages));
    }
    assert_eq!(nr_ended(), before);
    assert_eq!(vm.hugetlb_counts_of(PoolId::Of2M).nr, 0);
    vm.check_in_test(&[], &mut vec![0; NR_FRAMES as usize]).unwrap();
}
