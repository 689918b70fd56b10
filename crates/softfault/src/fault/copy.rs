//! The slow half of copy-on-write, which runs outside the section.
//!
//! The fault owns the entry, which is `Busy`. That keeps three things in place: the old frame (its
//! count still includes this mapping), the table (a removal does not free a table that has a
//! foreign `Busy` entry), and the page (everyone else waits for it).
//!
//! old -> Busy -> shootdown -> copy -> new: between the shootdown and the new entry no CPU has a
//! translation. So no two CPUs ever see different frames, nobody writes the old frame while it is
//! copied, and the sequence is the break-before-make that Arm and RISC-V require.

use super::FaultDone;
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{PageRange, Pfn, Rights, Vpn};
use crate::frame::{Fill, FrameKind};
use crate::machine::{Flush, Machine};
use crate::mem;
use crate::space::AddressSpace;
use crate::table::entry::Slot;
use crate::table::format::{Entry, Leaf};

/// A copy in progress. It has to be finished and cannot fail.
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
    pub(crate) fn finish(self, space: &AddressSpace<'vm, M>) -> FaultDone {
        let vm = space.vm;
        let from_zero = self.old.pfn == vm.frames.zero;
        let page = PageRange::new(self.vpn, Vpn(self.vpn.0 + 1));
        space.shootdown(Flush::Pages(page));
        if !from_zero {
            // Not earlier: during a fork another CPU may still have a writable translation, and
            // what it wrote belongs in the copy. The wait is for sections that saw the old entry:
            // they may be writing to the frame (a system call's store) or reading it, and another
            // space may drop the last mapping as soon as ours is gone. The zero frame is never
            // written or freed, so it needs no wait.
            space.wait_after_shootdown();
            mem::copy_frame(&vm.machine, self.to, self.old.pfn);
        }
        vm.frames.desc(self.to).assign(FrameKind::Anon, 1, space.family, self.index);
        let leaf = Leaf { pfn: self.to, rights: self.rights, accessed: true, dirty: true };
        self.slot.resolve(Entry::Leaf(leaf));
        let here = space.here();
        if from_zero {
            here.rss.add(Rss::Anon, 1);
            here.count_done(Event::AnonInstall);
            return FaultDone::Installed;
        }
        if vm.frames.desc(self.old.pfn).map_drop() {
            vm.give_back(self.old.pfn, Fill::Raw);
        }
        here.count_done(Event::CowBreak);
        FaultDone::Copied
    }
}
