//! What mremap(2) does with the entries of a mapping that moves.
//!
//! ```text
//! take      each entry of the source ─▶ Busy, noted in the destination with the
//!           lock bit; a huge one as it is, where its place is aligned
//! ...       shootdown, grace
//! settle    Busy ─▶ none; a huge mapping's deposit goes with it
//! unlock    what is in the destination
//! ```
//! Neighbours: `remap` decides and publishes. Locks on entry: the writer lock; no
//! section can find either place.

use crate::addr::{PageRange, Vpn};
use crate::machine::{Flush, Machine};
use crate::notify::Why;
use crate::space::AddressSpace;
use crate::table::entry::Slot;
use crate::table::format::{Entry, Leaf};
use crate::table::pmd;
use crate::table::reserve::{TableCount, TableReserve};
use crate::table::take::Next;
use crate::table::walk;
use crate::vm::Vm;

/// A move that was checked: `old_len` bytes at `old` become `new` bytes at `to`.
pub(super) struct Move {
    pub(super) old: PageRange,
    pub(super) new: PageRange,
    pub(super) keep_old: bool,
}

impl Move {
    /// Where a page of the source goes.
    fn target(&self, vpn: Vpn) -> Vpn {
        Vpn(self.new.start.0 + (vpn.0 - self.old.start.0))
    }
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Tables that the destination lacks for the entries that the source has. A
    /// huge mapping that moves as it is needs a twin in place of a leaf table; one
    /// that is going to be split has its pages in two leaf tables at most.
    pub(super) fn count_tables(&self, m: &Move) -> u64 {
        let machine = &self.vm.machine;
        let mut count = TableCount::new(machine, self.root);
        self.for_each_entry(m.old, &mut |vpn, slot| {
            count.add(m.target(vpn));
            if slot.level > 0 {
                count.add(m.target(Vpn(vpn.0 + Vm::<M>::NR_SUB_FRAMES - 1)));
            }
            Next::GoOn
        });
        count.nr()
    }

    /// Takes the source's entries to the destination. With `stay` only guards go;
    /// pages of an object are found again by a fault.
    pub(super) fn carry_entries(&self, m: &Move, stay: bool, reserve: &mut TableReserve<'vm, M>) {
        if m.old.is_empty() {
            return;
        }
        let _told = if stay { None } else { Some(self.invalidate(m.old, Why::Move)) };
        // Taken as a removal takes them, so that a copy under way in a source that
        // stays mapped is told apart; the rights, which a removal forgets, are
        // noted in the destination.
        self.for_each_entry(m.old, &mut |vpn, slot| self.carry_entry(m, vpn, slot, stay, reserve));
        if !stay {
            self.shootdown_and_wait(Flush::Pages(m.old));
            self.for_each_entry(m.old, &mut |vpn, slot| {
                if slot.removed().is_some() {
                    if slot.level > 0 {
                        self.carry_deposit(vpn, m.target(vpn));
                    }
                    slot.resolve(Entry::None);
                }
                Next::GoOn
            });
        }
        let spread = PageRange::new(m.new.start, Vpn(m.new.start.0 + m.old.nr_pages()));
        self.for_each_entry(spread, &mut |_, slot| {
            if let Entry::LockedLeaf(leaf) = slot.read().entry {
                slot.unlock(leaf);
            }
            Next::GoOn
        });
        self.charge(crate::account::rss::Rss::Tables, reserve.nr_used() as i64);
        self.vm.count(crate::account::Event::TableInstall, reserve.nr_used());
    }

    /// One entry of the source, huge or not, to its place in the destination.
    fn carry_entry(
        &self,
        m: &Move,
        vpn: Vpn,
        slot: Slot<'_, M::Format>,
        stay: bool,
        reserve: &mut TableReserve<'vm, M>,
    ) -> Next {
        let to = m.target(vpn);
        loop {
            let seen = slot.read();
            match seen.entry {
                Entry::Leaf(_) | Entry::LockedLeaf(_) | Entry::Busy if stay => return Next::GoOn,
                Entry::Leaf(leaf) => {
                    let to_slot = if slot.level > 0 {
                        self.huge_target(to, reserve)
                    } else {
                        reserve.entry_for(self.root, self.frame, to, &mut |_| ())
                    };
                    let Some(to_slot) = to_slot else {
                        if slot.level > 0 {
                            self.split_at(Vpn(vpn.0 + 1));
                            return Next::Again;
                        }
                        return Next::GoOn;
                    };
                    if slot.take_for_removal(seen).is_ok()
                        && let Some(kept) = slot.removed()
                    {
                        // Locked: the hardware could use it, but there is no VMA,
                        // so nobody asks; it keeps rights and frame.
                        to_slot.set_private(Entry::LockedLeaf(Leaf { rights: leaf.rights, ..kept }));
                        return Next::GoOn;
                    }
                }
                Entry::Guard => {
                    let Some(to_slot) = reserve.entry_for(self.root, self.frame, to, &mut |_| ()) else {
                        return Next::GoOn;
                    };
                    to_slot.set_private(Entry::Guard);
                    slot.set_private(Entry::None);
                    return Next::GoOn;
                }
                Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => self.vm.machine.relax(),
                Entry::Table(_) => return Next::Again,
                Entry::None => return Next::GoOn,
            }
        }
    }

    /// Where a huge mapping can go as it is: to an aligned place, with the tables
    /// that it takes.
    fn huge_target(&self, to: Vpn, reserve: &mut TableReserve<'vm, M>) -> Option<Slot<'vm, M::Format>> {
        let is_aligned = to.0.is_multiple_of(Vm::<M>::NR_SUB_FRAMES);
        let pmd = if is_aligned { reserve.pmd_for(self.root, self.frame, to) } else { None };
        pmd.map(|pmd| pmd.slot)
    }

    /// The deposit goes with its mapping. Both entries are owned by this call.
    fn carry_deposit(&self, from: Vpn, to: Vpn) {
        let (machine, frames) = (&self.vm.machine, &self.vm.frames);
        let tables = (walk::pmd_table(machine, self.root, from), walk::pmd_table(machine, self.root, to));
        if let (Some(from_table), Some(to_table)) = tables
            && let Some(leaf_table) = pmd::withdraw::<M>(machine, frames, from_table, from)
        {
            pmd::deposit::<M>(machine, frames, to_table, to, leaf_table);
        }
    }
}
