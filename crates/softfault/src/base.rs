//! The machine, its CPUs and the settings: the base of all modules. `huge` has the knobs of huge
//! pages, which can change at run time; `hugetlb_locks` has the historic mutexes around faults on pages of pools.

mod huge;
mod huge_words;
mod hugetlb_locks;

pub(crate) use huge_words::{HugeNow, HugeWords};
pub use hugetlb_locks::HugetlbLockStat;
pub(crate) use hugetlb_locks::{HugetlbMutex, nr_mutexes};

use crate::account::Event;
use crate::account::sizes::{SizeEvent, SizeStat};
use crate::addr::Order;
use crate::cpu::CpuData;
use crate::machine::{CpuId, Machine, Tick};
use crate::mem::FrameArray;
use crate::mem::ways::Ways;
use crate::pace::Pace;
use crate::policy::around::FaultAround;
use crate::policy::zero::NR_CLASSES;
use crate::swap::area::SwapArea;
use crate::sync::{Ordering, Word};
use crate::tunables::Tunables;

/// The machine, its per-CPU data and the settings. [`Memory`](crate::frame::Memory) embeds it, and
/// so does every component above.
pub struct Base<M: Machine> {
    pub(crate) machine: M,
    pub(crate) cpus: FrameArray<CpuData>,
    pub(crate) tunables: Tunables,
    pub(crate) huge: HugeWords,
    /// The order of clearing for each size of page; see `clear.rs`.
    pub(crate) clear_orders: Word,
    /// How batches of each class of sizes are zeroed; see `clear/batch.rs`.
    pub(crate) batch_plans: [Word; NR_CLASSES],
    /// The instructions with which the CPU can zero frames; see `clear.rs`.
    pub(crate) ways: Ways,
    /// Slots of pages that were swapped out.
    pub(crate) swap: SwapArea,
    /// [`FaultAround`] as a word.
    pub(crate) fault_around: Word,
    pub(crate) hugetlb_mutexes: FrameArray<HugetlbMutex>,
}

impl<M: Machine> Base<M> {
    pub(crate) fn new(
        machine: M,
        cpus: FrameArray<CpuData>,
        hugetlb_mutexes: FrameArray<HugetlbMutex>,
        swap: SwapArea,
        tunables: Tunables,
        huge: HugeWords,
    ) -> Base<M> {
        let ways = Ways::of(&machine);
        Base {
            machine,
            cpus,
            tunables,
            huge,
            clear_orders: Word::new(0),
            batch_plans: [const { Word::new(0) }; NR_CLASSES],
            ways,
            swap,
            fault_around: Word::new(tunables.fault_around.to_word()),
            hugetlb_mutexes,
        }
    }

    /// The embedder's machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// How many pages of a file or a shared object a read fault maps.
    pub fn fault_around(&self) -> FaultAround {
        FaultAround::from_word(self.fault_around.load(Ordering::Relaxed))
    }

    /// Changes that, for faults from now on.
    pub fn set_fault_around(&self, to: FaultAround) {
        self.call_anywhere();
        self.fault_around.store(to.to_word(), Ordering::Relaxed);
    }

    /// Limits and thresholds.
    pub fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    #[inline(always)]
    pub(crate) fn cpu(&self, id: CpuId) -> &CpuData {
        self.cpus.at(usize::from(id.0))
    }

    /// Counts on the calling CPU; for operations, which are outside sections.
    pub(crate) fn count(&self, event: Event, n: u64) {
        self.cpu(self.machine.this_cpu()).count_by(event, n);
    }

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

    /// As [`call`](Self::call), for a call that a subscriber may make, and for a fault,
    /// whose slow half asserts.
    #[inline(always)]
    pub(crate) fn call_anywhere(&self) {
        self.machine.tick(Tick::Call);
    }
}
