//! Taking the entries of a frame: what migration and the split of a whole folio
//! begin with.
//!
//! Each entry that is found is made `Busy`, in a section of its space, and given
//! to the caller by value. From then on nothing but that entry keeps the space
//! where it is: a space with a foreign `Busy` in it cannot end (its tables are
//! emptied before its own frame goes, and that pass waits), and the table with
//! the entry stays, too. So the caller may shoot down and resolve with no lock
//! held; after the last entry of a space is resolved it must not touch the space
//! any more.
//!
//! Whoever takes waits for nobody meanwhile: an entry that is somebody else's is
//! passed over, and the number of those that were found tells.
//!
//! Locks on entry: none, no section. Takes the family's.

use super::{Member, place_in};
use crate::addr::{Pfn, Vpn};
use crate::machine::Machine;
use crate::space::SpaceData;
use crate::space::tree::Tree;
use crate::space::vma::Vma;
use crate::sync::Ordering;
use crate::table::entry::Slot;
use crate::table::format::{Entry, Format, Leaf};
use crate::table::pmd::PmdSlot;
use crate::table::walk::{self, Walk};
use crate::vm::Vm;
use core::ops::ControlFlow;

/// Most VMAs that are looked at for one frame, beyond those at its index. A
/// guess: some hundred microseconds.
const VMAS_MAX: u32 = 4096;

/// An entry that is `Busy` and the taker's. Has to be resolved.
pub(crate) struct TakenEntry<'vm, M: Machine> {
    /// Frame of the space that it is in.
    pub(crate) space: Pfn,
    pub(crate) vpn: Vpn,
    pub(crate) slot: Slot<'vm, M::Format>,
    /// What stood there.
    pub(crate) old: Leaf,
}

impl<M: Machine> Clone for TakenEntry<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M: Machine> Copy for TakenEntry<'_, M> {}

impl<M: Machine> TakenEntry<'_, M> {
    /// As it was.
    pub(crate) fn put_back(&self) {
        self.slot.resolve(Entry::Leaf(self.old));
    }
}

/// A huge one.
pub(crate) struct TakenHuge<'vm, M: Machine> {
    pub(crate) space: Pfn,
    pub(crate) pmd: PmdSlot<'vm, M::Format>,
    pub(crate) old: Leaf,
}

/// A walk ended before it had seen everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TakeEnded {
    /// Too many VMAs.
    TooLong,
    /// Subscribers of a space that may map the page would have to be told, outside
    /// sections and locks. Looked at in the section in which the entry would be
    /// taken: who subscribes later waits for that section, and finds `Busy`.
    Subscribed,
}

impl<M: Machine> Vm<M> {
    /// Takes the entries that map the private frame `pfn` by themselves, `wanted`
    /// of them at most, and gives each to `taken`. Fewer are found where others
    /// are at work, or where the frame has more than entries.
    ///
    /// `taken` runs under the family's lock.
    ///
    /// # Errors
    ///
    /// [`TakeEnded`]; what was taken until then is the caller's all the same.
    pub(crate) fn rmap_take<'vm>(
        &'vm self,
        pfn: Pfn,
        wanted: u64,
        taken: &mut dyn FnMut(TakenEntry<'vm, M>),
    ) -> Result<(), TakeEnded> {
        let (mut left, mut nr_vmas) = (wanted, 0);
        let (mut too_long, mut subscribed) = (false, false);
        let _ = self.for_each_member(pfn, &mut |member, index| {
            self.for_each_place(member, index, &mut nr_vmas, &mut |_, vpn| {
                if member.data.has_subscribers() {
                    subscribed = true;
                    return ControlFlow::Break(());
                }
                if let Some(entry) = self.take_entry(member, vpn, pfn) {
                    taken(entry);
                    left -= 1;
                }
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            too_long = nr_vmas >= VMAS_MAX;
            if too_long { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match left {
            0 => Ok(()),
            _ if subscribed => Err(TakeEnded::Subscribed),
            _ if too_long => Err(TakeEnded::TooLong),
            _ => Ok(()),
        }
    }

    /// Takes one huge entry that maps the folio at `first`, in a space and a VMA that
    /// please `fits`; `None` where there is none, or none that is not somebody else's.
    pub(crate) fn rmap_take_huge<'vm>(
        &'vm self,
        first: Pfn,
        fits: &mut dyn FnMut(&SpaceData, &Vma) -> bool,
    ) -> Option<TakenHuge<'vm, M>> {
        let (mut found, mut nr_vmas) = (None, 0);
        let _ = self.for_each_member(first, &mut |member, index| {
            self.for_each_place(member, index, &mut nr_vmas, &mut |vma, vpn| {
                if fits(member.data, vma) {
                    found = self.take_huge_entry(member, vpn, first);
                }
                if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        });
        found
    }

    /// Calls `f(VMA, page)` in a section of the space for each VMA that has the page
    /// of that index; where it was first mapped comes first, which for most pages
    /// is where they are.
    fn for_each_place<'vm>(
        &'vm self,
        member: Member<'vm>,
        index: u64,
        nr_vmas: &mut u32,
        f: &mut dyn FnMut(&Vma, Vpn) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let data = member.data;
        let tree = Tree::new(&self.machine, &data.tree);
        let home = Vpn(index);
        if home.0 < M::Format::USER_PAGES {
            let _section = self.space_section(data, data.id.get());
            if let Some(found) = tree.lookup(home)
                && place_in(&found.vma, index) == Some(home)
            {
                f(&found.vma, home)?;
            }
        }
        let mut at = Vpn(0);
        while *nr_vmas < VMAS_MAX {
            *nr_vmas += 1;
            // One section per VMA: a family may be large, and a section short.
            let _section = self.space_section(data, data.id.get());
            let Some(found) = tree.next(at) else { break };
            at = found.vma.range.end;
            if let Some(vpn) = place_in(&found.vma, index).filter(|vpn| *vpn != home) {
                f(&found.vma, vpn)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// In a section.
    fn take_entry<'vm>(&'vm self, member: Member<'vm>, vpn: Vpn, pfn: Pfn) -> Option<TakenEntry<'vm, M>> {
        let Walk::Leaf(slot) = walk::walk(&self.machine, root_of(member), vpn) else { return None };
        let seen = slot.read();
        let Entry::Leaf(leaf) = seen.entry else { return None };
        if leaf.pfn != pfn {
            return None;
        }
        let old = slot.take(seen).ok()?;
        Some(TakenEntry { space: member.frame, vpn, slot, old })
    }

    /// In a section.
    fn take_huge_entry<'vm>(&'vm self, member: Member<'vm>, vpn: Vpn, first: Pfn) -> Option<TakenHuge<'vm, M>> {
        let Walk::Huge(pmd) = walk::walk(&self.machine, root_of(member), vpn) else { return None };
        let seen = pmd.slot.read();
        let Entry::Leaf(leaf) = seen.entry else { return None };
        if leaf.pfn != first {
            return None;
        }
        let old = pmd.slot.take(seen).ok()?;
        Some(TakenHuge { space: member.frame, pmd, old })
    }
}

fn root_of(member: Member<'_>) -> Pfn {
    Pfn(member.data.root.load(Ordering::Relaxed) as u32)
}
