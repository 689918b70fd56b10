//! Counters of each size of page with a knob; Linux's
//! `hugepages-<n>kB/stats`. Per CPU, as the events are.

use crate::policy::huge::NR_SIZES;
use crate::sync::Word;

/// The kinds of counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SizeEvent {
    /// A fault installed a page of the size.
    AnonFaultAlloc = 0,
    /// A fault could have used the size and found no such page.
    AnonFaultFallback = 1,
    /// A folio of the size was split.
    Split = 2,
}

/// Kinds of [`SizeEvent`].
const NR_SIZE_EVENTS: usize = 3;
/// A line per kind, so that a fault writes one.
pub(crate) type SizeCounts = [[Word; NR_SIZES]; NR_SIZE_EVENTS];

/// The counters of one size, named as Linux's files.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct SizeStat {
    /// Pages of the size that faults installed.
    pub anon_fault_alloc: u64,
    /// Faults that could have used the size and found no such page.
    pub anon_fault_fallback: u64,
    /// Folios of the size that were split.
    pub split: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Order;
    use crate::tunables::Tunables;

    #[test]
    fn each_size_and_kind_has_a_counter_of_its_own() {
        let vm = crate::testing::vm(1024, Tunables::default());
        for order in 2..=9 {
            (0..order).for_each(|_| vm.count_size(SizeEvent::AnonFaultAlloc, Order(order)));
            (0..2 * order).for_each(|_| vm.count_size(SizeEvent::AnonFaultFallback, Order(order)));
            vm.count_size(SizeEvent::Split, Order(order));
        }
        for order in 2..=9 {
            let expected =
                SizeStat { anon_fault_alloc: u64::from(order), anon_fault_fallback: 2 * u64::from(order), split: 1 };
            assert_eq!(vm.huge_stat(Order(order)), Some(expected));
        }
        for order in [0, 1, 10, 18, 255] {
            vm.count_size(SizeEvent::Split, Order(order));
            assert_eq!(vm.huge_stat(Order(order)), None);
        }
    }
}
