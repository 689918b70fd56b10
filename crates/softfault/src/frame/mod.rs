//! Module `frame`: who has which frame, and where the next one comes from.
//!
//! ```text
//! fault ── pop ──▶ frame cache of this CPU   two words, owner only
//!                     │ empty
//!                  refill (outside the section): claim one bitmap word of the
//!                     │ CPU's reserved block = up to 64 adjacent frames, zero
//!                     │ them in runs, hand them to the frame cache
//!                  blocks: per 2 MiB a bitmap of used frames, one of dirty ones, a count
//! ```
//! There is no lock and no list: a frame is free when its bit in the block's
//! bitmap is clear, and whoever sets the bit has it. Reservations only steer
//! CPUs apart, and home blocks (an equal share of the blocks for each CPU, looked at
//! first) keep a CPU at the frames that it gave back itself; neither is needed
//! for soundness, and both are ignored before an allocation fails. The idea of
//! reserved trees over bitfields is LLFree's (Wrenger et al., USENIX ATC 2023);
//! frame caches and dirty bitmaps are ours.
//!
//! A refusal reclaims nothing: `space/reclaim.rs` reacts to it, with nothing held.
//!
//! Neighbours: every module gets frames here; this one knows only `mem`,
//! `section` and the descriptors. Locks on entry: none.

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
#[cfg(test)]
mod freeze_tests;
mod generations;
mod held;
mod huge;
mod idle;
mod inject;
mod last_resort;
mod lay_out;
pub(crate) mod mem_sections;
mod object_folio;
mod offers;
mod out_of_frames;
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
mod summary;
mod tail_descs;
mod tails;
#[cfg(test)]
mod tests;
mod want;
mod watch;
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
pub(crate) use reserve::{Pressure, Reserve};
pub use resize::{AddMemoryRefusal, RemoveMemoryRefusal};
pub(crate) use runs::BLOCK_WORDS;
pub(crate) use summary::{FEW_BLOCKS, Kind, Summary, SummaryRow};
pub(crate) use tail_descs::{DescSpares, FormerDescs, NR_OF_TAILS};
pub(crate) use want::{Content, Fill};
pub(crate) use watch::Watch;

use crate::addr::{OptPfn, Pfn};
use crate::base::Base;
use crate::machine::{MAX_CPUS, Machine};
use crate::mem::LinearMap;
use crate::sync::{Ordering, Word};
use core::ops::Deref;

/// The frames, and the machine and CPUs below them: what the module works on, and all
/// that it can reach.
pub struct Memory<M: Machine> {
    base: Base<M>,
    pub(crate) frames: Frames,
    /// Held by the CPU that empties the frame caches of others.
    pub(crate) thief: Word,
    /// Frames that were free at the beginning, and those that came since, less those that went.
    pub(crate) nr_total_pages: Word,
    /// Those of the beginning, less those that were set aside then, or left for later.
    nr_free_at_first: u64,
}

impl<M: Machine> Memory<M> {
    pub(crate) fn new(base: Base<M>, frames: Frames, nr_total_pages: u64) -> Memory<M> {
        let nr_free_at_first = nr_total_pages - frames.reserve.nr_frames() - frames.deferred.nr_pages();
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
    /// Where the frames lie that have descriptors which lie elsewhere.
    pub(crate) map: LinearMap,
    /// The one frame that read faults map; carries no count.
    pub(crate) zero: Pfn,
    /// First frame of the huge zero frame, an [`OptPfn`]: none until it is first asked for.
    pub(crate) huge_zero: Word,
    /// CPUs that have frames in frame caches, or from which frames are held, a bit each; others
    /// need not be asked (I28).
    pub(crate) marked_cpus: [Word; MAX_CPUS / 64],
    /// The CPUs that were marked when the owner of the last-resort turn last counted holders.
    pub(crate) counted: [Word; MAX_CPUS / 64],
    /// The CPU at which the next thief begins who robs some.
    pub(crate) next_robbed: Word,
    /// CPUs that take their small frames from the same blocks (`policy::share`).
    pub(crate) nr_cluster: u64,
    /// The GiB at which the next search for one begins, by number. A hint.
    pub(crate) next_run: Word,
    /// How often a block has become wholly free.
    pub(crate) nr_emptied: Word,
    /// Last-resort turns that were asked for, and those that are over; see `last_resort`.
    pub(crate) turns: Word,
    pub(crate) nr_turns_over: Word,
    /// Claims of several words that were undone since others had some of them. Shows a holder
    /// whether it has claimed frames for a moment (I28).
    pub(crate) nr_undone: Word,
    /// 1 while the owner of the turn wants the others to stand back.
    pub(crate) freeze: Word,
    /// 1 after a CPU began a block while memory was short, until somebody has reacted.
    pub(crate) is_low: Word,
    pub(crate) watch: Watch,
    pub(crate) reserve: Reserve,
    pub(crate) ages: Ages,
    /// Sections of the beginning that have not been needed.
    pub(crate) deferred: DeferredSections,
    /// The lock of those who change how holes lead to sections.
    pub(crate) leading: Word,
    /// The lock of those who add or remove memory.
    pub(crate) resizes: Word,
    #[cfg(any(test, feature = "hooks"))]
    pub(crate) injection: Injection,
}

impl Frames {
    /// First frame of the huge zero frame, if there is one.
    pub(crate) fn huge_zero(&self) -> OptPfn {
        OptPfn::from_word(self.huge_zero.load(Ordering::Acquire))
    }
    /// Frames that bitmaps say are free: exact at rest, less those in frame caches.
    pub(crate) fn nr_free_in_blocks(&self) -> u64 {
        self.blocks.iter().map(BlockData::nr_free_exact).sum()
    }
}
