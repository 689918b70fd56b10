//! One file per operation; a folder holds the parts of a large one. Each operation has the same
//! steps:
//!
//! 1. check the arguments in Linux's order, so that of two errors the same one is reported;
//! 2. take the writer lock;
//! 3. *prepare*: everything that may fail: the new tree, table frames;
//! 4. *commit*: publish, wait, remove, free; nothing here fails.
//!
//! When frames are refused, the operation keeps nothing and drops the lock. `with_reclaim`
//! (`space/reclaim.rs`) reclaims memory and starts again with step 2.

mod advise;
mod age;
mod brk;
mod cold;
mod collapse;
mod discard;
mod fork;
mod guards;
mod hugetlb;
mod madvise_error;
mod map;
mod map_over;
mod map_room;
mod mincore;
mod mlock;
mod mmap_error;
mod msync;
mod object_part;
mod pagemap;
mod pool_hole;
mod populate;
mod protect;
mod punch;
mod remap;
mod report;
mod subpool;
mod subscribe;
mod tail_descs;
mod touched;
mod unmap;
mod will_need;
mod write_back;

pub use age::Aged;
pub use fork::ForkError;
pub use hugetlb::HugetlbError;
pub use madvise_error::MadviseError;
pub use mincore::MincoreError;
pub use mlock::MlockError;
pub use mmap_error::MmapError;
pub use msync::MsyncError;
pub use object_part::ObjectPart;
pub use pagemap::{PagemapEntry, PagemapPage};
pub use protect::MprotectError;
pub use remap::MremapError;
pub use report::{PageState, SmapsEntry, Translation};
pub use subpool::HugetlbSubpool;
pub use tail_descs::TailDescsRefusal;
pub use unmap::MunmapError;

use crate::addr::{PAGE_SIZE, PageRange, Vpn};

/// First address past the user part: what Linux calls `TASK_SIZE`.
pub(crate) const fn task_size<F: crate::table::format::Format>() -> u64 {
    F::USER_PAGES * PAGE_SIZE
}

/// Rounds up to pages; wraps to 0 as Linux's `PAGE_ALIGN` does.
pub(crate) const fn page_align(bytes: u64) -> u64 {
    bytes.wrapping_add(PAGE_SIZE - 1) & !(PAGE_SIZE - 1)
}

pub(crate) const fn is_aligned(addr: u64) -> bool {
    addr.is_multiple_of(PAGE_SIZE)
}

/// The pages of `addr..addr + len`, both aligned and known not to wrap.
pub(crate) fn pages(addr: u64, len: u64) -> PageRange {
    PageRange::new(Vpn::of(addr), Vpn::of(addr + len))
}
