//! What a kernel's daemons do between the steps of programs. No step's outcome may
//! come of it, while frames are zeroed, freed as zero and moved.

use crate::random::Random;
use softfault::Vm;
use softfault::policy::compact::CompactBudget;
use softfault::table::format::Format;
use softfault_host::Hosted;

/// No clock decides what is done.
const BUDGET: CompactBudget = CompactBudget::BACKGROUND.with_time_ns(u64::MAX);

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Daemon {
    /// An idle CPU zeroes free blocks.
    Ahead,
    /// Huge pages that are mostly zero are split, and their zero pages freed.
    Shrink,
    /// A block is emptied.
    Compact,
}

impl Daemon {
    pub(crate) fn any(random: &mut Random) -> Daemon {
        random.pick(&[Daemon::Ahead, Daemon::Shrink, Daemon::Shrink, Daemon::Compact])
    }

    /// One turn, by the CPU of this thread, outside sections.
    pub(crate) fn run<F: Format>(self, vm: &Vm<Hosted<F>>) {
        match self {
            Daemon::Ahead => _ = vm.zero_ahead(2),
            Daemon::Shrink => _ = vm.shrink_underused(u64::MAX),
            Daemon::Compact => _ = vm.compact_step(&BUDGET),
        }
    }
}
