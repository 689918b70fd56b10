//! munmap(2), and the unmapping that other operations need.
//!
//! Locks on entry: none for the call, which takes the writer lock.

use super::{is_aligned, page_align, pages, task_size};
use crate::addr::PageRange;
use crate::errno::op_error;
use crate::frame::OutOfFrames;
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::space::lock::Writer;
use crate::space::reclaim::frame_refusal;
use crate::table::take::{Guards, Removal};

op_error! {
    /// Why munmap(2) did nothing.
    MunmapError {
        Unaligned: EINVAL = "addr: should be a multiple of the page size",
        OutOfRange: EINVAL = "addr, length: should lie in the address space, length not 0",
        NotHugePages: EINVAL = "addr, length: should not end within a page of a pool",
        TooManyVmas: ENOMEM = "the hole would make more mappings than vm.max_map_count",
        OutOfFrames(OutOfFrames): ENOMEM = "out of frames",
    }
}

frame_refusal!(MunmapError);

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Unmaps all mappings in `addr..addr + len`. Holes are no error.
    ///
    /// # Errors
    ///
    /// [`MunmapError`]; nothing is changed then.
    ///
    /// Source: munmap(2).
    pub fn munmap(&self, addr: u64, len: u64) -> Result<(), MunmapError> {
        self.vm.call();
        let limit = task_size::<M::Format>();
        if !is_aligned(addr) {
            return Err(MunmapError::Unaligned);
        }
        let aligned = page_align(len);
        if addr > limit || len > limit - addr || aligned == 0 {
            return Err(MunmapError::OutOfRange);
        }
        let range = pages(addr, aligned);
        self.vm.with_reclaim(&mut || self.unmap_range(&self.write_lock(), range))
    }

    /// Unmaps the pages of the range; holes are no error.
    pub(crate) fn unmap_range(&self, writer: &Writer<'_, M>, range: PageRange) -> Result<(), MunmapError> {
        let nr_pages = self.nr_mapped_in(writer, range);
        if nr_pages == 0 {
            return Ok(());
        }
        if self.cuts_page_of_pool(writer, range) {
            return Err(MunmapError::NotHugePages);
        }
        let edit = self.prepare(writer, &mut |nodes| {
            let mut edit = self.edit(writer);
            edit.with(nodes).carve(range)?;
            if self.exceeds_map_count(writer, edit.nr_vmas_then()) {
                return Err(MunmapError::TooManyVmas);
            }
            Ok(edit)
        })?;
        let before = self.tree(writer).snapshot();
        let retired = edit.publish();
        self.data.limits.nr_mapped_pages.add_owned(nr_pages.wrapping_neg());
        let removal = Removal { range, free_inside: self.hole_around(writer, range), guards: Guards::Remove };
        self.finish_removal(writer, &before, retired, &removal);
        Ok(())
    }
}
