//! mlock(2) and its family.
//!
//! These calls mark mappings, bring their pages in, and enforce the limit. The tree counts the
//! locked pages. They are not swapped out, and `shrink_underused` skips them.
//!
//! Locks on entry: none. Takes the writer lock to mark; pages are brought in without it.

use super::page_align;
use crate::addr::{Access, PAGE_SIZE, PageRange, Vpn};
use crate::errno::op_error;
use crate::fault::FaultError;
use crate::frame::OutOfFrames;
use crate::linux::{MlockFlags, MlockallFlags};
use crate::machine::Machine;
use crate::pace::Pace;
use crate::space::AddressSpace;
use crate::space::lock::Writer;
use crate::space::reclaim::frame_refusal;
use crate::space::vma::{Vma, VmaFlags};
use crate::sync;
use core::ops::ControlFlow;

op_error! {
    /// Why a call of the mlock(2) family did not do all.
    MlockError {
        BadFlags: EINVAL = "flags: should be MLOCK_ONFAULT or 0; for mlockall MCL_CURRENT, MCL_FUTURE or both, and MCL_ONFAULT",
        NotAllowed: EPERM = "limit: is 0 (RLIMIT_MEMLOCK)",
        OverLimit: ENOMEM = "addr, length: more would be locked than RLIMIT_MEMLOCK allows",
        Wraps: EINVAL = "length: should not wrap around",
        NotMapped: ENOMEM = "addr, length: a page of the range is not mapped; those before it were changed",
        Unreachable: ENOMEM = "addr, length: a page of the range cannot be accessed; all of it was marked",
        NotPresent: EAGAIN = "out of frames for the pages; all of the range was marked",
        TooManyVmas: ENOMEM = "there would be more mappings than vm.max_map_count",
        OutOfFrames(OutOfFrames): ENOMEM = "out of frames",
    }
}

frame_refusal!(MlockError);

/// The flags that these calls set and clear.
const MASK: VmaFlags = VmaFlags::LOCKED.union(VmaFlags::ONFAULT);

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Locks the pages of `addr..addr + len` and brings them in, unless `flags`
    /// has `MLOCK_ONFAULT`. Without flags it is mlock(2). The limit is set by
    /// [`set_limit_memlock`](Self::set_limit_memlock).
    ///
    /// # Errors
    ///
    /// [`MlockError`]. As on Linux, pages are marked up to the first hole, and a
    /// page that could not be brought in leaves all of the range marked.
    ///
    /// Source: mlock(2), getrlimit(2).
    pub fn mlock(&self, addr: u64, len: u64, flags: MlockFlags) -> Result<(), MlockError> {
        self.vm.call();
        if !(flags - MlockFlags::ONFAULT).is_empty() {
            return Err(MlockError::BadFlags);
        }
        let set = if flags.contains(MlockFlags::ONFAULT) { MASK } else { VmaFlags::LOCKED };
        if !self.can_lock() {
            return Err(MlockError::NotAllowed);
        }
        let range = rounded(addr, len);
        self.vm.with_reclaim(&mut || self.lock_range(range, set))?;
        if range.is_empty() { Ok(()) } else { self.bring_in(range) }
    }

    fn lock_range(&self, range: PageRange, set: VmaFlags) -> Result<(), MlockError> {
        let writer = &self.write_lock();
        if !self.may_lock(writer, VmaFlags::LOCKED, range.nr_pages()) {
            // A part of the range may be locked already, and is not counted twice.
            let again = self.nr_locked_in(writer, range);
            if !self.may_lock(writer, VmaFlags::LOCKED, range.nr_pages().saturating_sub(again)) {
                return Err(MlockError::OverLimit);
            }
        }
        self.mark(writer, range, set)
    }

    /// Unlocks the pages of `addr..addr + len`.
    ///
    /// # Errors
    ///
    /// [`MlockError`]; pages are unmarked up to the first hole.
    ///
    /// Source: mlock(2).
    pub fn munlock(&self, addr: u64, len: u64) -> Result<(), MlockError> {
        self.vm.call();
        let range = rounded(addr, len);
        self.vm.with_reclaim(&mut || self.mark(&self.write_lock(), range, VmaFlags::empty()))
    }

    /// Locks all mappings (`MCL_CURRENT`), future mappings (`MCL_FUTURE`), or both.
    /// The limit is that of [`mlock`](Self::mlock). As on Linux, pages that cannot be brought in are
    /// skipped.
    ///
    /// # Errors
    ///
    /// [`MlockError`]; nothing is changed then.
    ///
    /// Source: mlock(2).
    pub fn mlockall(&self, flags: MlockallFlags) -> Result<(), MlockError> {
        self.vm.call();
        let when = MlockallFlags::CURRENT | MlockallFlags::FUTURE;
        if !flags.intersects(when) || !(flags - when - MlockallFlags::ONFAULT).is_empty() {
            return Err(MlockError::BadFlags);
        }
        if !self.can_lock() {
            return Err(MlockError::NotAllowed);
        }
        let set = if flags.contains(MlockallFlags::ONFAULT) { MASK } else { VmaFlags::LOCKED };
        let current = flags.contains(MlockallFlags::CURRENT);
        self.vm.with_reclaim(&mut || self.lock_all(flags, set))?;
        let mut at = Self::user_range().start;
        let mut pace = Pace::new(&self.vm.machine);
        while let Some(vma) = self.vma_from(at).filter(|_| current) {
            pace.step();
            let _ = self.bring_in(vma.range);
            at = vma.range.end;
        }
        Ok(())
    }

    fn lock_all(&self, flags: MlockallFlags, set: VmaFlags) -> Result<(), MlockError> {
        let writer = &self.write_lock();
        let nr_mapped = self.data.limits.nr_mapped_pages.get();
        let current = flags.contains(MlockallFlags::CURRENT);
        if current && nr_mapped > self.memlock_pages() {
            return Err(MlockError::OverLimit);
        }
        if current {
            self.rewrite_locks(writer, Self::user_range(), set)?;
        }
        let future = if flags.contains(MlockallFlags::FUTURE) { set } else { VmaFlags::empty() };
        self.data.limits.lock_future.set(future.bits());
        Ok(())
    }

    /// Unlocks all mappings, and clears `MCL_FUTURE`.
    ///
    /// # Errors
    ///
    /// [`MlockError::OutOfFrames`]; nothing is changed then.
    ///
    /// Source: mlock(2).
    pub fn munlockall(&self) -> Result<(), MlockError> {
        self.vm.call();
        self.vm.with_reclaim(&mut || {
            self.rewrite_locks(&self.write_lock(), Self::user_range(), VmaFlags::empty())?;
            self.data.limits.lock_future.set(0);
            Ok(())
        })
    }

    /// Number of pages in locked VMAs, present or not (`VmLck`).
    pub fn nr_locked_pages(&self) -> u64 {
        self.vm.call();
        self.tree(&self.write_lock()).tally().nr_locked_pages
    }

    /// Counts pages of the range in locked VMAs.
    fn nr_locked_in(&self, writer: &Writer<'_, M>, range: PageRange) -> u64 {
        self.assert_writer(writer);
        let mut nr = 0;
        let _ = self.tree(writer).for_each(range, &mut |vma| {
            if vma.flags.contains(VmaFlags::LOCKED) {
                nr += vma.range.intersect(&range).nr_pages();
            }
            ControlFlow::Continue(())
        });
        nr
    }

    /// Marks the range, up to its first hole.
    fn mark(&self, writer: &Writer<'_, M>, range: PageRange, set: VmaFlags) -> Result<(), MlockError> {
        if range.is_empty() {
            return Ok(());
        }
        if range.end > Vpn::of(u64::MAX) {
            return Err(MlockError::Wraps);
        }
        let mapped = self.mapped_prefix(writer, range);
        self.rewrite_locks(writer, mapped, set)?;
        if mapped == range { Ok(()) } else { Err(MlockError::NotMapped) }
    }

    fn rewrite_locks(&self, writer: &Writer<'_, M>, range: PageRange, set: VmaFlags) -> Result<(), MlockError> {
        if range.is_empty() {
            return Ok(());
        }
        // As Linux: pages of a pool do not leave it, and are not counted.
        let marked = &mut |vma: &Vma| match self.vm.pool_of_vma(vma) {
            Some(_) => *vma,
            None => Vma { flags: (vma.flags - MASK) | set, ..*vma },
        };
        let edit = self.prepare_rewrite(writer, range, marked, MlockError::TooManyVmas)?;
        let retired = edit.publish();
        // Publishes the flags before the pages are read: see `shrink_underused`.
        sync::fence();
        self.split_edges(writer, range);
        self.free_retired(writer, retired);
        Ok(())
    }

    /// Brings in the pages of the locked VMAs of the range, up to the first page that cannot be. No
    /// lock is held: other threads may change the range meanwhile.
    fn bring_in(&self, range: PageRange) -> Result<(), MlockError> {
        let mut rest = range;
        let mut pace = Pace::new(&self.vm.machine);
        while let Some((vma, pool)) = self.mapping_from(rest.start).filter(|(vma, _)| vma.range.overlaps(&rest)) {
            pace.step();
            let part = vma.range.intersect(&rest);
            rest.start = part.end;
            let is_wanted = vma.flags.contains(VmaFlags::LOCKED) || pool.is_some();
            if !is_wanted || vma.flags.contains(VmaFlags::ONFAULT) {
                continue;
            }
            if vma.flags.rights().is_empty() {
                return Err(MlockError::Unreachable);
            }
            let private_write = vma.flags & (VmaFlags::WRITE | VmaFlags::SHARED) == VmaFlags::WRITE;
            let access = if private_write { Access::Write } else { Access::Read };
            self.populate(part, access).map_err(|error| match error {
                FaultError::OutOfFrames => MlockError::NotPresent,
                _ => MlockError::Unreachable,
            })?;
        }
        Ok(())
    }
}

/// Rounds to whole pages. As on Linux, a length that rounds up past 2^64 becomes 0. The range may
/// end past the last address.
fn rounded(addr: u64, len: u64) -> PageRange {
    let start = Vpn::of(addr);
    let nr_pages = page_align(len.wrapping_add(addr % PAGE_SIZE)) / PAGE_SIZE;
    PageRange::new(start, Vpn(start.0 + nr_pages))
}
