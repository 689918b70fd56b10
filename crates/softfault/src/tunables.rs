//! All limits and thresholds, named as Linux names them, with their units.

pub(crate) mod huge;

use crate::policy::around::{FaultAround, Neighbours};
use crate::policy::clear::ClearOrder;
use crate::policy::compact::CompactBudget;
use crate::policy::zero::Zeroing;
use crate::setters::setters;
use huge::HugeKnobs;

/// How a fault excludes other faults; see `fault/empty.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum FaultLocking {
    /// Before 2004: one spinlock per address space around walk, recheck,
    /// install and accounting; never around allocation or zeroing.
    Global,
    /// The patch of 2004: a lock bit in the entry.
    Fastpath2004,
    /// Today's Linux: a lock per leaf table, a reference count on the VMA.
    Split,
    /// Ours: a section and one compare-and-swap.
    Lockfree,
}

impl FaultLocking {
    /// All of them, oldest first.
    pub const ALL: [FaultLocking; 4] =
        [FaultLocking::Global, FaultLocking::Fastpath2004, FaultLocking::Split, FaultLocking::Lockfree];
    /// The word in output and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            FaultLocking::Global => "global",
            FaultLocking::Fastpath2004 => "fastpath2004",
            FaultLocking::Split => "split",
            FaultLocking::Lockfree => "lockfree",
        }
    }
}

/// How a fault on a page of a pool of huge pages excludes others; see `base/hugetlb_locks.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum HugetlbLocking {
    /// Before 2013: one mutex around the whole fault.
    One,
    /// The patch of 2013: a table of mutexes, by object and huge page.
    Table,
    /// Ours: the word of the page in its object.
    Lockfree,
}

impl HugetlbLocking {
    /// All of them, oldest first.
    pub const ALL: [HugetlbLocking; 3] = [HugetlbLocking::One, HugetlbLocking::Table, HugetlbLocking::Lockfree];
    /// The word in output and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            HugetlbLocking::One => "one",
            HugetlbLocking::Table => "table",
            HugetlbLocking::Lockfree => "lockfree",
        }
    }
}

/// Limits and thresholds of one [`Vm`](crate::Vm). Made from the default:
///
/// ```
/// use softfault::{HugeKnobs, Tunables, policy::huge::Enabled};
/// let tunables = Tunables::default()
///     .with_max_map_count(1000)
///     .with_thp(HugeKnobs::default().with_enabled(Enabled::Madvise));
/// assert_eq!(tunables.max_map_count, 1000);
/// ```
///
/// There will be more fields, so a literal is refused outside this crate:
///
/// ```compile_fail,E0639
/// let tunables = softfault::Tunables { max_map_count: 1000, ..Default::default() };
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Tunables {
    /// How faults exclude each other.
    pub fault_locking: FaultLocking,
    /// `fastpath2004` only: resident counts per CPU (the author's second idea)
    /// in place of the one shared counter.
    pub rss_percpu: bool,
    /// Most VMAs in an address space at the beginning (`vm.max_map_count`); later
    /// [`Vm::set_max_map_count`](crate::Vm::set_max_map_count).
    pub max_map_count: u64,
    /// Lowest address that may be mapped, bytes (`vm.mmap_min_addr`).
    pub mmap_min_addr: u64,
    /// Most bytes of a mapping that grows down (`RLIMIT_STACK`) in a new address space;
    /// later [`AddressSpace::set_limit_stack`](crate::AddressSpace::set_limit_stack).
    pub stack_limit_bytes: u64,
    /// Frames that a CPU zeroes at one refill, 1 to 64. 64 halve the time per
    /// frame against single ones (rep stosb has a start-up cost) and are a
    /// quarter of a 1 MiB second-level cache; more would evict what is in use.
    pub zero_batch: u64,
    /// The knobs of huge pages at the beginning; later
    /// [`Base::set_huge_knobs`](crate::Base::set_huge_knobs).
    pub thp: HugeKnobs,
    /// Disables huge pages for the life of the [`Vm`](crate::Vm), also by advice (boot parameter
    /// `transparent_hugepage=0`): `thp` may not enable any then.
    pub thp_off: bool,
    /// The order in which large pages are cleared and copied; `None` leaves it to
    /// what [`calibrate`](crate::clear::calibrate) measured, page size by page size.
    pub clear_order: Option<ClearOrder>,
    /// The way in which all frames are zeroed, of pages of all sizes; plain stores where
    /// the CPU has it not. `None` leaves it to what [`calibrate`](crate::clear::calibrate)
    /// measured.
    pub zeroing: Option<Zeroing>,
    /// Budget of a fault for compaction to get a huge page (`defrag`).
    pub compact_fault: CompactBudget,
    /// The same for a collapse, and for a daemon's step.
    pub compact_background: CompactBudget,
    /// Memory that is kept free, KiB (`vm.min_free_kbytes`): the watermark `min`. `None` is
    /// Linux's formula, 4 times the root of memory in KiB, and nothing below 1 MiB. At most
    /// half of memory.
    pub min_free_kbytes: Option<u64>,
    /// How far the watermark `low` is above `min`, and `high` above `low`, in ten-thousandths
    /// of memory (`vm.watermark_scale_factor`), at most 3,000; at least a quarter of `min`.
    /// Below `low` huge pages that are mostly zeroes are split (`shrink_underused`), until as
    /// much as `high` is free.
    pub watermark_scale_factor: u64,
    /// Whether as many frames as the watermark `min` are set aside for the reaction to pressure.
    /// Otherwise every frame can be allocated. The core's reaction to pressure needs no
    /// frames; reclaim will.
    pub keep_min: bool,
    /// Blocks of 2 MiB that are searched for such pages at the end of a fault, after a CPU has
    /// begun a block while memory is short.
    pub shrink_blocks: u64,
    /// The same before a fault or an operation is refused frames. The search continues where the
    /// last one ended. So a caller that tries again after refusals finally covers all of memory,
    /// and no fault walks over a terabyte. Where there are files, so many are searched for their folios at a time, until all
    /// were; blocks that have only private pages cost a few loads. 1,024 is a guess: 2 GiB.
    pub shrink_blocks_direct: u64,
    /// Blocks of 2 MiB that an idle CPU keeps pre-zeroed; see
    /// [`Memory::zero_ahead`](crate::Memory::zero_ahead).
    pub zero_ahead_blocks: u64,
    /// Retired tree nodes (1 KiB each) at which an operation waits for a grace period
    /// and frees them; fewer are left to the next grace period. 64 is a guess: about
    /// twenty operations. Models set 2.
    pub deferred_nodes_max: u64,
    /// How many pages of a shared object a read fault maps at the beginning (`fault_around_bytes`); later
    /// [`Base::set_fault_around`](crate::Base::set_fault_around). 64 KiB, as in Linux.
    pub fault_around: FaultAround,
    /// Whether it maps the neighbours of its page as used. Old, as Linux has it where hardware sets the bit cheaply.
    pub neighbours: Neighbours,
    /// Bytes of a file that are read at a time at most, where it is read in sequence; 0 reads what is missing alone.
    /// The window that is read may be longer where it ends at a multiple of this. 1 MiB: the largest folio of a file; Linux's
    /// `read_ahead_kb` is 128.
    pub readahead_bytes: u64,
    /// How faults on pages of pools of huge pages exclude each other.
    pub hugetlb_locking: HugetlbLocking,
    /// Mutexes of [`HugetlbLocking::Table`], rounded up to a power of two, at most 4,096. `None` is twice the CPUs, as in 2013,
    /// and one on one CPU. Linux has eight for each CPU today.
    pub hugetlb_mutexes: Option<u64>,
}

setters!(Tunables {
    with_fault_locking: fault_locking = FaultLocking,
    with_rss_percpu: rss_percpu = bool,
    with_max_map_count: max_map_count = u64,
    with_mmap_min_addr: mmap_min_addr = u64,
    with_stack_limit_bytes: stack_limit_bytes = u64,
    with_zero_batch: zero_batch = u64,
    with_thp: thp = HugeKnobs,
    with_thp_off: thp_off = bool,
    with_clear_order: clear_order = Option<ClearOrder>,
    with_zeroing: zeroing = Option<Zeroing>,
    with_compact_fault: compact_fault = CompactBudget,
    with_compact_background: compact_background = CompactBudget,
    with_min_free_kbytes: min_free_kbytes = Option<u64>,
    with_watermark_scale_factor: watermark_scale_factor = u64,
    with_keep_min: keep_min = bool,
    with_shrink_blocks: shrink_blocks = u64,
    with_shrink_blocks_direct: shrink_blocks_direct = u64,
    with_zero_ahead_blocks: zero_ahead_blocks = u64,
    with_deferred_nodes_max: deferred_nodes_max = u64,
    with_fault_around: fault_around = FaultAround,
    with_neighbours: neighbours = Neighbours,
    with_readahead_bytes: readahead_bytes = u64,
    with_hugetlb_locking: hugetlb_locking = HugetlbLocking,
    with_hugetlb_mutexes: hugetlb_mutexes = Option<u64>,
});

impl Default for Tunables {
    fn default() -> Tunables {
        Tunables {
            fault_locking: FaultLocking::Lockfree,
            rss_percpu: false,
            max_map_count: 65_530,
            mmap_min_addr: 65_536,
            stack_limit_bytes: 8 << 20,
            zero_batch: 64,
            thp: HugeKnobs::DEFAULT,
            thp_off: false,
            clear_order: None,
            zeroing: None,
            compact_fault: CompactBudget::FAULT,
            min_free_kbytes: None,
            watermark_scale_factor: 10,
            keep_min: false,
            shrink_blocks: 8,
            shrink_blocks_direct: 1024,
            zero_ahead_blocks: 16,
            deferred_nodes_max: 64,
            fault_around: FaultAround::DEFAULT,
            neighbours: Neighbours::Old,
            readahead_bytes: 1 << 20,
            hugetlb_locking: HugetlbLocking::Lockfree,
            hugetlb_mutexes: None,
            compact_background: CompactBudget::BACKGROUND,
        }
    }
}
