//! mremap(2): growing, shrinking, and what a move is to be.
//!
//! Neighbours: `moving` moves. Locks on entry: none.

mod carry;
mod moving;

use super::{is_aligned, page_align, pages, task_size};
use crate::addr::{PAGE_SIZE, PageRange, Vpn};
use crate::errno::op_error;
use crate::linux::MremapFlags;
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::space::limits::Excess;
use crate::space::tree::OutOfNodes;
use crate::space::vma::{Vma, VmaFlags};
use moving::MoveRefused;

op_error! {
    /// Why mremap(2) did nothing.
    MremapError {
        BadFlags: EINVAL = "flags: should be made of MREMAP_MAYMOVE, and with it MREMAP_FIXED, MREMAP_DONTUNMAP",
        Unaligned: EINVAL = "old_address, new_address: should be multiples of the page size",
        ZeroLength: EINVAL = "new_size: should not be 0",
        BadTarget: EINVAL = "new_address, new_size: should lie in the address space and not meet the old range",
        DuplicatePrivate: EINVAL = "old_size: 0 duplicates a shared mapping only",
        BadDontUnmap: EINVAL = "flags: MREMAP_DONTUNMAP asks for equal sizes",
        NotMapped: EFAULT = "old_address, old_size: should lie in one mapping",
        WouldWrap: EINVAL = "new_size: the mapping would wrap in its object",
        CannotGrow: ENOMEM = "new_size: no room after the mapping, and MREMAP_MAYMOVE is not given",
        NoHole: ENOMEM = "new_size: no hole of that size is left",
        OverLimit: ENOMEM = "new_size: the limit on the address space (RLIMIT_AS) is reached",
        OverData: ENOMEM = "new_size: the limit on private writable memory (RLIMIT_DATA) is reached",
        TooMuchLocked: EAGAIN = "new_size: more would be locked than RLIMIT_MEMLOCK allows",
        TooManyVmas: ENOMEM = "the limit on mappings (vm.max_map_count) is reached",
        OutOfFrames: ENOMEM = "out of frames",
    }
}

impl From<Excess> for MremapError {
    fn from(excess: Excess) -> MremapError {
        match excess {
            Excess::AddressSpace => MremapError::OverLimit,
            Excess::Data => MremapError::OverData,
        }
    }
}

impl From<OutOfNodes> for MremapError {
    fn from(_: OutOfNodes) -> MremapError {
        MremapError::OutOfFrames
    }
}

impl From<MoveRefused> for MremapError {
    fn from(refused: MoveRefused) -> MremapError {
        match refused {
            MoveRefused::TooManyVmas => MremapError::TooManyVmas,
            MoveRefused::OutOfFrames => MremapError::OutOfFrames,
        }
    }
}

/// Flags with which the new address counts; they go with `MAYMOVE` alone.
const TO_PLACE: MremapFlags = MremapFlags::FIXED.union(MremapFlags::DONTUNMAP);
/// VMAs that come of cutting both places out of larger ones.
const NR_SPLIT: u64 = 2;

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Grows, shrinks or moves a mapping. Gives its address, in bytes.
    ///
    /// # Errors
    ///
    /// [`MremapError`]; nothing is changed then, save that with `MREMAP_FIXED`
    /// the target may have been unmapped, and of several mappings the first ones
    /// moved, as on Linux.
    ///
    /// Source: mremap(2).
    pub fn mremap(
        &self,
        old: u64,
        old_len: u64,
        new_len: u64,
        flags: MremapFlags,
        new: u64,
    ) -> Result<u64, MremapError> {
        self.vm.call();
        if !(flags - TO_PLACE - MremapFlags::MAYMOVE).is_empty()
            || flags.intersects(TO_PLACE) && !flags.contains(MremapFlags::MAYMOVE)
        {
            return Err(MremapError::BadFlags);
        }
        if !is_aligned(old) {
            return Err(MremapError::Unaligned);
        }
        let (old_len, new_len) = (page_align(old_len), page_align(new_len));
        if flags.contains(MremapFlags::DONTUNMAP) && old_len != new_len {
            return Err(MremapError::BadDontUnmap);
        }
        if new_len == 0 {
            return Err(MremapError::ZeroLength);
        }
        let limit = task_size::<M::Format>();
        if flags.intersects(TO_PLACE) {
            check_target(old, old_len, new, new_len, limit)?;
        } else if new_len > limit {
            return Err(MremapError::BadTarget);
        }
        let writer = self.write_lock();
        if flags.intersects(TO_PLACE) && self.is_near_map_count(NR_SPLIT) {
            return Err(MremapError::TooManyVmas);
        }
        let vma = self.tree().lookup(Vpn::of(old)).map(|f| f.vma).ok_or(MremapError::NotMapped)?;
        if flags.contains(MremapFlags::FIXED) && old_len == new_len {
            return self.move_each(old, old_len, flags, new);
        }
        let at = self.remap_locked(vma, old, old_len, new_len, flags, new)?;
        drop(writer);
        if vma.flags.contains(VmaFlags::LOCKED) && new_len > old_len {
            // As Linux: what is locked is there; where that fails, it stands.
            self.populate_quietly(pages(at + old_len, new_len - old_len));
        }
        Ok(at)
    }

    /// A move to a fixed place may be of several mappings: one after the other,
    /// up to the first that is refused. Holes stay holes, and leave the target as
    /// it is.
    fn move_each(&self, old: u64, len: u64, flags: MremapFlags, new: u64) -> Result<u64, MremapError> {
        let end = Vpn::of(old.saturating_add(len).min(task_size::<M::Format>()));
        let mut rest = PageRange::new(Vpn::of(old), end);
        while let Some(vma) = self.tree().next(rest.start).map(|f| f.vma).filter(|vma| vma.range.overlaps(&rest)) {
            let part = vma.range.intersect(&rest);
            let (start, part_len) = (part.start.addr(), part.nr_pages() * PAGE_SIZE);
            self.remap_locked(vma, start, part_len, part_len, flags, new + (start - old))?;
            rest.start = part.end;
        }
        Ok(new)
    }

    fn remap_locked(
        &self,
        vma: Vma,
        old: u64,
        old_len: u64,
        new_len: u64,
        flags: MremapFlags,
        new: u64,
    ) -> Result<u64, MremapError> {
        if old_len == 0 && !vma.flags.contains(VmaFlags::SHARED) {
            return Err(MremapError::DuplicatePrivate);
        }
        let moves = flags.intersects(TO_PLACE);
        if !moves && old_len >= new_len {
            if old_len > new_len {
                // Never past the user part: what lies there is the embedder's.
                self.unmap_range(checked_pages(old + new_len, old_len - new_len, task_size::<M::Format>())?)
                    .map_err(|_| MremapError::OutOfFrames)?;
            }
            return Ok(old);
        }
        // With a fixed place, what is cut off may be of other mappings.
        let kept_len = if flags.contains(MremapFlags::FIXED) { old_len.min(new_len) } else { old_len };
        if kept_len > vma.range.end.addr() - old {
            return Err(MremapError::NotMapped);
        }
        if new_len > old_len {
            if vma.index_of(Vpn::of(old)).checked_add(new_len / PAGE_SIZE).is_none() {
                return Err(MremapError::WouldWrap);
            }
            let nr_more = (new_len - old_len) / PAGE_SIZE;
            if !self.may_lock(vma.flags, nr_more) {
                return Err(MremapError::TooMuchLocked);
            }
            self.check_room(&vma, nr_more)?;
        }
        if !moves && old_len > 0 && self.grow_in_place(&vma, old, old_len, new_len)? {
            return Ok(old);
        }
        if !flags.contains(MremapFlags::MAYMOVE) {
            return Err(MremapError::CannotGrow);
        }
        if self.is_near_map_count(0) {
            return Err(MremapError::TooManyVmas);
        }
        let to = self.target(flags, new, new_len)?;
        // With an old size of 0 the target may have been the source itself.
        let vma = self.tree().lookup(Vpn::of(old)).map(|f| f.vma).ok_or(MremapError::NotMapped)?;
        if flags.contains(MremapFlags::DONTUNMAP) {
            // What was in the target no longer counts.
            self.check_room(&vma, new_len / PAGE_SIZE)?;
        }
        let keep_old = flags.contains(MremapFlags::DONTUNMAP) || old_len == 0;
        let old_pages = pages(old, old_len.min(new_len));
        if old_len > new_len {
            let tail = checked_pages(old + new_len, old_len - new_len, task_size::<M::Format>())?;
            self.unmap_range(tail).map_err(|_| MremapError::OutOfFrames)?;
        }
        self.move_mapping(&vma, old_pages, pages(to.addr(), new_len), keep_old)?;
        Ok(to.addr())
    }

    fn check_room(&self, vma: &Vma, nr_more: u64) -> Result<(), MremapError> {
        self.excess(vma.flags, nr_more, 0).map_or(Ok(()), |excess| Err(excess.into()))
    }

    /// Whether a move after `nr_more` splits could exceed the limit on VMAs half-way. As
    /// Linux, which refuses three VMAs early.
    fn is_near_map_count(&self, nr_more: u64) -> bool {
        const DISTANCE: u64 = 3;
        self.tree().nr_vmas() + nr_more >= self.vm.max_map_count().saturating_sub(DISTANCE)
    }

    fn target(&self, flags: MremapFlags, new: u64, new_len: u64) -> Result<Vpn, MremapError> {
        if flags.contains(MremapFlags::FIXED) {
            // As Linux: what is there goes first, and stays gone.
            self.unmap_range(pages(new, new_len)).map_err(|_| MremapError::OutOfFrames)?;
            return Ok(Vpn::of(new));
        }
        let hint = if flags.contains(MremapFlags::DONTUNMAP) { new } else { 0 };
        let tree = self.tree().snapshot();
        self.find_hole(&tree, hint, new_len / PAGE_SIZE).ok_or(MremapError::NoHole)
    }

    /// Whether there was room behind the mapping.
    fn grow_in_place(&self, vma: &Vma, old: u64, old_len: u64, new_len: u64) -> Result<bool, MremapError> {
        let end = old + old_len;
        let more = new_len - old_len;
        if vma.range.end.addr() != end || end.checked_add(more).is_none_or(|e| e > task_size::<M::Format>()) {
            return Ok(false);
        }
        let range = pages(end, more);
        if self.nr_mapped_in(range) != 0 {
            return Ok(false);
        }
        let edit = self.prepare(&mut |nodes| {
            let mut edit = self.edit();
            let more = Vma { range, pgoff: vma.pgoff.wrapping_add(vma.range.nr_pages()), ..*vma };
            edit.with(nodes).place(more).map(|()| edit)
        })?;
        let retired = edit.publish();
        self.vm.object_get(vma, range.nr_pages());
        self.data.limits.nr_mapped_pages.add_owned(range.nr_pages());
        self.reclaim(retired);
        Ok(true)
    }
}

/// With `MREMAP_DONTUNMAP` alone the new address is only a hint, but Linux asks
/// as much of it.
fn check_target(old: u64, old_len: u64, new: u64, new_len: u64, limit: u64) -> Result<(), MremapError> {
    if !is_aligned(new) {
        return Err(MremapError::Unaligned);
    }
    if new_len > limit || new > limit - new_len {
        return Err(MremapError::BadTarget);
    }
    // Sums wrap, as in Linux: a range past the end of everything meets nothing,
    // and is refused for not being mapped.
    let apart = old.wrapping_add(old_len) <= new || new.wrapping_add(new_len) <= old;
    if apart { Ok(()) } else { Err(MremapError::BadTarget) }
}

fn checked_pages(addr: u64, len: u64, limit: u64) -> Result<PageRange, MremapError> {
    let end = addr.checked_add(len).filter(|end| *end <= limit).ok_or(MremapError::BadTarget)?;
    Ok(PageRange::new(Vpn::of(addr), Vpn::of(end)))
}
