//! Counters of each size of page with a knob; Linux's
//! `hugepages-<n>kB/stats`. Per CPU, as the events are.

use crate::addr::Order;
use crate::cpu::CpuData;
use crate::machine::{CpuId, Machine};
use crate::pace::Pace;
use crate::policy::huge::{FIRST_ORDER, NR_SIZES};
use crate::sync::Word;
use crate::vm::Vm;

/// What is counted.
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

impl CpuData {
    /// Counts for a size; `order` has to be one with a knob.
    #[inline(always)]
    pub(crate) fn count_size(&self, event: SizeEvent, order: Order) {
        if let Some(word) = self.size_word(event, order) {
            word.add_owned(1);
        }
    }

    fn size_word(&self, event: SizeEvent, order: Order) -> Option<&Word> {
        self.sizes[event as usize].get(usize::from(order.0.checked_sub(FIRST_ORDER)?))
    }
}

impl<M: Machine> Vm<M> {
    /// Counts for a size on the calling CPU; for operations, which are outside
    /// sections.
    pub(crate) fn count_size(&self, event: SizeEvent, order: Order) {
        self.cpu(self.machine.this_cpu()).count_size(event, order);
    }

    /// The counters of one size; `None` where `order` is no size with a knob.
    pub fn huge_stat(&self, order: Order) -> Option<SizeStat> {
        self.call_anywhere();
        let mut pace = Pace::new(&self.machine);
        let mut sum = |event| {
            let cpus = (0..self.machine.nr_cpus()).map(|id| self.cpu(CpuId(id as u16)));
            cpus.inspect(|_| pace.step())
                .map(|cpu| cpu.size_word(event, order).map(Word::get))
                .try_fold(0u64, |sum, n| Some(sum.wrapping_add(n?)))
        };
        Some(SizeStat {
            anon_fault_alloc: sum(SizeEvent::AnonFaultAlloc)?,
            anon_fault_fallback: sum(SizeEvent::AnonFaultFallback)?,
            split: sum(SizeEvent::Split)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
