//! The slow half of copy-on-write, which runs outside the section.
//!
//! The fault owns the entry, which is `Busy`. That keeps three things in place: the old frame (its
//! count still includes this mapping), the table (a removal does not free a table that has a
//! foreign `Busy` entry), and the page (everyone else waits for it).
//!
//! old -> Busy -> shootdown -> copy -> new: between the shootdown and the new entry no CPU has a
//! translation. So no two CPUs ever see different frames, no CPU writes the old frame while it is
//! copied, and the sequence is the break-before-make that Arm and RISC-V require.
//!
//! The old frame may be an object's, shown by a private mapping. Others may then write it while it is
//! copied, as they may write a file that is read. A CPU that takes the page out of its object, or moves
//! it, waits for the entry (`rmap/object.rs`), so the frame stays what it is.

use super::FaultDone;
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{PageRange, Pfn, Rights, Vpn};
use crate::frame::{Fill, FrameKind};
use crate::machine::{Flush, Machine};
use crate::mem::{self, SourceFailed};
use crate::program;
use crate::space::{AddressSpace, Vm};
use crate::table::entry::Slot;
use crate::table::format::{Entry, Leaf};

/// A copy in progress. It has to be finished. It fails only with the memory that is copied: then the entry is what it was.
#[must_use]
pub(crate) struct Copying<'vm, M: Machine> {
    pub(crate) slot: Slot<'vm, M::Format>,
    pub(crate) vpn: Vpn,
    pub(crate) old: Leaf,
    pub(crate) to: Pfn,
    pub(crate) rights: Rights,
    pub(crate) index: u64,
}

impl<'vm, M: Machine> Copying<'vm, M> {
    /// # Errors
    ///
    /// [`SourceFailed`]; the entry names the old frame, and the new one is free.
    pub(crate) fn finish(self, space: &AddressSpace<'vm, M>) -> Result<FaultDone, SourceFailed> {
        let vm = space.vm;
        let from_zero = self.old.pfn == vm.frames.zero;
        if self.is_of_object(vm) {
            return self.finish_from_object(space);
        }
        let page = PageRange::new(self.vpn, Vpn(self.vpn.0 + 1));
        space.shootdown(Flush::Pages(page));
        if !from_zero {
            // Not earlier: during a fork another CPU may still have a writable translation, and
            // what it wrote belongs in the copy. The wait is for sections that saw the old entry:
            // they may be writing to the frame (a system call's store) or reading it, and another
            // space may drop the last mapping as soon as ours is gone. The zero frame is never
            // written or freed, so it needs no wait.
            space.wait_after_shootdown();
            mem::copy_frame(&vm.machine, self.to, self.old.pfn).map_err(|failed| self.abandon(vm, failed))?;
        }
        vm.frames.desc(self.to).assign(FrameKind::Anon, 1, space.family, self.index);
        let leaf = Leaf { pfn: self.to, rights: self.rights, accessed: true, dirty: true };
        self.slot.resolve(Entry::Leaf(leaf));
        let here = space.here();
        if from_zero {
            here.rss.add(Rss::Anon, 1);
            here.count_done(Event::AnonInstall);
            return Ok(FaultDone::Installed);
        }
        if vm.frames.desc(self.old.pfn).map_drop() {
            vm.give_back(self.old.pfn, Fill::Raw);
        }
        here.count_done(Event::CowBreak);
        Ok(FaultDone::Copied)
    }

    /// The old frame cannot be read: the entry names it again. Its count includes this mapping still.
    #[cold]
    fn abandon(&self, vm: &Vm<M>, failed: SourceFailed) -> SourceFailed {
        self.slot.resolve(Entry::Leaf(self.old));
        vm.give_back(self.to, Fill::Raw);
        failed
    }

    /// Whether the old frame is an object's, mapped privately. The entry is the caller's, so that the
    /// frame cannot leave or change its object: a CPU that takes its entries waits for this one.
    fn is_of_object(&self, vm: &Vm<M>) -> bool {
        vm.frames.head_desc(self.old.pfn).state().kind() == FrameKind::Shared
    }

    /// Nothing stored through the old entry, which had no right to: no section has to be waited for.
    /// Others store through theirs meanwhile. The old frame stays the object's.
    #[cold]
    fn finish_from_object(self, space: &AddressSpace<'vm, M>) -> Result<FaultDone, SourceFailed> {
        let vm = space.vm;
        space.shootdown(Flush::Pages(PageRange::new(self.vpn, Vpn(self.vpn.0 + 1))));
        program::copy_frame(&vm.machine, self.to, self.old.pfn).map_err(|failed| self.abandon(vm, failed))?;
        vm.frames.desc(self.to).assign(FrameKind::Anon, 1, space.family, self.index);
        vm.frames.note_removed(&self.old);
        let leaf = Leaf { pfn: self.to, rights: self.rights, accessed: true, dirty: true };
        self.slot.resolve(Entry::Leaf(leaf));
        let here = space.here();
        here.rss.add(Rss::Anon, 1);
        here.rss.add(Rss::Shmem, 1u64.wrapping_neg());
        here.count_done(Event::CowBreak);
        Ok(FaultDone::Copied)
    }
}
