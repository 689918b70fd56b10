//! Module `frame`: which frames are in use, their descriptors, and the allocator.
//!
//! ```text
//! fault ── pop ──▶ frame cache of this CPU   two words, owner only
//!                     │ empty
//!                  refill (outside the section): claim one bitmap word of the
//!                     │ CPU's reserved block = up to 64 adjacent frames, zero
//!                     │ them in runs, hand them to the frame cache
//!                  blocks: per 2 MiB a bitmap of used frames, one of dirty ones, a count
//! ```
//! There is no lock and no list: a frame is free when its bit in the block's bitmap is clear, and
//! the CPU that sets the bit owns it. Reservations keep CPUs apart. Home blocks (an equal share of
//! the blocks, which the CPU searches first) keep a CPU at frames that it freed itself. Both are
//! hints: soundness does not need them, and both are ignored before an allocation fails. The idea
//! of reserved trees over bitfields is LLFree's (Wrenger et al., USENIX ATC 2023); frame caches and
//! dirty bitmaps are ours.
//!
//! The allocator reclaims nothing: `space/reclaim.rs` reacts to a refusal, with nothing held.
//!
//! Every module gets its frames here; this one knows only `mem`, `section` and the descriptors.
//! Locks on entry: none.

mod age;
#[cfg(test)]
mod age_tests;
mod ahead;
mod alloc;
mod batch;
mod block;
mod block_run;
mod blocks;
mod claimed;
mod class;
#[cfg(test)]
mod class_tests;
mod deferred;
mod desc;
mod desc_frames;
mod folio;
mod folio_alloc;
#[cfg(test)]
mod folio_alloc_tests;
mod folio_blocks;
mod folio_lock;
mod folio_maps;
mod fragment;
pub(crate) mod frame_cache;
mod frame_list;
mod free_page;
#[cfg(test)]
mod freeze_tests;
mod generations;
mod held;
pub(crate) mod home_blocks;
mod huge;
mod idle;
mod inject;
mod last_resort;
pub(crate) mod lay_out;
pub(crate) mod mem_sections;
mod object_folio;
mod offers;
mod out_of_frames;
mod pool;
mod pool_counts;
mod pool_page;
mod pool_surplus;
mod pool_target;
mod pool_words;
mod refill;
mod release;
mod reserve;
mod resize;
mod runs;
mod search;
#[cfg(test)]
mod search_tests;
#[cfg(test)]
mod shape_tests;
#[cfg(test)]
mod share_tests;
mod stat;
mod stays;
mod subpool;
mod summary;
mod tail_descs;
mod tails;
#[cfg(test)]
mod tests;
mod want;
mod watch;
mod write_back;
#[cfg(test)]
mod zeroed_tests;

pub(crate) use age::UsedBatch;
pub(crate) use alloc::FreeBatch;
pub use block::BlockData;
pub(crate) use blocks::{Blocks, word_base};
pub(crate) use claimed::ClaimedBlock;
pub use class::Class;
pub(crate) use deferred::DeferredSections;
pub use desc::FrameDesc;
#[cfg(any(test, feature = "hooks"))]
pub(crate) use desc::MAP_ONE;
pub(crate) use desc::{FrameKind, FrameState, MapsFull, MetaUse};
pub(crate) use folio_lock::{FolioWait, FolioWaits, Io};
pub use fragment::Fragmentation;
pub use frame_cache::FrameCache;
pub(crate) use frame_list::FrameList;
pub(crate) use generations::Ages;
pub use generations::OLDEST_AGE;
pub(crate) use held::Held;
pub(crate) use huge::HugeFrame;
pub use idle::Advance;
#[cfg(any(test, feature = "hooks"))]
pub(crate) use inject::Injection;
pub(crate) use last_resort::Source;
pub(crate) use mem_sections::{BlockPieces, DescCursor, Descs};
pub use out_of_frames::OutOfFrames;
pub(crate) use pool::PoolId;
pub use pool_counts::HugetlbCounts;
pub(crate) use pool_page::{NoClaim, NoCopy, NoShare};
pub(crate) use pool_target::PoolTarget;
pub(crate) use pool_words::{Claim, Pool};
pub(crate) use reserve::{Pressure, Reserve};
pub(crate) use resize::Emptied;
pub use resize::{AddMemoryRefusal, RemoveMemoryRefusal};
pub(crate) use runs::BLOCK_WORDS;
pub use subpool::SubpoolLimits;
pub(crate) use subpool::{PoolRefusal, SubpoolData, SubpoolId};
pub(crate) use summary::{FEW_BLOCKS, Kind, Summary, SummaryRow};
pub(crate) use tail_descs::nr_frames_of_tails;
pub(crate) use want::{Content, Fill};
pub(crate) use watch::Watch;
pub(crate) use write_back::{Call, EndedPart, TakenOut, WriteBegin};

use crate::addr::{OptPfn, Pfn};
use crate::base::Base;
use crate::machine::{MAX_CPUS, Machine};
use crate::mem::LinearMap;
use crate::sync::{Ordering, Word};
use core::ops::Deref;

/// The frames, above the machine and its CPUs. The functions of this module are methods of it and
/// reach nothing else.
pub struct Memory<M: Machine> {
    base: Base<M>,
    pub(crate) frames: Frames,
    /// The thief lock: held by the CPU that empties the frame caches of others.
    pub(crate) thief: Word,
    /// Frames that were free at creation, plus those added since, less those removed.
    pub(crate) nr_total_pages: Word,
    /// Frames free at creation, those in deferred sections included, less those in the reserve.
    nr_free_at_first: u64,
}

impl<M: Machine> Memory<M> {
    pub(crate) fn new(base: Base<M>, frames: Frames, nr_total_pages: u64) -> Memory<M> {
        let nr_free_at_first = nr_total_pages - frames.reserve.nr_frames();
        Memory { base, frames, thief: Word::new(0), nr_total_pages: Word::new(nr_total_pages), nr_free_at_first }
    }

    pub(crate) fn into_base(self) -> Base<M> {
        self.base
    }
}

impl<M: Machine> Deref for Memory<M> {
    type Target = Base<M>;
    #[inline(always)]
    fn deref(&self) -> &Base<M> {
        &self.base
    }
}

/// All frames of one [`Vm`](crate::Vm).
pub struct Frames {
    pub(crate) descs: Descs,
    pub(crate) blocks: Blocks,
    /// The direct map, for code that has no machine at hand.
    pub(crate) map: LinearMap,
    /// The zero frame, which read faults map. It has no map count.
    pub(crate) zero: Pfn,
    /// First frame of the huge zero frame, an [`OptPfn`]: none until it is first asked for.
    pub(crate) huge_zero: Word,
    /// One bit for each CPU that may have cached or held frames; the others need not be checked
    /// (I28).
    pub(crate) marked_cpus: [Word; MAX_CPUS / 64],
    /// The CPUs that were marked when the owner of the last-resort turn last counted holders.
    pub(crate) counted: [Word; MAX_CPUS / 64],
    /// Where the next partial steal begins.
    pub(crate) next_robbed: Word,
    /// CPUs in a cluster (`policy::share`).
    pub(crate) nr_cluster: u64,
    /// The GiB at which the next search for one begins, by number. A hint.
    pub(crate) next_run: Word,
    /// Times that a block became wholly free.
    pub(crate) nr_emptied: Word,
    /// Tickets of last-resort turns: issued, and over; see `last_resort`.
    pub(crate) turns: Word,
    pub(crate) nr_turns_over: Word,
    /// Claims of several words that were undone because others owned some of the frames. Tells a
    /// holder whether it has owned frames for a moment (I28).
    pub(crate) nr_undone: Word,
    /// 1 during a freeze.
    pub(crate) freeze: Word,
    /// 1 from when a CPU began a block while memory was short until some CPU has reacted.
    pub(crate) is_low: Word,
    /// Pools of huge pages, by [`PoolId`].
    pub(crate) pools: [Pool; 2],
    /// Held by the reservation that takes surplus pages from free memory, for either pool. Spins.
    pub(crate) gathering: Word,
    pub(crate) watch: Watch,
    pub(crate) reserve: Reserve,
    pub(crate) ages: Ages,
    /// Memory sections that have not been needed yet.
    pub(crate) deferred: DeferredSections,
    /// The lock for changes of how holes lead to memory sections.
    pub(crate) leading: Word,
    /// The lock of resizes: taken to add or remove memory.
    pub(crate) resizes: Word,
    /// Taken by those who empty memory that is to go.
    pub(crate) emptying: Word,
    #[cfg(any(test, feature = "hooks"))]
    pub(crate) injection: Injection,
}

impl Frames {
    /// First frame of the huge zero frame, if there is one.
    pub(crate) fn huge_zero(&self) -> OptPfn {
        OptPfn::from_word(self.huge_zero.load(Ordering::Acquire))
    }
    /// Frames that are free in the bitmaps. Exact at rest; excludes frame caches.
    pub(crate) fn nr_free_in_blocks(&self) -> u64 {
        self.blocks.iter().map(BlockData::nr_free_exact).sum()
    }
}
