//! mprotect(2): the tree first, then one sweep over the entries.
//!
//! Locks on entry: none. Takes the writer lock, and drops it while locked memory is populated.

use super::{is_aligned, page_align, pages};
use crate::addr::{PageRange, Rights};
use crate::errno::op_error;
use crate::frame::OutOfFrames;
use crate::linux::Prot;
use crate::machine::{Flush, Machine};
use crate::notify::notice::Why;
use crate::space::AddressSpace;
use crate::space::lock::Writer;
use crate::space::reclaim::frame_refusal;
use crate::space::vma::{Vma, VmaFlags};
use crate::table::format::{Entry, Leaf};
use crate::table::take::Next;
use core::ops::ControlFlow;

op_error! {
    /// Why mprotect(2) did not do all.
    MprotectError {
        Unaligned: EINVAL = "addr: should be a multiple of the page size",
        BadProt: EINVAL = "prot: should be made of PROT_READ, PROT_WRITE, PROT_EXEC, PROT_SEM and one of PROT_GROWSDOWN and PROT_GROWSUP",
        NotGrowing: EINVAL = "prot: PROT_GROWSDOWN, PROT_GROWSUP: the mapping does not grow that way",
        NotHugePages: EINVAL = "addr, length: should not end within a page of a pool whose rights change",
        Wraps: ENOMEM = "length: should not wrap around",
        NotMapped: ENOMEM = "addr, length: a page of the range is not mapped; those before it were changed",
        NeverWritable: EACCES = "prot: PROT_WRITE: a mapping of the range shows memory that may only be read; those before it were changed",
        OverData: ENOMEM = "prot: PROT_WRITE: the limit on private writable memory (RLIMIT_DATA) is reached; mappings before it were changed",
        TooManyVmas: ENOMEM = "there would be more mappings than vm.max_map_count",
        OutOfFrames(OutOfFrames): ENOMEM = "out of frames",
    }
}

frame_refusal!(MprotectError);

/// The flags that extend the range.
const GROWS: Prot = Prot::GROWSDOWN.union(Prot::GROWSUP);
/// All flags of a protection.
const KNOWN: Prot = GROWS.union(Prot::READ).union(Prot::WRITE).union(Prot::EXEC).union(Prot::SEM);

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Gives the pages of `addr..addr + len` the rights `prot`.
    ///
    /// # Errors
    ///
    /// [`MprotectError`]. As on Linux, the mappings before the refused one may have their new rights:
    /// with `NotMapped`, `NeverWritable` and `OverData`, and if locked memory becomes writable, which
    /// copies its pages. Otherwise nothing is changed.
    ///
    /// Source: mprotect(2).
    pub fn mprotect(&self, addr: u64, len: u64, prot: Prot) -> Result<(), MprotectError> {
        self.vm.call();
        let grows = prot & GROWS;
        if grows == GROWS {
            return Err(MprotectError::BadProt);
        }
        if !is_aligned(addr) {
            return Err(MprotectError::Unaligned);
        }
        if len == 0 {
            return Ok(());
        }
        let len = page_align(len);
        if addr.checked_add(len).is_none_or(|end| end <= addr) {
            return Err(MprotectError::Wraps);
        }
        if !KNOWN.contains(prot) {
            return Err(MprotectError::BadProt);
        }
        let range = pages(addr, len);
        self.vm.with_reclaim(&mut || self.protect_mapped(range, grows, prot.rights()))
    }

    fn protect_mapped(&self, range: PageRange, grows: Prot, rights: Rights) -> Result<(), MprotectError> {
        let mut writer = self.write_lock();
        let mut rest = range;
        if !grows.is_empty() {
            rest = self.grown_range(&writer, rest, grows)?;
        }
        loop {
            // Each time: another thread may have mapped pages of a pool while the lock was not held.
            if self.changes_part_of_pool_page(&writer, rest, &|vma| vma.flags.with_rights(rights) != vma.flags) {
                return Err(MprotectError::NotHugePages);
            }
            let mapped = self.mapped_prefix(&writer, rest);
            let (allowed, refused) = self.allowed_prefix(&writer, mapped, rights);
            let Some(part) = self.first_to_fill(&writer, allowed, rights) else {
                self.protect_range(&writer, allowed, rights)?;
                if let Some(error) = refused {
                    return Err(error);
                }
                return if mapped == rest { Ok(()) } else { Err(MprotectError::NotMapped) };
            };
            self.protect_range(&writer, PageRange::new(rest.start, part.end), rights)?;
            rest.start = part.end;
            // Faults may take the lock themselves. The rest of the range may have other mappings
            // afterwards, so it is looked up again.
            drop(writer);
            self.populate_quietly(part);
            writer = self.write_lock();
        }
    }

    fn grown_range(&self, writer: &Writer<'_, M>, range: PageRange, grows: Prot) -> Result<PageRange, MprotectError> {
        self.assert_writer(writer);
        let vma = self.tree(writer).next(range.start).map(|f| f.vma).ok_or(MprotectError::NotMapped)?;
        if grows == Prot::GROWSUP {
            let error =
                if vma.range.start > range.start { MprotectError::NotMapped } else { MprotectError::NotGrowing };
            return Err(error);
        }
        if vma.range.start >= range.end {
            return Err(MprotectError::NotMapped);
        }
        if !vma.flags.contains(VmaFlags::GROWSDOWN) {
            return Err(MprotectError::NotGrowing);
        }
        Ok(PageRange::new(vma.range.start, range.end))
    }

    /// Finds the first locked private part that becomes writable. As on Linux, its pages are copied
    /// at once.
    fn first_to_fill(&self, writer: &Writer<'_, M>, range: PageRange, rights: Rights) -> Option<PageRange> {
        self.assert_writer(writer);
        if !rights.contains(Rights::WRITE) {
            return None;
        }
        let mut found = None;
        let _ = self.tree(writer).for_each(range, &mut |vma| {
            let kind = vma.flags & (VmaFlags::LOCKED | VmaFlags::SHARED | VmaFlags::WRITE);
            if kind != VmaFlags::LOCKED {
                return ControlFlow::Continue(());
            }
            found = Some(vma.range.intersect(&range));
            ControlFlow::Break(())
        });
        found
    }

    /// Cuts the range, all of which is mapped, at the first VMA that may not have the rights. Returns
    /// the reason, too.
    fn allowed_prefix(
        &self,
        writer: &Writer<'_, M>,
        range: PageRange,
        rights: Rights,
    ) -> (PageRange, Option<MprotectError>) {
        let (mut end, mut refused, mut nr_data) = (range.end, None, 0);
        if !rights.contains(Rights::WRITE) {
            return (range, None);
        }
        let _ = self.tree(writer).for_each(range, &mut |vma| {
            let part = vma.range.intersect(&range);
            let nr_pages = part.nr_pages();
            let becomes_data = !vma.flags.is_data() && vma.flags.with_rights(rights).is_data();
            nr_data += if becomes_data { nr_pages } else { 0 };
            refused = match () {
                () if vma.flags.contains(VmaFlags::NEVERWRITE) => Some(MprotectError::NeverWritable),
                () if becomes_data && self.exceeds_data(writer, nr_data) && !self.exceeds_as(writer, nr_pages, 0) => {
                    // As Linux: no such error if the limit on the address space has no room for a
                    // second VMA of this size.
                    Some(MprotectError::OverData)
                }
                () => return ControlFlow::Continue(()),
            };
            end = part.start;
            ControlFlow::Break(())
        });
        (PageRange::new(range.start, end), refused)
    }

    fn protect_range(&self, writer: &Writer<'_, M>, range: PageRange, rights: Rights) -> Result<(), MprotectError> {
        if range.is_empty() {
            return Ok(());
        }
        let (mut lost, mut changed) = (Rights::empty(), None);
        let protected = &mut |vma: &Vma| {
            lost |= vma.flags.rights() - rights;
            let new = Vma { flags: vma.flags.with_rights(rights), ..*vma };
            if new.flags != vma.flags {
                changed =
                    Some(PageRange::new(changed.map_or(vma.range.start, |all: PageRange| all.start), vma.range.end));
            }
            new
        };
        let edit = self.prepare_rewrite(writer, range, protected, MprotectError::TooManyVmas)?;
        let retired = edit.publish();
        if retired.nr_nodes() > 0 {
            // Every fault after this grace period installs with the new rights, so one sweep finds
            // all entries with too many.
            let retired = self.with_deferred(writer, retired);
            self.wait_for_readers();
            retired.free();
            // Not the ends that do not change: one may be in the middle of a page of a pool, which nobody may split (I58).
            if let Some(changed) = changed {
                self.sweep_rights(writer, changed, rights, lost);
            }
        } else {
            retired.free();
        }
        Ok(())
    }

    /// Removes rights from the entries that the VMA no longer grants, and adds new ones. The write
    /// right is not added: a fault decides whether to copy first. `lost` has the rights that any of
    /// the VMAs lost.
    fn sweep_rights(&self, writer: &Writer<'_, M>, range: PageRange, rights: Rights, lost: Rights) {
        let mut shrunk = false;
        let _told = (!lost.is_empty()).then(|| self.invalidate(range, Why::Protect));
        self.for_each_entry(writer, range, &mut |_, slot| {
            loop {
                let seen = slot.observe();
                match seen.entry {
                    Entry::Leaf(leaf) => {
                        let new = narrowed(leaf, rights);
                        if new == leaf.rights {
                            return Next::GoOn;
                        }
                        if slot.set_rights(seen, new).is_ok() {
                            shrunk |= !(leaf.rights - new).is_empty();
                            return Next::GoOn;
                        }
                    }
                    Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => self.vm.machine.relax(),
                    Entry::Table(_) => return Next::Again,
                    Entry::None | Entry::Guard | Entry::Poison | Entry::Swap(_) => return Next::GoOn,
                }
            }
        });
        debug_assert!(!lost.is_empty() || !shrunk, "I16: no entry has more rights than its VMA");
        if shrunk {
            self.shootdown_and_wait(Flush::Pages(range));
        }
    }
}

fn narrowed(leaf: Leaf, vma: Rights) -> Rights {
    if vma.is_empty() {
        return vma;
    }
    (vma | Rights::READ) - (Rights::WRITE - leaf.rights)
}
