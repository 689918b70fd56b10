//! msync(2): writes the dirty pages of the files that are mapped in a range.
//!
//! ```text
//! VMA of a file, shared   section: the object is kept
//! outside                 its dirty pages are written, and waited for               write_back.rs
//! ```
//! Locks on entry: none, no section.

use super::{is_aligned, page_align};
use crate::addr::{ObjectPages, PageRange, Vpn};
use crate::errno::op_error;
use crate::linux::MsyncFlags;
use crate::machine::Machine;
use crate::pace::Pace;
use crate::source::keep::KeptObject;
use crate::space::AddressSpace;
use crate::space::vma::{ObjectId, Vma, VmaFlags};

op_error! {
    /// Why msync(2) did not write all.
    MsyncError {
        BadFlags: EINVAL = "flags: should be made of MS_ASYNC or MS_SYNC, and MS_INVALIDATE",
        Unaligned: EINVAL = "addr: should be a multiple of the page size",
        Wraps: ENOMEM = "length: should not wrap around",
        NotMapped: ENOMEM = "addr, length: a page of the range is not mapped; the mapped pages were written",
        Locked: EBUSY = "flags: MS_INVALIDATE: a mapping of the range is locked",
        NotWritten: EIO = "file: pages could not be written and are dirty still, or their memory failed while they were",
    }
}

/// The part of the range in a VMA, and the pages of its file, if it is a shared mapping of one.
struct Part<'vm, M: Machine> {
    vma: Vma,
    pages: Option<(KeptObject<'vm, M>, ObjectPages)>,
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Writes the dirty pages of the files that are mapped shared in `addr..addr + len`, with `MS_SYNC`, and waits until they are
    /// written. `MS_ASYNC` writes nothing, as on Linux.
    ///
    /// # Errors
    ///
    /// [`MsyncError`]. Pages before a locked mapping or a failed write were written.
    ///
    /// Source: msync(2).
    pub fn msync(&self, addr: u64, len: u64, flags: MsyncFlags) -> Result<(), MsyncError> {
        self.vm.call();
        self.vm.assert_outside();
        let both = MsyncFlags::ASYNC | MsyncFlags::SYNC;
        if !(flags - both - MsyncFlags::INVALIDATE).is_empty() || flags.contains(both) {
            return Err(MsyncError::BadFlags);
        }
        if !is_aligned(addr) {
            return Err(MsyncError::Unaligned);
        }
        let end = addr.checked_add(page_align(len)).ok_or(MsyncError::Wraps)?;
        self.sync_range(PageRange::new(Vpn::of(addr), Vpn::of(end)), flags)
    }

    fn sync_range(&self, range: PageRange, flags: MsyncFlags) -> Result<(), MsyncError> {
        let (mut at, mut has_hole) = (range.start, false);
        let mut pace = Pace::new(&self.vm.machine);
        while at < range.end {
            pace.search();
            let Some(Part { vma, pages }) = self.part_to_sync(PageRange::new(at, range.end)) else {
                has_hole = true;
                break;
            };
            has_hole |= vma.range.start > at;
            if flags.contains(MsyncFlags::INVALIDATE) && vma.flags.contains(VmaFlags::LOCKED) {
                return Err(MsyncError::Locked);
            }
            if let Some((object, pages)) = pages.filter(|_| flags.contains(MsyncFlags::SYNC)) {
                self.vm.object_write_back(object.id, pages).map_err(|_| MsyncError::NotWritten)?;
            }
            at = vma.range.end;
        }
        if has_hole { Err(MsyncError::NotMapped) } else { Ok(()) }
    }

    /// Finds the first VMA with a page of the range.
    fn part_to_sync(&self, range: PageRange) -> Option<Part<'vm, M>> {
        let vma = self.vma_from(range.start).filter(|vma| vma.range.overlaps(&range))?;
        if vma.object == ObjectId::NONE || vma.is_private() {
            return Some(Part { vma, pages: None });
        }
        let section = self.section();
        let part = vma.range.intersect(&range);
        let now = self.tree_in(section.inside()).next(part.start).map(|found| found.vma);
        // It may have been replaced since: the former mapping is gone.
        let is_there = now.is_some_and(|now| now.range.contains(part.start) && now.object == vma.object);
        let pages = is_there.then(|| {
            let start = vma.pgoff_of(part.start);
            let pages = ObjectPages { start, end: start + part.nr_pages() };
            (self.vm.object_keep_found(section.inside(), vma.object), pages)
        });
        Some(Part { vma, pages })
    }
}
