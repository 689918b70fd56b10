//! Errors of writes to an object.
//!
//! Locks on entry: none.

use super::transit::NotRead;
use crate::errno::op_error;
use crate::frame::OutOfFrames;

op_error! {
    /// Why nothing was written to an object.
    ObjectWriteError {
        OutOfFrames(OutOfFrames): ENOSPC = "out of frames",
        Poisoned: EIO = "offset: the memory of a page failed",
        NotRead: EIO = "offset: a page could not be read from the file or the swap area",
    }
}

op_error! {
    /// Why an object of a file was not made.
    NewFileError {
        OutOfFrames(OutOfFrames): ENOMEM = "out of frames",
        FolioTooLarge: EINVAL = "orders: a folio of a file is smaller than 2 MiB",
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
