//! The work of a kernel's daemons between the steps of programs: they zero, free, move and
//! swap out frames. No step's outcome may depend on it.

use crate::random::Random;
use softfault::policy::compact::CompactBudget;
use softfault::table::format::Format;
use softfault::{Pfn, Vm};
use softfault_host::Hosted;

/// No clock decides what is done.
const BUDGET: CompactBudget = CompactBudget::BACKGROUND;

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Daemon {
    /// An idle CPU zeroes free blocks.
    Ahead,
    /// Huge pages that are mostly zero are split, and their zero pages freed; clean folios of files are dropped.
    Shrink,
    /// A block is emptied.
    Compact,
    /// Some pages move, whatever they are: those of pools, free or in use, among them.
    Move {
        /// The first of their frames, modulo the number of frames. They lie a block apart.
        first: u64,
    },
    /// Some pages leave memory for the swap area, if the machine has one.
    Swap {
        /// Where the search for them begins, modulo the number of frames.
        first: u64,
    },
}

/// Frames of a block.
const BLOCK_FRAMES: u64 = 512;
/// Frames that a pager looks at for pages, and pages that it swaps out.
const NR_LOOKS: u64 = 1 << 15;
const NR_PAGES: usize = 24;

impl Daemon {
    pub(crate) fn any(random: &mut Random) -> Daemon {
        let swap = Daemon::Swap { first: random.below(1 << 32) };
        let moves = Daemon::Move { first: random.below(1 << 32) };
        random.pick(&[Daemon::Ahead, Daemon::Shrink, Daemon::Shrink, Daemon::Compact, swap, swap, moves])
    }

    /// One turn, by the CPU of this thread, outside sections.
    pub(crate) fn run<F: Format>(self, vm: &Vm<Hosted<F>>) {
        match self {
            Daemon::Ahead => _ = vm.zero_ahead(2),
            Daemon::Shrink => _ = vm.shrink_underused(u64::MAX) + vm.drop_clean(u64::MAX),
            Daemon::Compact => _ = vm.compact_step(&BUDGET),
            Daemon::Move { first } => {
                let frames = (0..vm.nr_frames()).step_by(BLOCK_FRAMES as usize);
                frames.for_each(|n| _ = vm.migrate_frame(Pfn(((first + n) % vm.nr_frames()) as u32)));
            }
            Daemon::Swap { first } => {
                let frames = (first..first + NR_LOOKS).map(|n| Pfn((n % vm.nr_frames()) as u32));
                let _ = frames.filter(|pfn| vm.swap_out_frame(*pfn).is_ok()).take(NR_PAGES).count();
            }
        }
    }
}
