//! Errors of writes to an object.
//!
//! Locks on entry: none.

use crate::errno::op_error;
use crate::frame::OutOfFrames;

op_error! {
    /// Why nothing was written to an object.
    ObjectWriteError {
        OutOfFrames(OutOfFrames): ENOSPC = "out of frames",
        Poisoned: EIO = "offset: the memory of a page failed",
        NotRead: EIO = "offset: a page could not be read from the swap area",
    }
}

impl From<OutOfFrames> for ObjectWriteError {
    fn from(lack: OutOfFrames) -> ObjectWriteError {
        ObjectWriteError::OutOfFrames(lack)
    }
}
