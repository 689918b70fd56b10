//! Per-CPU data.
//!
//! Cache lines are arranged by writer. A fault writes only lines of its own CPU here. `attention`
//! has a line of its own because other CPUs write it.

use crate::account::sizes::{SizeCounts, SizeEvent};
use crate::account::{Event, NR_EVENTS};
use crate::addr::{BlockId, BlockRange, Order};
use crate::frame::frame_cache::FrameCache;
use crate::machine::CpuId;
use crate::policy::huge::FIRST_ORDER;
use crate::sync::Word;

/// `attention`: a thief is taking the frame caches; leave them alone.
pub(crate) const ATTENTION_THIEF: u64 = 1;
/// `attention`: an injected failure is armed; take the slow path, which counts.
#[cfg(any(test, feature = "hooks"))]
pub(crate) const ATTENTION_INJECT: u64 = 2;

/// `attention`: this CPU is in `Machine::notify`. A fault there gets no frame from the fast path,
/// so it owns no entry when the slow path refuses it.
pub(crate) const ATTENTION_TELLING: u64 = 4;

/// The VMA and the leaf table that the CPU's last fault found. Valid while the space's generation
/// equals the one recorded here.
#[repr(C, align(64))]
pub(crate) struct HintData {
    /// Never-reused id of the address space; 0 is no hint.
    pub(crate) space: Word,
    pub(crate) generation: Word,
    pub(crate) start: Word,
    pub(crate) end: Word,
    pub(crate) flags: Word,
    pub(crate) object: Word,
    /// Index of the VMA's private pages.
    pub(crate) index: Word,
    /// A leaf table, and 1 + the number of the range that it maps. Valid with the rest: removing a
    /// table raises the generation.
    pub(crate) table: Word,
    pub(crate) stretch: Word,
    /// In the object.
    pub(crate) pgoff: Word,
    /// The last fault-around in adaptive mode: id of the address space, 0 for none; first page of the VMA; the
    /// window, and its order, which may be larger than what was left of it.
    pub(crate) around_space: Word,
    pub(crate) around_vma: Word,
    pub(crate) around_start: Word,
    pub(crate) around_end: Word,
    pub(crate) around_order: Word,
    /// The table that a fault of this CPU installed last, as `fault::fresh` writes it; 0 once a fault in
    /// adaptive mode was in it. Only advice: the table may be gone.
    pub(crate) fresh_table: Word,
}

/// Where the CPU looks for frames. Written at creation, and when memory comes or goes; read by other CPUs.
#[repr(C, align(64))]
pub(crate) struct Locality {
    /// The CPU's home blocks, a [`BlockRange`] as a word.
    pub(crate) home: Word,
    /// Its neighbourhood: the home blocks of the CPUs with which it shares blocks for unmovable frames.
    pub(crate) neighbourhood: Word,
    /// First CPU of its cluster, whose CPUs refill from the same blocks.
    pub(crate) first_of_cluster: Word,
    pub(crate) spare: [Word; 5],
}

impl Locality {
    /// The neighbourhood.
    pub(crate) fn blocks(&self) -> BlockRange {
        BlockRange::from_word(self.neighbourhood.get())
    }

    pub(crate) fn first_of_cluster(&self) -> CpuId {
        CpuId(self.first_of_cluster.get() as u16)
    }

    /// The owner tag in the state of a block that is reserved for the cluster.
    #[inline(always)]
    pub(crate) fn tag(&self) -> u64 {
        self.first_of_cluster.get() + 1
    }
}

/// Per-CPU data.
#[repr(C, align(64))]
pub(crate) struct CpuData {
    /// Even: outside. Odd: in a section. Grows by one at each step.
    pub(crate) slot: Word,
    /// Id of the address space that this CPU runs; 0 is none.
    pub(crate) active: Word,
    /// Frames that are zero.
    pub(crate) zeroed: FrameCache,
    /// Frames with any content.
    pub(crate) raw: FrameCache,
    /// Frames that are zero, for unmovable use.
    pub(crate) fixed: FrameCache,
    pub(crate) hint: HintData,
    /// Frames that are zero, for pages of objects.
    pub(crate) shared: FrameCache,
    /// Frames with any content, for long-term pins.
    pub(crate) pinned: FrameCache,
    pub(crate) cache_line: [Word; 4],
    /// Written by others: see the constants above.
    pub(crate) attention: Word,
    /// Holders of frames that began on this CPU (`frame/last_resort.rs`); read by
    /// allocations that find none.
    pub(crate) held: Word,
    /// 1 while this CPU runs a space by a guard of `activate`.
    pub(crate) guarded: Word,
    /// `held` when this CPU lost its mark (`frame/held.rs`). The owner of the turn writes it.
    pub(crate) held_before: Word,
    pub(crate) attention_line: [Word; 4],
    /// [`OptBlock`](crate::addr::OptBlock) that refills come from.
    pub(crate) block: Word,
    /// Where the search for the next block goes on; 0 at the beginning.
    pub(crate) search: Word,
    /// Next word of the block to claim.
    pub(crate) word: Word,
    /// The block that gave the last huge frame.
    pub(crate) huge_search: Word,
    /// [`OptBlock`](crate::addr::OptBlock) that gave the last unmovable frame.
    pub(crate) fixed_block: Word,
    /// [`OptBlock`](crate::addr::OptBlock) that orders between 4 KiB and 2 MiB come from.
    pub(crate) batch_block: Word,
    /// [`OptBlock`](crate::addr::OptBlock) that the cluster has reserved, if this is its first CPU.
    pub(crate) cluster_block: Word,
    /// [`OptBlock`](crate::addr::OptBlock) that gave the last pages of objects.
    pub(crate) shared_block: Word,
    pub(crate) locality: Locality,
    pub(crate) events: [Word; NR_EVENTS],
    pub(crate) sizes: SizeCounts,
    /// Blocks that this CPU may still begin before it looks at the watermarks, 0 if it has begun none yet; the
    /// [`OptBlock`](crate::addr::OptBlock) that it began last, and by how much the block groups
    /// that it has left since the last look had grown.
    pub(crate) samples_after: Word,
    pub(crate) watched: Word,
    pub(crate) unseen: Word,
    /// Frames that the next refill for tables takes, 0 at the beginning (`frame/refill.rs`).
    pub(crate) fixed_batch: Word,
    pub(crate) watch_line: [Word; 4],
    /// The lessons of refills; see `clear/batch.rs`.
    pub(crate) batches: BatchData,
}

/// A CPU's records of the batches that it zeroed; one line.
#[repr(C, align(64))]
pub(crate) struct BatchData {
    /// A [`Learned`](crate::policy::density::Learned).
    pub(crate) learned: Word,
    /// When the last refill began, nanoseconds.
    pub(crate) begun: Word,
    /// Twice the number of its frames, plus 1 if they were zeroed for sparse programs; 0 if
    /// unknown.
    pub(crate) last: Word,
    /// Frames that this CPU has claimed from the blocks less those that it gave back, wrapping
    /// around: see `frame/stat.rs`. It is in this line because refills write the line anyway.
    pub(crate) nr_taken: Word,
    /// Pages that this CPU has put into pools less those that it took, wrapping around: `frame/pool.rs`.
    pub(crate) nr_in_pools: [Word; 2],
    pub(crate) spare: [Word; 2],
}

impl CpuData {
    /// This CPU's home blocks.
    pub(crate) fn home_range(&self) -> BlockRange {
        BlockRange::from_word(self.locality.home.get())
    }

    /// Where the search for the next block goes on.
    pub(crate) fn search_from(&self) -> BlockId {
        match self.search.get() {
            0 => self.home_range().start,
            next => BlockId(next as u32),
        }
    }

    pub(crate) fn frame_caches(&self) -> [&FrameCache; 5] {
        [&self.zeroed, &self.raw, &self.fixed, &self.shared, &self.pinned]
    }

    /// Free frames in its frame caches.
    pub(crate) fn nr_in_caches(&self) -> u64 {
        self.frame_caches().map(|cache| u64::from(cache.mask.get().count_ones())).iter().sum()
    }

    /// Whether this CPU is in `Machine::notify`. Called on the CPU itself.
    pub(crate) fn is_telling(&self) -> bool {
        self.attention.get() & ATTENTION_TELLING != 0
    }

    #[inline(always)]
    pub(crate) fn count(&self, event: Event) {
        self.events[event as usize].add_owned(1);
    }
    pub(crate) fn count_by(&self, event: Event, n: u64) {
        self.events[event as usize].add_owned(n);
    }

    /// Counts for a size; `order` has to be one with a knob.
    #[inline(always)]
    pub(crate) fn count_size(&self, event: SizeEvent, order: Order) {
        if let Some(word) = self.size_word(event, order) {
            word.add_owned(1);
        }
    }

    pub(crate) fn size_word(&self, event: SizeEvent, order: Order) -> Option<&Word> {
        self.sizes[event as usize].get(usize::from(order.0.checked_sub(FIRST_ORDER)?))
    }
}

const _: () = assert!(size_of::<CpuData>().is_multiple_of(64));
