//! How many huge pages there are at the end, before compaction and after it.

use super::{Done, Row, Space};
use crate::op::PAGE;
use softfault::policy::compact::CompactBudget;
use softfault::{Access, Advice, FaultDone, MapFlags, Order, Prot, Vm};
use softfault_host::Hosted;

const AT: u64 = 0x40_0000_0000;
const HUGE: u64 = 512 * PAGE;
/// No clock decides what is done.
const BUDGET: CompactBudget = CompactBudget::BACKGROUND;
/// Steps of the daemon without success, for each time that they go through all of memory, before the test gives up.
const VAIN_ROUNDS: u64 = 4;

/// Takes huge pages for as long as compaction makes any.
pub(super) fn count(vm: &Vm<Hosted>, home: &Space<'_>, row: &mut Row) -> Done {
    row.nr_before = vm.fragmentation(Order::PMD).nr_usable / 512;
    let most_in_vain = VAIN_ROUNDS * (1 + u64::from(vm.nr_blocks()) / BUDGET.nr_blocks) + 40;
    let mut nr_in_vain = 0;
    while nr_in_vain < most_in_vain {
        if take(home, AT + row.nr_after * HUGE)? {
            row.nr_after += 1;
            nr_in_vain = 0;
        } else if vm.compact_step(&BUDGET).is_err() {
            nr_in_vain += 1;
        }
    }
    Ok(())
}

/// Whether a touch there gets a huge page.
fn take(home: &Space<'_>, at: u64) -> Done<bool> {
    let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED;
    home.mmap(at, HUGE, Prot::READ | Prot::WRITE, flags).map_err(|e| format!("mmap: {e}"))?;
    home.madvise(at, HUGE, Advice::HugePage).map_err(|e| format!("madvise: {e}"))?;
    let is_huge = home.handle_fault(at, Access::Write) == Ok(FaultDone::Huge);
    if !is_huge {
        home.munmap(at, HUGE).map_err(|e| format!("munmap: {e}"))?;
    }
    Ok(is_huge)
}
