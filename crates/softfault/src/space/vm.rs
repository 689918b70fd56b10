//! [`Vm`]: the subsystem, with spaces and everything below them.
//!
//! Each component embeds the one below: `Base` (the machine, its CPUs), `Memory` (frames), `Links`
//! (objects, families), [`Vm`]. A module works on one of them, so it cannot call what is above.

use super::reclaim::reclaiming::Reclaiming;
use super::reclaim::writers::{Search, Writers, Written};
use super::vma::ObjectId;
use crate::addr::{ObjectPages, Pfn};
use crate::compact::words::CompactWords;
use crate::frame::{HugeFrame, Memory, Pressure};
use crate::links::Links;
use crate::machine::{FileId, Machine};
use crate::policy::compact::CompactBudget;
use crate::policy::huge::Effort;
use crate::sync::Word;
use core::ops::Deref;

/// Why memory is reclaimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shortage {
    /// Few frames are free.
    Low,
    /// An allocation is about to be refused.
    Refused,
}

/// Functions of higher layers that react to a shortage of frames.
pub(crate) struct Reclaim<M: Machine> {
    /// Drops clean folios of files; if there are none, searches so many blocks for huge pages with zero frames, until so
    /// many frames were freed. Returns the number freed.
    pub(crate) shrink: fn(&Vm<M>, u64, u64, Shortage) -> u64,
    /// Writes dirty frames of files in some blocks and drops them. Called without the lock.
    pub(crate) write_dirty: for<'a> fn(&'a Vm<M>, &Search) -> Written<'a>,
    /// Makes a huge frame by compaction; the caller owns it alone.
    pub(crate) compact: fn(&Vm<M>, Effort, &CompactBudget) -> Option<HugeFrame>,
    /// Makes one more free block. Returns whether it did.
    pub(crate) empty_one_more: fn(&Vm<M>, &CompactBudget) -> bool,
    /// Moves the page of a frame to a block of pages with long-term pins. Returns whether it moved.
    pub(crate) set_apart: fn(&Vm<M>, Pfn) -> bool,
    /// Frees 1 GiB by moving pages. Returns whether it did.
    pub(crate) empty_gib: fn(&Vm<M>) -> bool,
    /// Drops pages of a file that nobody needs, by advice.
    pub(crate) page_out: fn(&Vm<M>, ObjectId, FileId, ObjectPages),
    /// Takes the private page of a pool that begins there from all others, for its owner, whose entry the caller owns. `false` if
    /// subscribers would have to be told. Called with the writer lock, or `resize` of an object.
    pub(crate) take_page: fn(&Vm<M>, Pfn) -> bool,
    /// Takes a frame whose memory failed out of use, if that can be done without telling subscribers of a private page.
    /// Subscribers of spaces that map a page of an object are told.
    pub(crate) poison: fn(&Vm<M>, Pfn),
}

/// The subsystem. No global state: there may be any number of them.
pub struct Vm<M: Machine> {
    links: Links<M>,
    /// The current limit of VMAs in an address space.
    pub(crate) max_map_count: Word,
    pub(crate) next_space_id: Word,
    pub(crate) reclaim: Reclaim<M>,
    /// Held by the CPU that reclaims memory.
    pub(crate) reclaiming: Reclaiming,
    /// Callers that were refused memory and write to files.
    pub(crate) writers: Writers,
    /// Number of reclaims that freed frames.
    pub(crate) nr_reclaimed: Word,
    pub(crate) compact: CompactWords,
    /// The next block to search for huge pages that are mostly zeroes.
    pub(crate) underused_cursor: Word,
    /// Where the search for clean folios of files goes on.
    pub(crate) clean_cursor: Word,
}

impl<M: Machine> Deref for Vm<M> {
    type Target = Links<M>;
    #[inline(always)]
    fn deref(&self) -> &Links<M> {
        &self.links
    }
}

impl<M: Machine> Vm<M> {
    pub(crate) fn over(links: Links<M>, reclaim: Reclaim<M>, pressure: Pressure) -> Vm<M> {
        let max_map_count = Word::new(links.tunables.max_map_count);
        Vm {
            links,
            max_map_count,
            next_space_id: Word::new(1),
            reclaim,
            reclaiming: Reclaiming::new(pressure),
            writers: Writers::new(),
            nr_reclaimed: Word::new(0),
            compact: CompactWords::new(),
            underused_cursor: Word::new(0),
            clean_cursor: Word::new(0),
        }
    }

    /// Frames that a huge entry maps.
    pub(crate) const NR_SUB_FRAMES: u64 = Memory::<M>::NR_SUB_FRAMES;

    /// Mappings of a private page above which no more are made: fork copies the page.
    pub const MAX_MAPPINGS: u64 = Memory::<M>::MAX_MAPPINGS;

    pub(crate) fn into_links(self) -> Links<M> {
        self.links
    }
}
