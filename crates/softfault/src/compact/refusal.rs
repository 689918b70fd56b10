//! Why a page was not moved, and why no block was freed: one variant, one counter, one word each.

use crate::account::Event;
use crate::addr::{Order, Pfn};
use crate::frame::{OutOfFrames, RemoveMemoryRefusal};
use crate::mem::SourceFailed;
use crate::space::reclaim::FrameRefusal;

/// Why a page cannot be moved, or its frame taken out of use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MigrateRefusal {
    /// It has pins.
    Pinned,
    /// It is being written to its file.
    UnderWrite,
    /// It is a page table.
    Table,
    /// It has data of the core: spaces, tree nodes, objects.
    Meta,
    /// It is a hole, the zero frame, somebody else's, or was taken out of use.
    Reserved,
    /// It is part of a larger page: a huge one, or, for compaction, a folio of an object that fills a block.
    HugePage,
    /// It is part of a folio of an object that cannot be split: pages of the object are not smaller, or it reaches beyond the
    /// end, as it was pinned when the object became smaller.
    CannotSplit,
    /// It is part of a page of a pool of huge pages.
    Hugetlb,
    /// It is free, cached or held.
    NotInUse,
    /// More entries map it than are handled at once, or more spaces with subscribers. Or its object has more mappings than
    /// the budget allows.
    TooManyMaps,
    /// The steps of the budget were spent before all spaces that may map it were visited.
    WalkTooLong,
    /// A space that maps it has subscribers, and the budget does not allow to tell them.
    Subscribed,
    /// A mapping was added or removed, or another operation owned an entry. Or the page has left its
    /// object, is leaving it, or is being moved.
    Raced,
    /// There is no frame to move it to, or none that a split of its folio needs.
    NoTarget,
    /// Its memory failed while it was copied. It is where it was: [`poison_frame`](crate::Vm::poison_frame) takes it out of use.
    SourceFailed,
}

impl From<SourceFailed> for MigrateRefusal {
    fn from(_: SourceFailed) -> MigrateRefusal {
        MigrateRefusal::SourceFailed
    }
}

impl MigrateRefusal {
    /// Turns `Subscribed` into `Raced`, for a page whose subscribers were told: a space got a subscriber
    /// meanwhile, or the page was mapped at another address.
    pub(super) fn once_told(self) -> MigrateRefusal {
        if self == MigrateRefusal::Subscribed { MigrateRefusal::Raced } else { self }
    }

    /// Whether the page may be able to move soon.
    pub(super) fn may_pass(self) -> bool {
        use MigrateRefusal::*;
        matches!(self, Pinned | UnderWrite | HugePage | NotInUse | WalkTooLong | Raced)
    }

    /// The counter of this refusal.
    pub fn event(self) -> Event {
        match self {
            MigrateRefusal::Pinned => Event::MigrateRefusedPinned,
            MigrateRefusal::UnderWrite => Event::MigrateRefusedUnderWrite,
            MigrateRefusal::Table => Event::MigrateRefusedTable,
            MigrateRefusal::Meta => Event::MigrateRefusedMeta,
            MigrateRefusal::Reserved => Event::MigrateRefusedReserved,
            MigrateRefusal::HugePage => Event::MigrateRefusedHuge,
            MigrateRefusal::CannotSplit => Event::MigrateRefusedCannotSplit,
            MigrateRefusal::Hugetlb => Event::MigrateRefusedHugetlb,
            MigrateRefusal::NotInUse => Event::MigrateRefusedNotInUse,
            MigrateRefusal::TooManyMaps => Event::MigrateRefusedTooManyMaps,
            MigrateRefusal::WalkTooLong => Event::MigrateRefusedWalkTooLong,
            MigrateRefusal::Subscribed => Event::MigrateRefusedSubscribed,
            MigrateRefusal::Raced => Event::MigrateRefusedRaced,
            MigrateRefusal::NoTarget => Event::MigrateRefusedNoTarget,
            MigrateRefusal::SourceFailed => Event::MigrateRefusedSourceFailed,
        }
    }
}

impl FrameRefusal for MigrateRefusal {
    fn of(_: OutOfFrames) -> MigrateRefusal {
        MigrateRefusal::NoTarget
    }

    fn refused_frames(&self) -> Option<OutOfFrames> {
        // Adjacent frames may be missing: any freed one may be of use, or none.
        (*self == MigrateRefusal::NoTarget).then_some(OutOfFrames::Block(Order::BASE))
    }
}

impl core::fmt::Display for MigrateRefusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            MigrateRefusal::Pinned => "frame: should not be pinned",
            MigrateRefusal::UnderWrite => "frame: is being written to its file",
            MigrateRefusal::Table => "frame: should be a program's page, and is a page table",
            MigrateRefusal::Meta => "frame: should be a program's page, and is the subsystem's",
            MigrateRefusal::Reserved => "frame: should be a program's page, and is out of use",
            MigrateRefusal::HugePage => "frame: should be a small page, and is part of a larger one",
            MigrateRefusal::CannotSplit => "frame: is part of a folio that cannot be split",
            MigrateRefusal::Hugetlb => "frame: is part of a page of a pool of huge pages",
            MigrateRefusal::NotInUse => "frame: should be in use, and is free or held by another CPU",
            MigrateRefusal::TooManyMaps => "frame: has more mappings than are handled at once",
            MigrateRefusal::WalkTooLong => "frame: the budget was spent while its mappings were looked for",
            MigrateRefusal::Subscribed => "frame: a space that maps it has subscribers, who must not be told now",
            MigrateRefusal::Raced => "frame: its mappings changed meanwhile",
            MigrateRefusal::NoTarget => "frame: no frame to move to could be obtained",
            MigrateRefusal::SourceFailed => "frame: its memory failed while it was copied",
        })
    }
}
impl core::error::Error for MigrateRefusal {}

/// Why memory stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OfflineRefusal {
    /// It is no memory that could go.
    Memory(RemoveMemoryRefusal),
    /// The page of this frame did not move.
    InTheWay(Pfn, MigrateRefusal),
}

impl OfflineRefusal {
    /// The counter of this refusal.
    pub fn event(self) -> Event {
        match self {
            OfflineRefusal::Memory(refusal) => refusal.event(),
            OfflineRefusal::InTheWay(_, refusal) => refusal.event(),
        }
    }
}

impl FrameRefusal for OfflineRefusal {
    fn of(_: OutOfFrames) -> OfflineRefusal {
        OfflineRefusal::Memory(RemoveMemoryRefusal::InUse)
    }

    fn refused_frames(&self) -> Option<OutOfFrames> {
        match self {
            OfflineRefusal::Memory(_) => None,
            OfflineRefusal::InTheWay(_, refusal) => refusal.refused_frames(),
        }
    }
}

impl core::fmt::Display for OfflineRefusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            OfflineRefusal::Memory(refusal) => refusal.fmt(f),
            OfflineRefusal::InTheWay(pfn, refusal) => write!(f, "memory to remove: frame {:#x}: {refusal}", pfn.0),
        }
    }
}
impl core::error::Error for OfflineRefusal {}

/// Why a frame keeps its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotWithdrawn {
    /// It is a page of an object.
    OfObject,
    /// Its entries cannot be taken.
    Stays(MigrateRefusal),
}

impl From<MigrateRefusal> for NotWithdrawn {
    fn from(why: MigrateRefusal) -> NotWithdrawn {
        NotWithdrawn::Stays(why)
    }
}

/// Why a frame whose memory failed stays in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PoisonRefusal {
    /// Its entries cannot be taken.
    Stays(MigrateRefusal),
}

impl PoisonRefusal {
    /// The counter of this refusal.
    pub fn event(self) -> Event {
        match self {
            PoisonRefusal::Stays(refusal) => refusal.event(),
        }
    }
}

impl From<NotWithdrawn> for PoisonRefusal {
    fn from(why: NotWithdrawn) -> PoisonRefusal {
        match why {
            // It was not a page of an object at the first check.
            NotWithdrawn::OfObject => PoisonRefusal::Stays(MigrateRefusal::Raced),
            NotWithdrawn::Stays(refusal) => PoisonRefusal::Stays(refusal),
        }
    }
}

impl core::fmt::Display for PoisonRefusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            PoisonRefusal::Stays(refusal) => refusal.fmt(f),
        }
    }
}
impl core::error::Error for PoisonRefusal {}

/// Why a page was not swapped out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SwapRefusal {
    /// The machine has no swap area.
    NoArea,
    /// No slot of the swap area is free.
    Full,
    /// It is a page of a file: what is clean is read again, and what is not is written there.
    OfFile,
    /// A mapping locks it (mlock(2)).
    Locked,
    /// Its entries cannot be taken.
    Stays(MigrateRefusal),
    /// The machine could not write it. The entries of a private page refer to the slot, which keeps the
    /// frame until its last entry is gone: faults copy the page. A page of an object is in its frame
    /// again.
    NotWritten,
}

impl SwapRefusal {
    /// The counter of this refusal.
    pub fn event(self) -> Event {
        match self {
            SwapRefusal::NoArea => Event::SwapRefusedNoArea,
            SwapRefusal::Full => Event::SwapRefusedFull,
            SwapRefusal::OfFile => Event::SwapRefusedOfFile,
            SwapRefusal::Locked => Event::SwapRefusedLocked,
            SwapRefusal::Stays(refusal) => refusal.event(),
            SwapRefusal::NotWritten => Event::SwapRefusedNotWritten,
        }
    }
}

impl From<NotWithdrawn> for SwapRefusal {
    fn from(why: NotWithdrawn) -> SwapRefusal {
        match why {
            // It was a private page at the first check.
            NotWithdrawn::OfObject => SwapRefusal::Stays(MigrateRefusal::Raced),
            NotWithdrawn::Stays(refusal) => SwapRefusal::Stays(refusal),
        }
    }
}

impl core::fmt::Display for SwapRefusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            SwapRefusal::NoArea => f.write_str("swap area: the machine has none"),
            SwapRefusal::Full => f.write_str("swap area: no slot is free"),
            SwapRefusal::OfFile => f.write_str("frame: is a page of a file"),
            SwapRefusal::Locked => f.write_str("frame: a mapping locks its page"),
            SwapRefusal::Stays(refusal) => refusal.fmt(f),
            SwapRefusal::NotWritten => f.write_str("swap area: the page could not be written"),
        }
    }
}
impl core::error::Error for SwapRefusal {}

/// Why no block was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CompactRefusal {
    /// The knobs, or the caller's page size, do not allow it.
    NotAsked,
    /// The last attempts failed, and it is too early for the next one.
    Deferred,
    /// No block can be emptied at present.
    NoBlock,
    /// The last block that was tried has a frame that cannot move.
    InTheWay(MigrateRefusal),
    /// The frames or the steps of the budget are spent.
    OverBudget,
    /// A last-resort allocation waits for frames, and no other allocation gets any meanwhile.
    LastResort,
}

impl CompactRefusal {
    /// The counter of this refusal.
    pub fn event(self) -> Event {
        match self {
            CompactRefusal::NotAsked => Event::CompactNotAsked,
            CompactRefusal::Deferred => Event::CompactDeferred,
            CompactRefusal::NoBlock => Event::CompactNoBlock,
            CompactRefusal::InTheWay(_) => Event::CompactInTheWay,
            CompactRefusal::OverBudget => Event::CompactOverBudget,
            CompactRefusal::LastResort => Event::CompactLastResort,
        }
    }
}

impl core::fmt::Display for CompactRefusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            CompactRefusal::NotAsked => f.write_str("compaction: should be asked for (defrag)"),
            CompactRefusal::Deferred => {
                f.write_str("compaction: the last attempts failed, and it is too early for the next")
            }
            CompactRefusal::NoBlock => f.write_str("compaction: no block can be emptied"),
            CompactRefusal::InTheWay(refusal) => write!(f, "compaction: {refusal}"),
            CompactRefusal::OverBudget => f.write_str("compaction: the budget of frames or steps is spent"),
            CompactRefusal::LastResort => f.write_str("compaction: an allocation waits for frames"),
        }
    }
}
impl core::error::Error for CompactRefusal {}
