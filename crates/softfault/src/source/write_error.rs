//! Errors of writes to an object.
//!
//! Locks on entry: none.

use super::transit::NotRead;
use crate::errno::op_error;
use crate::frame::OutOfFrames;
use crate::machine::StoreRefused;

op_error! {
    /// Why nothing was written to an object.
    ObjectWriteError {
        OutOfFrames(OutOfFrames): ENOSPC = "out of frames",
        NoRoom: ENOSPC = "offset: the file has no room for a page",
        NoHugePages: ENOSPC = "offset: the pool of huge pages is empty",
        SubpoolFull: ENOSPC = "offset: the subpool has its largest number of huge pages",
        Poisoned: EIO = "offset: the memory of a page failed",
        NotRead: EIO = "offset: a page could not be read from the file or the swap area",
        Foreign: EROFS = "object: its frames are foreign",
        Missing: EIO = "offset: a page is missing, and the embedder installs it",
    }
}

op_error! {
    /// Why an object of a file was not made.
    NewFileError {
        OutOfFrames(OutOfFrames): ENOMEM = "out of frames",
        FolioTooLarge: EINVAL = "orders: a folio of a file or an explicit object is smaller than 2 MiB",
    }
}

op_error! {
    /// Why an object of foreign frames was not made.
    NewForeignError {
        OutOfFrames(OutOfFrames): ENOMEM = "out of frames",
        NotForeign: EINVAL = "range: should not be empty, and of memory that was added as foreign",
    }
}

impl From<OutOfFrames> for NewForeignError {
    fn from(lack: OutOfFrames) -> NewForeignError {
        NewForeignError::OutOfFrames(lack)
    }
}

op_error! {
    /// Why the embedder could not install a page.
    InstallError {
        OutOfFrames(OutOfFrames): ENOMEM = "out of frames",
        NotExplicit: EINVAL = "object: its missing pages are zero, or are read",
        Unaligned: EINVAL = "page: should begin a folio of the object's least size, and the range should not be empty",
        BeyondObject: ENXIO = "page: past the end of the object",
        AlreadyThere: EEXIST = "page: it is there, or is being installed or taken out",
        Poisoned: EHWPOISON = "page: its memory failed; discard it first",
    }
}

op_error! {
    /// Why the embedder could not take a page out.
    EvictError {
        NotExplicit: EINVAL = "object: its missing pages are zero, or are read",
        Missing: ENOENT = "page: it is missing",
        Busy: EAGAIN = "page: it is being installed, taken out or moved, or is in the swap area",
        Poisoned: EHWPOISON = "page: its memory failed",
        Locked: EPERM = "page: a mapping locks it",
        Pinned: EBUSY = "page: it is pinned",
        Dirty: EBUSY = "page: it was stored to since it was installed",
    }
}

/// Where a call that installs or takes out pages ended, and why. The pages before are done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StoppedAt<E> {
    /// The first page that is as it was.
    pub page: u64,
    /// Why.
    pub error: E,
}

impl<E: core::fmt::Display> core::fmt::Display for StoppedAt<E> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "page {}: {}", self.page, self.error)
    }
}
impl<E: core::error::Error> core::error::Error for StoppedAt<E> {}

impl From<OutOfFrames> for InstallError {
    fn from(lack: OutOfFrames) -> InstallError {
        InstallError::OutOfFrames(lack)
    }
}

op_error! {
    /// Why an object's file does not have all bytes of the object.
    WriteBackError {
        NotWritten: EIO = "file: pages could not be written since the last call and are dirty still, or their memory failed while they were",
    }
}

impl From<OutOfFrames> for NewFileError {
    fn from(lack: OutOfFrames) -> NewFileError {
        NewFileError::OutOfFrames(lack)
    }
}

impl From<NotRead> for ObjectWriteError {
    fn from(NotRead: NotRead) -> ObjectWriteError {
        ObjectWriteError::NotRead
    }
}

impl From<OutOfFrames> for ObjectWriteError {
    fn from(lack: OutOfFrames) -> ObjectWriteError {
        ObjectWriteError::OutOfFrames(lack)
    }
}

impl From<StoreRefused> for ObjectWriteError {
    fn from(StoreRefused: StoreRefused) -> ObjectWriteError {
        ObjectWriteError::NoRoom
    }
}
