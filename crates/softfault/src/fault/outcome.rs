//! How a fault ends.

use crate::account::Event;
use crate::addr::Order;
use crate::frame::PoolRefusal;

/// Result of a fault. Informational: every variant means that the access can be retried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultDone {
    /// A new private page, all zero.
    Installed,
    /// The same with its neighbours: so many pages, aligned to their number.
    Folio(Order),
    /// A huge page of private memory, all zero.
    Huge,
    /// The zero frame, for reading.
    ZeroFrame,
    /// The huge zero frame, for reading.
    HugeZero,
    /// A page of a shared object.
    Shared,
    /// A private copy of a page that others have too.
    Copied,
    /// Only this space maps the page; it may be written now.
    Reused,
    /// The entry was given rights that the VMA grants and it lacked.
    Widened,
    /// The entry allowed the access and is now accessed, and dirty for a store. Hardware that does
    /// not set these bits itself faults for them.
    Marked,
    /// A page that had been swapped out, or was read from its file: the fault was a major one.
    SwappedIn,
    /// There was nothing left to do.
    Spurious,
}

/// Why the access is impossible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultError {
    /// No VMA there: SIGSEGV, `SEGV_MAPERR`.
    NotMapped,
    /// The VMA does not give the right: SIGSEGV, `SEGV_ACCERR`.
    NoRights,
    /// A guard: SIGSEGV, `SEGV_MAPERR`, as Linux reports it.
    Guard,
    /// Past the end of the object: SIGBUS, `BUS_ADRERR`.
    BeyondObject,
    /// The memory of the page failed, and its content is lost: SIGBUS, `BUS_MCEERR_AR`.
    Poisoned,
    /// The page is in a file or was swapped out, and the machine could not read it: SIGBUS,
    /// `BUS_ADRERR`. The next fault tries again.
    NotRead,
    /// The page of an explicit object is missing: the embedder [installs](crate::SharedObject::install) it, and
    /// makes the access again. Nothing is held. Which page it is, the [VMA](crate::AddressSpace::vma) says: its object, and
    /// the page by [`pgoff_of`](crate::Vma::pgoff_of).
    Missing,
    /// The machine has no room for the page of the file that is stored to: SIGBUS, `BUS_ADRERR`. The next store asks
    /// again.
    NoRoom,
    /// The pool of huge pages has no page for a mapping without a reservation: SIGBUS, `BUS_ADRERR`.
    NoHugePage,
    /// The place has lost its page of a pool, which was shared since fork(2): the process with the reservation has stored to the
    /// page, and the pool had no other. Or the page was pinned at fork(2), and the pool had none for a copy. SIGBUS, `BUS_ADRERR`,
    /// until the program unmaps the page.
    Taken,
    /// The subpool of the object has its most pages, of a mapping without a reservation: SIGBUS, `BUS_ADRERR`.
    SubpoolFull,
    /// No frame; nothing was changed. The embedder decides what happens next.
    OutOfFrames,
}

/// Both fit a register: with three words, each fault without anything to zero took 3 ns longer.
const _: () = assert!(size_of::<Result<FaultDone, FaultError>>() <= 8);

impl FaultError {
    pub(crate) fn event(self) -> Event {
        match self {
            FaultError::NotMapped => Event::RefusedNotMapped,
            FaultError::NoRights => Event::RefusedNoRights,
            FaultError::Guard => Event::RefusedGuard,
            FaultError::BeyondObject => Event::RefusedBeyondObject,
            FaultError::Poisoned => Event::RefusedPoisoned,
            FaultError::NotRead => Event::RefusedNotRead,
            FaultError::Missing => Event::RefusedMissing,
            FaultError::NoRoom => Event::RefusedNoRoom,
            FaultError::NoHugePage => Event::RefusedNoHugePage,
            FaultError::Taken => Event::RefusedTaken,
            FaultError::SubpoolFull => Event::RefusedSubpoolFull,
            FaultError::OutOfFrames => Event::RefusedOutOfFrames,
        }
    }
}

impl core::fmt::Display for FaultError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            FaultError::NotMapped => "address: not mapped",
            FaultError::NoRights => "access: the mapping does not allow it",
            FaultError::Guard => "address: a guard page",
            FaultError::BeyondObject => "address: past the end of the object",
            FaultError::Poisoned => "address: the memory of the page failed",
            FaultError::NotRead => "address: the page could not be read from its file or the swap area",
            FaultError::Missing => "address: the page is missing, and the embedder installs it",
            FaultError::NoRoom => "address: the file has no room for the page",
            FaultError::NoHugePage => "address: the pool of huge pages is empty",
            FaultError::Taken => "address: another process has taken the huge page",
            FaultError::SubpoolFull => "address: the subpool has its largest number of huge pages",
            FaultError::OutOfFrames => "out of frames",
        })
    }
}
impl core::error::Error for FaultError {}

impl From<PoolRefusal> for FaultError {
    fn from(refused: PoolRefusal) -> FaultError {
        match refused {
            PoolRefusal::NoHugePages => FaultError::NoHugePage,
            PoolRefusal::SubpoolFull => FaultError::SubpoolFull,
        }
    }
}
