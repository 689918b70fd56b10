//! Defects that the checker finds.

use crate::addr::{Pfn, SwapSlot};
use crate::machine::CpuId;

/// A defect that the checker found, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Broken {
    /// The VMA tree is not one. I18.
    Tree(crate::space::tree::TreeFault),
    /// A VMA is marked as moving though nobody is at work. I29.
    LeftMoving(u64),
    /// An entry that maps something lies in no VMA. I16.
    OutsideVma(u64),
    /// An entry gives a right that its VMA does not. I16.
    TooManyRights(u64),
    /// An entry allows stores to a page of a file whose folio is clean. I56.
    CleanWritable(u64),
    /// An entry is owned or locked though nobody is at work. I9.
    LeftOwned(u64),
    /// A private page is writable and mapped more than once. I13.
    SharedWritable(u64),
    /// A huge mapping without its deposit, or a deposit without one. I25.
    Deposit(u64),
    /// A private frame is pinned and mapped more than once. I23.
    SharedPinned(Pfn),
    /// A free frame is pinned. I23.
    FreePinned(Pfn),
    /// The descriptor of a free frame says that something uses it. I12.
    FreeInUse(Pfn),
    /// A table lies wholly in a hole. I19.
    UselessTable(u64),
    /// A frame is mapped that is not one to be mapped. I12.
    BadFrame(Pfn),
    /// A frame's count of mappings is not the number of its entries. I14.
    WrongCount(Pfn),
    /// An entry names a frame that its object does not have, or not at this page. I14.
    NotInObject(u64),
    /// A frame is marked as a tail and belongs to no folio of an object, or the other way
    /// round. I45.
    Tail(Pfn),
    /// A folio of an object is locked, waited for or written, or does not have its content, though nobody
    /// is at work. I52.
    LeftLocked(Pfn),
    /// The pages that the machine reads from files are not those that are counted as under way. I52.
    WrongUnderWay,
    /// Members of an object, or of a space, are not those that its VMAs ask for: see the space's
    /// or the object's own frame. I44.
    WrongMembers(Pfn),
    /// A change of entries of the space with this frame counts as in progress or untold though
    /// nobody is at work. I24.
    LeftTelling(Pfn),
    /// A slot of the swap area does not count its entries, or is in use without any, or its
    /// frame is another's. I48.
    WrongSlot(SwapSlot),
    /// A frame is free and in use, or neither. I12.
    Lost(Pfn),
    /// A frame in use is of a generation that has not been, or that a pass has moved away. I47.
    WrongAge(Pfn),
    /// A frame that is said to be zero is not. I20.
    NotZero(Pfn),
    /// The block that begins with this frame has something that summaries deny. I40.
    Untold(Pfn),
    /// The block group of the block that begins with this frame does not count its frames. I41.
    Uncounted(Pfn),
    /// A table or metadata lie in a block that does not say so. I46.
    Unmarked(Pfn),
    /// The words that say where descriptors and blocks lie do not agree, from this frame on. I50.
    Section(Pfn),
    /// A page of a pool of huge pages is free and used, or the marks of its blocks differ. I57.
    Pool(Pfn),
    /// A subpool has more than its most, or somebody is in it. I60.
    Subpool(Pfn),
    /// The mutex of a page of a pool is held.
    HugetlbMutex,
    /// The home blocks of this CPU begin or end in memory that was removed. I50.
    Home(CpuId),
    /// The descriptors of this frame and those after it are in a frame that is another's, or nowhere
    /// though a frame needs one; or the frame is reserved for some that are elsewhere. I51.
    Descs(Pfn),
    /// The place of blocks without memory was written. I50.
    HoleInUse,
    /// A counter differs from what is there. I21.
    Miscounted {
        /// Which counter.
        what: Counter,
        /// Value of the counter.
        counted: u64,
        /// Value that it should have.
        there: u64,
    },
    /// A CPU is in a section though nobody is at work. I8.
    InSection(CpuId),
    /// The checker was called in a way that cannot give an answer.
    BadCall(&'static str),
}

/// The counters that are checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Counter {
    /// Pages of a pool of huge pages.
    HugePages,
    /// Of these, the free ones.
    FreeHugePages,
    /// Of these, the ones to which nobody has a claim.
    Unreserved,
    /// Pages and claims of the objects of a subpool.
    SubpoolUsed,
    /// The handle, the objects, and those once more.
    SubpoolHolders,
    /// Pages in all VMAs.
    MappedPages,
    /// Resident private pages.
    Anon,
    /// Of these, the ones in huge mappings.
    AnonHuge,
    /// Resident shared pages.
    Shmem,
    /// Private pages that were swapped out.
    Swap,
    /// Free slots of the swap area. I48.
    SwapFree,
    /// Page tables.
    Tables,
    /// Pins that were raised and not released.
    Pins,
    /// Members of a fork family. I30.
    Members,
    /// Frames set aside for the reaction to pressure.
    Reserve,
    /// Frames that are free in blocks. I43.
    Free,
}

impl Counter {
    pub(super) fn check(self, counted: u64, there: u64) -> Result<(), Broken> {
        if counted == there { Ok(()) } else { Err(Broken::Miscounted { what: self, counted, there }) }
    }
}

impl core::fmt::Display for Broken {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{self:x?}")
    }
}
impl core::error::Error for Broken {}
