//! mremap(2): grows and shrinks mappings, and checks moves.
//!
//! Neighbours: `moving` moves. Locks on entry: none. Takes the writer lock.

mod carry;
mod moving;

use super::unmap::MunmapError;
use super::{is_aligned, page_align, task_size};
use crate::addr::{PAGE_SIZE, PageRange, Vpn};
use crate::errno::op_error;
use crate::frame::OutOfFrames;
use crate::linux::MremapFlags;
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::space::limits::Excess;
use crate::space::lock::Writer;
use crate::space::reclaim::frame_refusal;
use crate::space::vma::{ObjectId, Vma, VmaFlags};
use carry::Source;
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
        HugetlbGrows: EINVAL = "new_size: a mapping of a pool's pages does not grow",
        NotHugePages: EINVAL = "old_address, new_address: should be multiples of the size of a page of the pool",
        HugetlbDontUnmap: EINVAL = "flags: MREMAP_DONTUNMAP: not with pages of a pool",
        WouldWrap: EINVAL = "new_size: the mapping would wrap in its object",
        CannotGrow: ENOMEM = "new_size: no room after the mapping, and MREMAP_MAYMOVE is not given",
        NoHole: ENOMEM = "new_size: no hole is large enough",
        TargetTaken: ENOMEM = "new_address: was mapped again while the call waited for frames",
        OverLimit: ENOMEM = "new_size: the limit on the address space (RLIMIT_AS) is reached",
        OverData: ENOMEM = "new_size: the limit on private writable memory (RLIMIT_DATA) is reached",
        TooMuchLocked: EAGAIN = "new_size: more would be locked than RLIMIT_MEMLOCK allows",
        TooManyVmas: ENOMEM = "the limit on mappings (vm.max_map_count) is reached",
        OutOfFrames(OutOfFrames): ENOMEM = "out of frames",
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

frame_refusal!(MremapError);

impl From<MoveRefused> for MremapError {
    fn from(refused: MoveRefused) -> MremapError {
        match refused {
            MoveRefused::TooManyVmas => MremapError::TooManyVmas,
            MoveRefused::OutOfFrames(refused) => refused.into(),
        }
    }
}

impl From<MunmapError> for MremapError {
    fn from(refused: MunmapError) -> MremapError {
        match refused {
            MunmapError::TooManyVmas => MremapError::TooManyVmas,
            MunmapError::OutOfFrames(refused) => refused.into(),
            MunmapError::Unaligned => MremapError::Unaligned,
            MunmapError::NotHugePages => MremapError::NotHugePages,
            MunmapError::OutOfRange => MremapError::BadTarget,
        }
    }
}

/// Flags that use the new address; they need `MAYMOVE`.
const TO_PLACE: MremapFlags = MremapFlags::FIXED.union(MremapFlags::DONTUNMAP);
/// A call, or a part of one, with checked arguments.
struct Remap {
    /// May extend past the mapping, and past the user part.
    old: PageRange,
    nr_new: u64,
    flags: MremapFlags,
    /// Used with flags of `TO_PLACE`.
    new: Vpn,
}

/// VMAs that are added when both ranges are cut out of larger VMAs.
const NR_SPLIT: u64 = 2;

/// The progress of a call that starts over. Other threads may have mapped memory meanwhile, which the
/// call must not unmap.
struct Progress {
    /// The old pages that have not moved yet.
    rest: PageRange,
    /// The target that was unmapped last.
    cleared: Option<PageRange>,
    /// The pages behind the new length are unmapped.
    has_cut: bool,
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Grows, shrinks or moves a mapping. Returns its address, in bytes.
    ///
    /// # Errors
    ///
    /// [`MremapError`]; nothing is changed then, except as on Linux: with `MREMAP_FIXED`
    /// the target may have been unmapped, and the first of several mappings may have moved.
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
        let start = Vpn::of(old);
        let old = PageRange::new(start, Vpn(start.0 + old_len / PAGE_SIZE));
        let call = Remap { old, nr_new: new_len / PAGE_SIZE, flags, new: Vpn::of(new) };
        let mut progress = Progress { rest: old.intersect(&Self::user_range()), cleared: None, has_cut: false };
        let attempt = &mut || self.remap_once(&call, &mut progress);
        let (locked, at) = self.vm.with_reclaim(attempt)?;
        if locked && call.nr_new > old.nr_pages() {
            // As Linux: the new pages of a locked mapping are brought in; errors are ignored.
            self.populate_quietly(PageRange::new(Vpn(at.0 + old.nr_pages()), Vpn(at.0 + call.nr_new)));
        }
        Ok(at.addr())
    }

    /// One attempt. Returns whether the mapping has grown and is locked, and its first page.
    fn remap_once(&self, call: &Remap, progress: &mut Progress) -> Result<(bool, Vpn), MremapError> {
        let writer = &self.write_lock();
        let flags = call.flags;
        if flags.intersects(TO_PLACE) && self.is_near_map_count(writer, NR_SPLIT) {
            return Err(MremapError::TooManyVmas);
        }
        let vma = self.tree(writer).lookup(call.old.start).map(|f| f.vma).ok_or(MremapError::NotMapped);
        if flags.contains(MremapFlags::FIXED) && call.old.nr_pages() == call.nr_new {
            if progress.rest.start == call.old.start {
                _ = vma?;
            }
            self.move_each(writer, call, progress)?;
            return Ok((false, call.new));
        }
        let vma = vma?;
        let at = self.remap_locked(writer, vma, call, progress)?;
        Ok((vma.flags.contains(VmaFlags::LOCKED), at))
    }

    /// Moves several mappings to a fixed place, one after the other, up to the first that is
    /// refused. For a hole in the source, the target is left as it is.
    fn move_each(&self, writer: &Writer<'_, M>, call: &Remap, progress: &mut Progress) -> Result<(), MremapError> {
        loop {
            let rest = progress.rest;
            let next = self.tree(writer).next(rest.start).map(|f| f.vma).filter(|vma| vma.range.overlaps(&rest));
            let Some(vma) = next else { return Ok(()) };
            let part = vma.range.intersect(&rest);
            let new = Vpn(call.new.0 + (part.start.0 - call.old.start.0));
            self.remap_locked(writer, vma, &Remap { old: part, nr_new: part.nr_pages(), new, ..*call }, progress)?;
            progress.rest.start = part.end;
        }
    }

    /// Grows, shrinks or moves one mapping. Returns its first page.
    fn remap_locked(
        &self,
        writer: &Writer<'_, M>,
        vma: Vma,
        call: &Remap,
        progress: &mut Progress,
    ) -> Result<Vpn, MremapError> {
        let call = &self.in_whole_pages(&vma, call)?;
        let &Remap { old, nr_new, flags, .. } = call;
        let nr_old = old.nr_pages();
        if nr_old == 0 && !vma.flags.contains(VmaFlags::SHARED) {
            return Err(MremapError::DuplicatePrivate);
        }
        let moves = flags.intersects(TO_PLACE);
        if !moves && nr_old >= nr_new {
            self.cut_tail(writer, call, progress)?;
            return Ok(old.start);
        }
        // With a fixed place, the part that is cut off may belong to other mappings.
        let nr_kept = if flags.contains(MremapFlags::FIXED) { nr_old.min(nr_new) } else { nr_old };
        if nr_kept > vma.range.end.0 - old.start.0 {
            return Err(MremapError::NotMapped);
        }
        if nr_new > nr_old {
            if self.vm.pool_of_vma(&vma).is_some() {
                return Err(MremapError::HugetlbGrows);
            }
            if vma.pgoff_of(old.start).checked_add(nr_new).is_none() {
                return Err(MremapError::WouldWrap);
            }
            let nr_more = nr_new - nr_old;
            if !self.may_lock(writer, vma.flags, nr_more) {
                return Err(MremapError::TooMuchLocked);
            }
            self.check_room(writer, &vma, nr_more)?;
        }
        if !moves && nr_old > 0 && self.grow_in_place(writer, &vma, call)? {
            return Ok(old.start);
        }
        if !flags.contains(MremapFlags::MAYMOVE) {
            return Err(MremapError::CannotGrow);
        }
        if self.is_near_map_count(writer, 0) {
            return Err(MremapError::TooManyVmas);
        }
        let to = self.target(writer, call, progress)?;
        // With an old size of 0 the target may have been the source itself.
        let vma = self.tree(writer).lookup(old.start).map(|f| f.vma).ok_or(MremapError::NotMapped)?;
        if flags.contains(MremapFlags::DONTUNMAP) {
            // Only now: the pages that were in the target no longer count.
            self.check_room(writer, &vma, nr_new)?;
        }
        let source = match vma.object {
            _ if !flags.contains(MremapFlags::DONTUNMAP) => Source::Unmapped,
            ObjectId::NONE => Source::Emptied,
            _ => Source::Kept,
        };
        self.cut_tail(writer, call, progress)?;
        let moved = PageRange::new(old.start, Vpn(old.start.0 + nr_old.min(nr_new)));
        self.move_mapping(writer, &vma, moved, to, source)?;
        Ok(to.start)
    }

    /// The call with lengths in whole pages of the pool that the mapping shows, as on Linux.
    fn in_whole_pages(&self, vma: &Vma, call: &Remap) -> Result<Remap, MremapError> {
        let &Remap { old, nr_new, flags, new } = call;
        let Some(pool) = self.vm.pool_of_vma(vma) else { return Ok(Remap { ..*call }) };
        let nr = pool.order().nr_pages();
        if flags.contains(MremapFlags::DONTUNMAP) {
            return Err(MremapError::HugetlbDontUnmap);
        }
        if !old.start.0.is_multiple_of(nr) || flags.intersects(TO_PLACE) && !new.0.is_multiple_of(nr) {
            return Err(MremapError::NotHugePages);
        }
        let old = PageRange::new(old.start, Vpn(old.end.0.next_multiple_of(nr)));
        let nr_new = nr_new.next_multiple_of(nr);
        // The user part of x86-64 ends within a page of the pool, so that the bytes of the call may end before it.
        if flags.intersects(TO_PLACE) && new.0 + nr_new > Self::user_range().end.0 {
            return Err(MremapError::BadTarget);
        }
        Ok(Remap { old, nr_new, flags, new })
    }

    /// Unmaps the pages past the new length.
    fn cut_tail(&self, writer: &Writer<'_, M>, call: &Remap, progress: &mut Progress) -> Result<(), MremapError> {
        let tail = PageRange::new(Vpn(call.old.start.0 + call.nr_new), call.old.end);
        if tail.is_empty() || progress.has_cut {
            return Ok(());
        }
        if tail.end > Self::user_range().end {
            // Never past the user part: the embedder owns the rest.
            return Err(MremapError::BadTarget);
        }
        self.unmap_range(writer, tail)?;
        progress.has_cut = true;
        Ok(())
    }

    fn check_room(&self, writer: &Writer<'_, M>, vma: &Vma, nr_more: u64) -> Result<(), MremapError> {
        self.excess(writer, vma.flags, nr_more, 0).map_or(Ok(()), |excess| Err(excess.into()))
    }

    /// Whether a move after `nr_more` splits could exceed the limit on VMAs half-way. As on Linux,
    /// moves are refused three VMAs before the limit.
    fn is_near_map_count(&self, writer: &Writer<'_, M>, nr_more: u64) -> bool {
        self.assert_writer(writer);
        const DISTANCE: u64 = 3;
        self.tree(writer).nr_in_tree() + nr_more >= self.vm.max_map_count().saturating_sub(DISTANCE)
    }

    /// Finds or clears the pages that the mapping moves to.
    fn target(&self, writer: &Writer<'_, M>, call: &Remap, progress: &mut Progress) -> Result<PageRange, MremapError> {
        let pages_from = |start: Vpn| PageRange::new(start, Vpn(start.0 + call.nr_new));
        if call.flags.contains(MremapFlags::FIXED) {
            // As Linux: the target is unmapped first, and stays unmapped if the move fails.
            let new = pages_from(call.new);
            let is_again = progress.cleared == Some(new);
            if is_again && self.nr_mapped_in(writer, new) != 0 {
                // Frames would not help.
                return Err(MremapError::TargetTaken);
            }
            self.unmap_range(writer, new)?;
            progress.cleared = Some(new);
            return Ok(new);
        }
        let hint = if call.flags.contains(MremapFlags::DONTUNMAP) { call.new.addr() } else { 0 };
        let tree = self.tree(writer).snapshot();
        self.find_hole(&tree, hint, call.nr_new).map(pages_from).ok_or(MremapError::NoHole)
    }

    /// Grows the mapping in place. Returns whether there was room after it.
    fn grow_in_place(&self, writer: &Writer<'_, M>, vma: &Vma, call: &Remap) -> Result<bool, MremapError> {
        let range = PageRange::new(call.old.end, Vpn(call.old.start.0 + call.nr_new));
        if vma.range.end != range.start || range.end > Self::user_range().end {
            return Ok(false);
        }
        if self.nr_mapped_in(writer, range) != 0 {
            return Ok(false);
        }
        // The displacement is the same, so the VMA's member covers these pages, too.
        let more = vma.shown_at(range, range.start);
        let edit = self.prepare(writer, &mut |nodes| {
            let mut edit = self.edit(writer);
            edit.with(nodes).place(more)?;
            Ok::<_, OutOfFrames>(edit)
        })?;
        self.vm.object_get(&more, range.nr_pages());
        self.join_members(writer, &more);
        let retired = edit.publish();
        self.data.limits.nr_mapped_pages.add_owned(range.nr_pages());
        self.free_retired(writer, retired);
        Ok(true)
    }
}

/// Checks the new address. With `MREMAP_DONTUNMAP` alone it is only a hint, but Linux checks it in
/// the same way.
fn check_target(old: u64, old_len: u64, new: u64, new_len: u64, limit: u64) -> Result<(), MremapError> {
    if !is_aligned(new) {
        return Err(MremapError::Unaligned);
    }
    if new_len > limit || new > limit - new_len {
        return Err(MremapError::BadTarget);
    }
    // Sums wrap, as in Linux: a range that wraps overlaps nothing here, and is refused later because
    // it is not mapped.
    let apart = old.wrapping_add(old_len) <= new || new.wrapping_add(new_len) <= old;
    if apart { Ok(()) } else { Err(MremapError::BadTarget) }
}
