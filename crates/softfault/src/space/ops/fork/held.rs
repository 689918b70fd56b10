//! Fork of pinned pages, and notices to subscribers. Neighbours: `pin`, `notify`.
//!
//! Locks on entry: the parent's writer lock, no section.

use super::child::Child;
use super::{Shared, Wanted};
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{PageRange, Vpn};
use crate::frame::{Fill, FrameKind, OutOfFrames};
use crate::machine::{Flush, Machine};
use crate::mem::SourceFailed;
use crate::notify::notice::Why;
use crate::program;
use crate::space::AddressSpace;
use crate::space::lock::Writer;
use crate::space::vma::VmaFlags;
use crate::table::entry::Slot;
use crate::table::format::{Entry, Leaf};
use core::ops::ControlFlow;

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Calls `tell` for each mapping that is shared copy-on-write. The tree is the same before and
    /// after the fork.
    pub(super) fn tell_of_fork(&self, writer: &Writer<'_, M>, tell: &dyn Fn(&Self, PageRange, Why)) {
        self.assert_writer(writer);
        if !self.has_subscribers() {
            return;
        }
        let _ = self.tree(writer).for_each(Self::user_range(), &mut |vma| {
            let keeps = VmaFlags::DONTFORK | VmaFlags::WIPEONFORK | VmaFlags::SHARED;
            if !vma.flags.intersects(keeps) {
                tell(self, vma.range, Why::Fork);
            }
            ControlFlow::Continue(())
        });
    }

    /// Copies a page that cannot be shared: entry -> Busy -> shootdown -> copy -> the
    /// entry as it was. No program writes the page meanwhile, and the parent's page
    /// keeps its frame and rights. The holder of a pin may write. So the page is copied word by
    /// word, and each word is read once. The frame is allocated first: nothing may fail once
    /// the entry is Busy. Writes the child's entry and returns the counter that it adds to. If the memory of the page fails
    /// meanwhile the child finds that out at its first touch: the parent's page stays.
    #[cold]
    pub(super) fn copy_for_child(
        &self,
        writer: &Writer<'_, M>,
        child: &mut Child<'_, 'vm, M>,
        (slot, to_slot): (Slot<'_, M::Format>, Option<Slot<'_, M::Format>>),
        vpn: Vpn,
        (why, what): (Event, Wanted),
        write_protected: &mut bool,
    ) -> Result<Option<Rss>, OutOfFrames> {
        self.assert_writer(writer);
        let vm = self.vm;
        // Counted as held: given back if the page is gone.
        let (to, _held) = child.frame_for_copy()?;
        let old = loop {
            let seen = slot.observe();
            match seen.entry {
                Entry::Leaf(_) => {
                    if let Ok(leaf) = slot.take(seen) {
                        if what != Wanted::Copies || !self.is_of_object(leaf) {
                            break leaf;
                        }
                        // The copy has gone with the end of its object, which is larger again. The
                        // translation stays the entry's.
                        slot.resolve(Entry::Leaf(leaf));
                        vm.give_back(to, Fill::Raw);
                        return Ok(None);
                    }
                }
                Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => vm.machine.relax(),
                // Under the writer lock a page is only removed if its memory fails, it is swapped out,
                // or its object has become smaller. Then the new entry is shared, unless the page is
                // present again.
                Entry::None | Entry::Table(_) | Entry::Guard | Entry::Poison | Entry::Swap(_) => {
                    match self.share_entry(slot, slot.load(), what, write_protected) {
                        Shared::Copied(_) => {}
                        Shared::Nothing => {
                            vm.give_back(to, Fill::Raw);
                            return Ok(None);
                        }
                        Shared::Entry(word, counted) => {
                            vm.give_back(to, Fill::Raw);
                            to_slot.iter().for_each(|to| to.copy_private(word));
                            return Ok(counted);
                        }
                    }
                }
            }
        };
        self.shootdown_and_wait(Flush::Pages(PageRange::new(vpn, Vpn(vpn.0 + 1))));
        // Programs are shot down; the pin's holder may be writing.
        if let Err(SourceFailed(_)) = program::copy_frame(&vm.machine, to, old.pfn) {
            slot.resolve(Entry::Leaf(old));
            vm.give_back(to, Fill::Raw);
            vm.count(Event::CopyFailed, 1);
            to_slot.iter().for_each(|slot| slot.set_private(Entry::Poison));
            return Ok(None);
        }
        let index = vm.frames.desc(old.pfn).index.get();
        vm.frames.desc(to).assign(FrameKind::Anon, 1, self.family, index);
        vm.frames.carry_age(old.pfn, to);
        slot.resolve(Entry::Leaf(old));
        vm.count(why, 1);
        to_slot.iter().for_each(|slot| slot.set_private(Entry::Leaf(Leaf { pfn: to, dirty: true, ..old })));
        Ok(Some(Rss::Anon))
    }
}
