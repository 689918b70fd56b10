//! The slow half of copy-on-write, outside the section.
//!
//! The entry is `Busy` and ours, which keeps three things in place: the old
//! frame (its count still has our mapping), the table (nobody frees one with a
//! foreign `Busy` in it), and the page (everyone who wants it waits).
//!
//! old -> Busy -> shootdown -> copy -> new: between the shootdown and the new
//! entry no CPU has a translation, so no two CPUs ever see two frames, nobody
//! writes the old one while it is copied, and the sequence is the
//! break-before-make that Arm and RISC-V demand.

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

/// A copy under way. Has to be finished; it cannot fail.
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
            // Only now: while a fork is under way another CPU may still have a
            // translation that writes, and what it wrote belongs in the copy. And
            // wait: a section that saw the old entry may be writing to the frame (a
            // system call's store), or reading it; the mapping that keeps it may be
            // dropped by another space as soon as ours is. The zero frame nobody
            // writes and nothing frees: who still reads it reads what was there.
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
