//! Why madvise(2) did not do all.

use crate::errno::op_error;
use crate::frame::OutOfFrames;
use crate::space::reclaim::frame_refusal;

op_error! {
    /// Why madvise(2) did not do all.
    MadviseError {
        Unaligned: EINVAL = "addr: should be a multiple of the page size",
        NotHugePages: EINVAL = "addr, length: should not end within a page of a pool",
        Wraps: EINVAL = "length: should not wrap around",
        WrongMapping: EINVAL = "advice: does not apply to a mapping of this kind",
        NotShared: EACCES = "advice: MADV_REMOVE: the mapping should be shared and may be made writable",
        NotMapped: ENOMEM = "addr, length: a page of the range is not mapped; the others were treated",
        NoRights: EINVAL = "advice: the mapping does not allow the access",
        NoHugePage: EINVAL = "advice: MADV_COLLAPSE: no huge page is allowed there, or there are no pages to make it of",
        InUse: EAGAIN = "advice: MADV_COLLAPSE: a page is pinned or temporarily in use",
        Unreachable: EFAULT = "addr, length: a page of the range cannot be accessed",
        Poisoned: EHWPOISON = "addr, length: the memory of a page of the range failed",
        Missing: EFAULT = "addr, length: a page of the range is missing, and the embedder installs it",
        NoHoles: EOPNOTSUPP = "advice: MADV_REMOVE: the object does not allow holes by advice",
        Sealed: EPERM = "advice: MADV_REMOVE: the file is sealed",
        NotWritten: EIO = "advice: MADV_REMOVE: the file's storage could not be changed",
        TooManyVmas: EAGAIN = "there would be more mappings than vm.max_map_count",
        OutOfFrames(OutOfFrames): ENOMEM = "out of frames",
    }
}

frame_refusal!(MadviseError);
