//! Classes of blocks: what the frames in use of a block have in common.
//!
//! A block's state has a mark for each class but the movable one: set when frames for that class
//! are taken, cleared when the block is wholly free. The strongest mark is the class. So an
//! unmovable frame that had to come from a block of a weaker class raises the class, and compaction
//! skips the block without reading descriptors. A block offers its free frames to its own class
//! only, each class by a kind of its own. That costs no memory and no time: the rows of the
//! summaries have room for it, and a change of state changes only one kind. With one kind for all,
//! each search would have to skip any number of blocks of other classes.
//!
//! Locks on entry: none.

use super::summary::Kind;
use super::want::Fill;
use crate::cpu::CpuData;
use crate::sync::Word;

// The marks, bits of a block's state (`offers.rs`).
pub(super) const FIXED: u64 = 1 << 32;
pub(super) const PINNED: u64 = 1 << 34;
pub(super) const SHARED: u64 = 1 << 35;
pub(super) const CLASS_MARKS: u64 = FIXED | PINNED | SHARED;

/// The class of a block, or of a request; weaker ones first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Class {
    /// Private pages: compaction moves them.
    Movable,
    /// Pages of shared objects.
    Shared,
    /// Pages with long-term pins.
    Pinned,
    /// Tables and metadata.
    Fixed,
}

impl Class {
    /// The classes with a mark, in the order in which they lend each other frames, so that no
    /// movable block is used while theirs have room.
    const LENDERS: [Class; 3] = [Class::Fixed, Class::Pinned, Class::Shared];

    /// By the strongest mark of a state.
    #[inline(always)]
    pub(super) fn of_state(state: u64) -> Class {
        match state {
            _ if state & FIXED != 0 => Class::Fixed,
            _ if state & PINNED != 0 => Class::Pinned,
            _ if state & SHARED != 0 => Class::Shared,
            _ => Class::Movable,
        }
    }

    /// Its mark in a state.
    #[inline(always)]
    pub(super) fn mark(self) -> u64 {
        match self {
            Class::Movable => 0,
            Class::Shared => SHARED,
            Class::Pinned => PINNED,
            Class::Fixed => FIXED,
        }
    }

    /// The kind by which its blocks with free frames are found; none if CPUs refill from them.
    #[inline(always)]
    pub(super) fn kind(self) -> Kind {
        match self {
            Class::Movable => Kind::Spare,
            Class::Shared => Kind::Shared,
            Class::Pinned => Kind::Pinned,
            Class::Fixed => Kind::Fixed,
        }
    }

    /// The kinds of other classes that lend frames before private pages' blocks are used.
    pub(super) fn lenders(self) -> impl Iterator<Item = Kind> {
        Class::LENDERS.into_iter().filter(move |class| *class != self).map(Class::kind)
    }
}

impl Fill {
    pub(crate) const ALL: [Fill; 5] = [Fill::Zeroed, Fill::Raw, Fill::Fixed, Fill::Shared, Fill::Pinned];

    /// The class of blocks that the frame comes from.
    #[inline(always)]
    pub(super) const fn class(self) -> Class {
        match self {
            Fill::Zeroed | Fill::Raw => Class::Movable,
            Fill::Fixed => Class::Fixed,
            Fill::Shared => Class::Shared,
            Fill::Pinned => Class::Pinned,
        }
    }
}

impl CpuData {
    /// The block that gave the last frames of the class. Pinned pages have none: they are allocated
    /// one at a time, after a search.
    pub(super) fn last_block(&self, class: Class) -> Option<&Word> {
        match class {
            Class::Fixed => Some(&self.fixed_block),
            Class::Shared => Some(&self.shared_block),
            Class::Movable | Class::Pinned => None,
        }
    }
}
