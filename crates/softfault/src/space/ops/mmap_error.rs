//! Why mmap(2) is refused.
//!
//! Locks on entry: none.

use crate::errno::op_error;
use crate::frame::OutOfFrames;
use crate::space::limits::Excess;
use crate::space::reclaim::frame_refusal;

op_error! {
    /// Why mmap(2) did nothing.
    MmapError {
        ZeroLength: EINVAL = "length: should not be 0",
        Unaligned: EINVAL = "addr: should be a multiple of the page size with MAP_FIXED",
        BadFlags: EINVAL = "flags: should have exactly one of MAP_SHARED and MAP_PRIVATE, and nothing that contradicts it",
        NotAnonymous: EBADF = "flags: should have MAP_ANONYMOUS; there are no files here",
        OtherVm: EINVAL = "object: should belong to the same Vm as the address space",
        OffsetUnaligned: EINVAL = "offset_bytes: should be a multiple of the page size",
        OffsetOverflow: EOVERFLOW = "offset_bytes, length: should end within the largest size of an object",
        NoWriteRight: EACCES = "prot: PROT_WRITE: the object is given for reading, or its frames are foreign",
        TooLong: ENOMEM = "length: should fit into the address space",
        NoHole: ENOMEM = "length: no hole is large enough",
        OverLimit: ENOMEM = "length: the limit on the address space (RLIMIT_AS) is reached",
        OverData: ENOMEM = "length: the limit on private writable memory (RLIMIT_DATA) is reached",
        TooMuchLocked: EAGAIN = "length: more would be locked than RLIMIT_MEMLOCK allows",
        LockNotAllowed: EPERM = "flags: MAP_LOCKED: RLIMIT_MEMLOCK is 0",
        TooManyVmas: ENOMEM = "the limit on mappings (vm.max_map_count) is reached",
        OutOfFrames(OutOfFrames): ENOMEM = "out of frames",
        NoHugePages: ENOMEM = "flags: MAP_HUGETLB: the pool has too few huge pages",
        SubpoolFull: ENOMEM = "object: its subpool may have no more huge pages",
        NoPool: EINVAL = "flags: MAP_HUGETLB: there is no pool of that size",
        NoEntriesOfSize: EINVAL = "flags: MAP_HUGETLB: no entry of the page tables maps a page of that size",
        NotHugePages: EINVAL = "length, offset_bytes, addr: should be multiples of the size of a huge page",
        Occupied: EEXIST = "addr: MAP_FIXED_NOREPLACE: something is mapped there",
    }
}

impl From<Excess> for MmapError {
    fn from(excess: Excess) -> MmapError {
        match excess {
            Excess::AddressSpace => MmapError::OverLimit,
            Excess::Data => MmapError::OverData,
        }
    }
}

frame_refusal!(MmapError);
