//! madvise(2): one advice, applied to the part of each VMA in the range.
//!
//! Locks on entry: none. Takes the writer lock once for the range; for each PMD range with
//! `MADV_COLLAPSE`, and not at all to populate or to make holes.

use super::{MadviseError, is_aligned, page_align, pages};
use crate::account::rss::Rss;
use crate::addr::{Access, PageRange, Vpn};
use crate::fault::FaultError;
use crate::frame::{Claim, OutOfFrames, PoolId};
use crate::linux::Advice;
use crate::machine::{Flush, Machine};
use crate::notify::notice::Why;
use crate::pace::Pace;
use crate::policy::collapse::CollapseRefusal;
use crate::space::AddressSpace;
use crate::space::lock::Writer;
use crate::space::pools::has_claims;
use crate::space::vma::{Vma, VmaFlags};
use crate::table::format::Entry;
use crate::table::take::{Guards, Next, Removal};

/// VMAs with one of these are of a file, as shared anonymous memory is on Linux.
const OF_FILE: VmaFlags = VmaFlags::SHARED.union(VmaFlags::FILE);

/// The operation that an advice asks for.
enum Action {
    /// Only flags of the VMA: (set, cleared).
    Flags(VmaFlags, VmaFlags),
    /// WILLNEED: the range is checked; then reads of files begin.
    WillNeed,
    /// COLD: uses of pages of files are forgotten. Other memory is left alone.
    Cold,
    /// PAGEOUT: the same, and then the pages go.
    PageOut,
    Drop,
    /// DONTNEED_LOCKED: drops locked pages, too.
    DropLocked,
    Free,
    /// REMOVE.
    Punch,
    /// COLLAPSE.
    Collapse,
    Populate(Access),
    Guard,
    Unguard,
}

fn action(advice: Advice) -> Action {
    let none = VmaFlags::empty();
    let order = VmaFlags::SEQUENTIAL | VmaFlags::RANDOM;
    let huge = VmaFlags::HUGEPAGE | VmaFlags::NOHUGEPAGE;
    match advice {
        Advice::Normal => Action::Flags(none, order),
        Advice::Random => Action::Flags(VmaFlags::RANDOM, order),
        Advice::Sequential => Action::Flags(VmaFlags::SEQUENTIAL, order),
        Advice::WillNeed => Action::WillNeed,
        Advice::Cold => Action::Cold,
        Advice::PageOut => Action::PageOut,
        Advice::DontNeed => Action::Drop,
        Advice::Free => Action::Free,
        Advice::Remove => Action::Punch,
        Advice::Collapse => Action::Collapse,
        Advice::DontFork => Action::Flags(VmaFlags::DONTFORK, none),
        Advice::DoFork => Action::Flags(none, VmaFlags::DONTFORK),
        Advice::HugePage => Action::Flags(VmaFlags::HUGEPAGE, huge),
        Advice::NoHugePage => Action::Flags(VmaFlags::NOHUGEPAGE, huge),
        Advice::DontDump => Action::Flags(VmaFlags::DONTDUMP, none),
        Advice::DoDump => Action::Flags(none, VmaFlags::DONTDUMP),
        Advice::WipeOnFork => Action::Flags(VmaFlags::WIPEONFORK, none),
        Advice::KeepOnFork => Action::Flags(none, VmaFlags::WIPEONFORK),
        Advice::PopulateRead => Action::Populate(Access::Read),
        Advice::PopulateWrite => Action::Populate(Access::Write),
        Advice::DontNeedLocked => Action::DropLocked,
        Advice::GuardInstall => Action::Guard,
        Advice::GuardRemove => Action::Unguard,
    }
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Applies `advice` to the pages of `addr..addr + len`.
    ///
    /// # Errors
    ///
    /// [`MadviseError`]. As on Linux, with `NotMapped` the advice was applied to all mapped pages of
    /// the range; with any other error, to those before the page that was refused.
    ///
    /// Source: madvise(2).
    pub fn madvise(&self, addr: u64, len: u64, advice: Advice) -> Result<(), MadviseError> {
        self.vm.call();
        let action = action(advice);
        if !is_aligned(addr) {
            return Err(MadviseError::Unaligned);
        }
        let aligned = page_align(len);
        if len != 0 && aligned == 0 || addr.checked_add(aligned).is_none() {
            return Err(MadviseError::Wraps);
        }
        if aligned == 0 {
            return Ok(());
        }
        let range = pages(addr, aligned);
        if let Action::Populate(access) = action {
            return self.populate_range(range, access);
        }
        if let Action::Collapse = action {
            return self.collapse_advised(range);
        }
        if let Action::Punch = action {
            return self.punch_holes(range);
        }
        let done = self.vm.with_reclaim(&mut || self.advise_range(range, &action));
        match action {
            Action::WillNeed => self.will_need(range),
            // Of any other error it is not known how far the advice went.
            Action::PageOut if matches!(done, Ok(()) | Err(MadviseError::NotMapped)) => self.page_out_files(range),
            _ => {}
        }
        done
    }

    fn advise_range(&self, range: PageRange, action: &Action) -> Result<(), MadviseError> {
        let writer = &self.write_lock();
        let mut at = range.start;
        let mut hole = false;
        let mut pace = Pace::new(&self.vm.machine);
        while at < range.end {
            pace.step();
            let Some(vma) = self.tree(writer).next(at).map(|f| f.vma).filter(|v| v.range.start < range.end) else {
                return Err(MadviseError::NotMapped);
            };
            hole |= vma.range.start > at;
            let part = vma.range.intersect(&PageRange::new(at, range.end));
            self.advise_part(writer, &vma, part, action)?;
            at = part.end;
        }
        if hole { Err(MadviseError::NotMapped) } else { Ok(()) }
    }

    fn advise_part(
        &self,
        writer: &Writer<'_, M>,
        vma: &Vma,
        part: PageRange,
        action: &Action,
    ) -> Result<(), MadviseError> {
        if let Some(pool) = self.vm.pool_of_vma(vma) {
            return self.advise_pool(writer, vma, (part, pool), action);
        }
        self.advise_usual(writer, vma, part, action)
    }

    /// The same for pages of a pool. As on Linux, such pages have no age and no guards, and whole pages are dropped.
    fn advise_pool(
        &self,
        writer: &Writer<'_, M>,
        vma: &Vma,
        (part, pool): (PageRange, PoolId),
        action: &Action,
    ) -> Result<(), MadviseError> {
        let nr = pool.order().nr_pages();
        match action {
            // Refused below, whatever the flags are.
            Action::Flags(VmaFlags::WIPEONFORK, _) => self.advise_usual(writer, vma, part, action),
            Action::Flags(set, clear) if (vma.flags - *clear) | *set == vma.flags => Ok(()),
            Action::Flags(..) if self.cuts_page_of_pool(writer, part) => Err(MadviseError::NotHugePages),
            Action::Drop | Action::DropLocked if !part.start.0.is_multiple_of(nr) => Err(MadviseError::NotHugePages),
            Action::Drop | Action::DropLocked => {
                let whole = PageRange::new(part.start, Vpn(part.end.0 / nr * nr));
                let then = if has_claims(vma) { Claim::Reserved } else { Claim::Nothing };
                let removal = Removal::keeping_tables(whole, Guards::Keep);
                self.remove_pages_then(writer, &removal, Why::Discard, then);
                Ok(())
            }
            Action::Cold | Action::PageOut | Action::Guard | Action::Unguard => Err(MadviseError::WrongMapping),
            _ => self.advise_usual(writer, vma, part, action),
        }
    }

    fn advise_usual(
        &self,
        writer: &Writer<'_, M>,
        vma: &Vma,
        part: PageRange,
        action: &Action,
    ) -> Result<(), MadviseError> {
        let locked = vma.flags.contains(VmaFlags::LOCKED);
        match action {
            Action::Flags(set, clear) => self.advise_flags(writer, vma, part, *set, *clear),
            Action::Drop | Action::Free | Action::Cold | Action::PageOut | Action::Guard if locked => {
                Err(MadviseError::WrongMapping)
            }
            Action::WillNeed => Ok(()),
            Action::Cold | Action::PageOut => {
                self.forget_uses(writer, vma, part);
                Ok(())
            }
            Action::Drop | Action::DropLocked => {
                self.drop_pages(writer, vma, part);
                Ok(())
            }
            Action::Free if !vma.is_anonymous() => Err(MadviseError::WrongMapping),
            Action::Free => {
                self.free_lazily(writer, part);
                Ok(())
            }
            Action::Guard => self.install_guards(writer, vma, part),
            Action::Unguard => {
                self.remove_guards(writer, part);
                Ok(())
            }
            Action::Populate(_) | Action::Collapse | Action::Punch => unreachable!("handled before the lock"),
        }
    }

    fn advise_flags(
        &self,
        writer: &Writer<'_, M>,
        vma: &Vma,
        part: PageRange,
        set: VmaFlags,
        clear: VmaFlags,
    ) -> Result<(), MadviseError> {
        if set.contains(VmaFlags::WIPEONFORK) && vma.flags.intersects(OF_FILE) {
            return Err(MadviseError::WrongMapping);
        }
        let changed = &mut |v: &Vma| Vma { flags: (v.flags - clear) | set, ..*v };
        let edit = self.prepare_rewrite(writer, part, changed, MadviseError::TooManyVmas)?;
        let retired = edit.publish();
        self.split_edges(writer, part);
        self.free_retired(writer, retired);
        Ok(())
    }

    /// Removes the pages and keeps the mapping. Faults continue meanwhile: pages that they install
    /// before the harvest are removed, too; pages installed after it stay.
    fn drop_pages(&self, writer: &Writer<'_, M>, vma: &Vma, part: PageRange) {
        // Guards are entries, so their tables have to stay.
        let may_guard = vma.flags.contains(VmaFlags::MAYGUARD);
        let removal = if may_guard {
            Removal::keeping_tables(part, Guards::Keep)
        } else {
            Removal { range: part, free_inside: part, guards: Guards::Keep }
        };
        self.remove_pages(writer, &removal, Why::Discard);
    }

    /// Clears the accessed and dirty bits of the pages, and drops swapped-out ones. Present pages
    /// stay: there is no reclaim that could drop them.
    fn free_lazily(&self, writer: &Writer<'_, M>, part: PageRange) {
        let mut found = false;
        let _told = self.invalidate(part, Why::Clean);
        self.for_each_entry(writer, part, &mut |_, slot| {
            loop {
                let seen = slot.observe();
                let leaf = match seen.entry {
                    Entry::Leaf(leaf) => leaf,
                    Entry::Table(_) => return Next::Again,
                    // As Linux: the program no longer wants this page, so its loss is no error.
                    Entry::Poison => {
                        slot.publish_locked(Entry::None);
                        return Next::GoOn;
                    }
                    Entry::Swap(of) => {
                        if slot.replace(seen, Entry::None).is_ok() {
                            self.charge(Rss::Swap, -1);
                            self.vm.swap_drop(of);
                            return Next::GoOn;
                        }
                        continue;
                    }
                    _ => return Next::GoOn,
                };
                if !leaf.accessed && !leaf.dirty {
                    return Next::GoOn;
                }
                if slot.clear_accessed_and_dirty(seen).is_ok() {
                    found = true;
                    return Next::GoOn;
                }
            }
        });
        if found {
            self.shootdown(Flush::Pages(part));
        }
    }

    /// Collapses the PMD ranges of the range. Takes the writer lock for each of them.
    fn collapse_advised(&self, range: PageRange) -> Result<(), MadviseError> {
        let mut at = range.start;
        let mut hole = false;
        let mut pace = Pace::new(&self.vm.machine);
        while at < range.end {
            pace.step();
            let Some((vma, pool)) = self.mapping_from(at).filter(|(v, _)| v.range.start < range.end) else {
                return Err(MadviseError::NotMapped);
            };
            hole |= vma.range.start > at;
            let part = vma.range.intersect(&PageRange::new(at, range.end));
            self.collapse_range((&vma, pool), part).map_err(|refusal| match refusal {
                CollapseRefusal::NoHugeFrame => OutOfFrames::huge::<M::Format>().into(),
                CollapseRefusal::NoFrame => OutOfFrames::Frame.into(),
                CollapseRefusal::Pinned | CollapseRefusal::Busy | CollapseRefusal::Changed => MadviseError::InUse,
                _ => MadviseError::NoHugePage,
            })?;
            at = part.end;
        }
        if hole { Err(MadviseError::NotMapped) } else { Ok(()) }
    }

    fn populate_range(&self, range: PageRange, access: Access) -> Result<(), MadviseError> {
        let mut at = range.start;
        let mut pace = Pace::new(&self.vm.machine);
        while at < range.end {
            pace.step();
            let vma = self.vma_at(at).ok_or(MadviseError::NotMapped)?;
            // Stricter than a fault, which allows reads of a write-only mapping.
            if !vma.flags.rights().contains(access.needs()) {
                return Err(MadviseError::NoRights);
            }
            let part = vma.range.intersect(&PageRange::new(at, range.end));
            self.populate(part, access).map_err(|error| match error {
                FaultError::NotMapped => MadviseError::NotMapped,
                FaultError::NoRights => MadviseError::NoRights,
                FaultError::OutOfFrames => OutOfFrames::Frame.into(),
                FaultError::Guard
                | FaultError::BeyondObject
                | FaultError::NotRead
                | FaultError::NoRoom
                | FaultError::NoHugePage
                | FaultError::Taken
                | FaultError::SubpoolFull => MadviseError::Unreachable,
                FaultError::Poisoned => MadviseError::Poisoned,
                FaultError::Missing => MadviseError::Missing,
            })?;
            at = part.end;
        }
        Ok(())
    }
}
