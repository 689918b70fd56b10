//! brk(2): the heap.
//!
//! Locks on entry: none. Takes the writer lock.

use super::mmap_error::MmapError;
use super::unmap::MunmapError;
use super::{page_align, pages, task_size};
use crate::addr::{PageRange, Rights, Vpn};
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::space::lock::Writer;
use crate::space::placement::occupied;
use crate::space::vma::VmaFlags;

/// No page.
const NONE: PageRange = PageRange::new(Vpn(0), Vpn(0));

impl<M: Machine> AddressSpace<'_, M> {
    /// Sets the start of the heap, in bytes from 0. Called once, when a program is loaded.
    pub fn set_brk(&self, start: u64) {
        let _writer = self.write_lock();
        let limits = &self.data.limits;
        limits.brk_start.set(start);
        limits.brk_end.set(start);
    }

    /// Moves the end of the heap to `addr`, if that is possible, and returns the end of the heap
    /// afterwards. Like the system call, unlike the library function.
    ///
    /// Source: brk(2), "C library/kernel differences".
    pub fn brk(&self, addr: u64) -> u64 {
        self.vm.call();
        let (grown, end) = self.move_break(addr);
        if !grown.is_empty() && !self.future_locks().is_empty() {
            self.populate_quietly(grown);
        }
        end
    }

    /// Returns the pages that the heap gained, and its end.
    fn move_break(&self, addr: u64) -> (PageRange, u64) {
        let moved = self.vm.with_reclaim(&mut || self.try_move_break(addr));
        moved.unwrap_or_else(|_| (NONE, self.data.limits.brk_end.get()))
    }

    /// As [`move_break`](Self::move_break), but may be refused frames.
    fn try_move_break(&self, addr: u64) -> Result<(PageRange, u64), MmapError> {
        let writer = &self.write_lock();
        let limits = &self.data.limits;
        let (start, end) = (limits.brk_start.get(), limits.brk_end.get());
        if addr < start || start == 0 || addr > task_size::<M::Format>() || !self.fits_heap(addr - start) {
            return Ok((NONE, end));
        }
        let (old, new) = (page_align(end), page_align(addr));
        let moved = match new.cmp(&old) {
            core::cmp::Ordering::Equal => true,
            core::cmp::Ordering::Less => self.shrink_heap(writer, pages(new, old - new))?,
            core::cmp::Ordering::Greater => self.grow_heap(writer, pages(old, new - old))?,
        };
        if moved {
            limits.brk_end.set(addr);
        }
        let grown = if moved && new > old { pages(old, new - old) } else { NONE };
        Ok((grown, limits.brk_end.get()))
    }

    /// Unmaps the end of the heap. As on Linux, the end stays if the program has unmapped all of the
    /// range already.
    fn shrink_heap(&self, writer: &Writer<'_, M>, range: PageRange) -> Result<bool, MmapError> {
        if !occupied(&self.tree(writer).snapshot(), range) {
            return Ok(false);
        }
        match self.unmap_range(writer, range) {
            Err(MunmapError::OutOfFrames(refused)) => Err(refused.into()),
            done => Ok(done.is_ok()),
        }
    }

    fn grow_heap(&self, writer: &Writer<'_, M>, range: PageRange) -> Result<bool, MmapError> {
        // As Linux, keeps one page of distance to the next mapping above.
        let with_gap = PageRange::new(range.start, Vpn(range.end.0 + 1));
        if range.end.addr() > task_size::<M::Format>() || occupied(&self.tree(writer).snapshot(), with_gap) {
            return Ok(false);
        }
        let flags = VmaFlags::HEAP.with_rights(Rights::READ | Rights::WRITE);
        if !self.may_lock(writer, flags | self.future_locks(), range.nr_pages())
            || self.tree(writer).nr_in_tree() > self.vm.max_map_count()
        {
            return Ok(false);
        }
        match self.insert_mapping(writer, range, flags, (None, None)) {
            Err(MmapError::OutOfFrames(refused)) => Err(refused.into()),
            done => Ok(done.is_ok()),
        }
    }
}
