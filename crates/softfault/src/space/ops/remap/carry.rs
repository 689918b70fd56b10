//! Moves the entries of a mapping for mremap(2).
//!
//! ```text
//! take      each entry of the source ─▶ Busy, and a locked entry in the destination;
//!           a huge mapping stays huge if its target is aligned
//! ...       shootdown, grace
//! settle    Busy ─▶ none; a huge mapping's deposit moves, too
//! unlock    the entries of the destination
//! ```
//! Neighbours: `moving` counts, reserves and publishes. Locks on entry: the writer
//! lock; the source is marked as moving and no section found it unmarked (I29).

use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{PageRange, Vpn};
use crate::frame::FrameKind;
use crate::machine::{Flush, Machine};
use crate::space::AddressSpace;
use crate::space::lock::Writer;
use crate::table::entry::Slot;
use crate::table::format::{Entry, Leaf, span_of};
use crate::table::pmd;
use crate::table::reserve::{TableCount, TableReserve};
use crate::table::take::Next;
use crate::table::walk::{self, Walk};

/// A checked move: the pages `old` of one VMA become the first pages of `new`.
pub(super) struct MoveRange {
    pub(super) old: PageRange,
    pub(super) new: PageRange,
    pub(super) source: Source,
    pub(super) carries: Carries,
}

/// The entries that move with a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Carries {
    All,
    /// Everything of a private mapping of an object except entries of the object's pages. Those are
    /// dropped and faulted in again, as for `Guards`.
    Copies,
    /// Guards only. Entries of an object's pages are dropped and faulted in again, so that none
    /// appears where a walk over the object's members has already passed.
    Guards,
}

/// The fate of the source of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// It is unmapped.
    Unmapped,
    /// It stays mapped without its pages.
    Emptied,
    /// It stays mapped with its pages, which belong to an object.
    Kept,
}

impl MoveRange {
    /// Returns the new place of a page of the source.
    fn target(&self, vpn: Vpn) -> Vpn {
        Vpn(self.new.start.0 + (vpn.0 - self.old.start.0))
    }
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Counts the tables that the destination lacks for the entries of the source. A huge mapping
    /// that moves as it is needs a twin in place of a leaf table. One that is split, by this call or
    /// concurrently, needs at most two leaf tables.
    pub(super) fn count_tables(&self, writer: &Writer<'_, M>, m: &MoveRange) -> u64 {
        let mut count = TableCount::new(&self.vm.machine, self.root);
        self.for_each_entry(writer, m.old, &mut |vpn, slot| {
            if m.carries != Carries::Guards || matches!(slot.observe().entry, Entry::Guard) {
                count.add(m.target(vpn), writer);
                if slot.level > 0 {
                    count.add(m.target(Vpn(vpn.0 + span_of::<M::Format>(slot.level) - 1)), writer);
                }
            }
            Next::GoOn
        });
        count.nr()
    }

    /// Moves the source's entries to the destination. Subscribers have been told.
    pub(super) fn carry_entries(&self, writer: &Writer<'_, M>, m: &MoveRange, mut reserve: TableReserve<'vm, M>) {
        // Entries are taken as a removal takes them. So the settling pass knows its own entries from
        // those that a copy on write has made Busy. The rights, which this form does not keep, are
        // stored in the destination.
        self.for_each_entry(writer, m.old, &mut |vpn, slot| self.carry_entry(writer, m, vpn, slot, &mut reserve));
        if m.carries != Carries::Guards {
            self.settle_source(writer, m);
        }
        let spread = PageRange::new(m.new.start, Vpn(m.new.start.0 + m.old.nr_pages()));
        self.for_each_entry(writer, spread, &mut |_, slot| {
            if let Entry::LockedLeaf(leaf) = slot.observe().entry {
                slot.unlock(leaf);
            }
            Next::GoOn
        });
        self.charge(Rss::Tables, reserve.nr_used() as i64);
        self.vm.count(Event::TableInstall, reserve.nr_used());
    }

    /// Empties the entries of the source that were taken.
    fn settle_source(&self, writer: &Writer<'_, M>, m: &MoveRange) {
        self.shootdown_and_wait(Flush::Pages(m.old));
        let mut nr_dropped = 0;
        self.for_each_entry(writer, m.old, &mut |vpn, slot| {
            if let Some(kept) = slot.removed() {
                if self.stays_behind(m, kept) {
                    self.vm.frames.note_removed(&kept);
                    nr_dropped += span_of::<M::Format>(slot.level) as i64;
                } else if slot.level == 1 {
                    self.carry_deposit(writer, vpn, m.target(vpn));
                }
                slot.resolve(Entry::None);
            }
            Next::GoOn
        });
        if nr_dropped != 0 {
            self.charge(Rss::Shmem, -nr_dropped);
            self.vm.count(Event::Unmapped, nr_dropped as u64);
        }
    }

    /// Whether an entry that this call has taken names a page of an object. The entry keeps the page
    /// where it is.
    fn stays_behind(&self, m: &MoveRange, leaf: Leaf) -> bool {
        m.carries == Carries::Copies && self.vm.frames.head_desc(leaf.pfn).state().kind() == FrameKind::Shared
    }

    /// Moves one entry of the source, huge or not, to its place in the destination.
    fn carry_entry(
        &self,
        writer: &Writer<'_, M>,
        m: &MoveRange,
        vpn: Vpn,
        slot: Slot<'_, M::Format>,
        reserve: &mut TableReserve<'vm, M>,
    ) -> Next {
        let to = m.target(vpn);
        loop {
            let seen = slot.observe();
            match seen.entry {
                Entry::Leaf(_) | Entry::LockedLeaf(_) | Entry::Busy if m.carries == Carries::Guards => {
                    return Next::GoOn;
                }
                Entry::Leaf(leaf) => {
                    if slot.level > 0 && !self.is_room_for_huge(writer, to, slot.level) {
                        self.split_at(writer, Vpn(vpn.0 + 1));
                        return Next::Again;
                    }
                    if slot.take_for_removal(seen).is_ok()
                        && let Some(kept) = slot.removed()
                    {
                        if self.stays_behind(m, kept) {
                            return Next::GoOn;
                        }
                        // Only after the entry is taken: if another CPU splits the mapping
                        // instead, no twin was used that the count does not include.
                        let to_slot = self.reserved(writer, to, slot.level, reserve);
                        // Locked entries keep rights and frame. Hardware could use one, but the
                        // destination has no VMA yet, so no program may access it.
                        to_slot.set_private(Entry::LockedLeaf(Leaf { rights: leaf.rights, ..kept }));
                        return Next::GoOn;
                    }
                }
                Entry::Guard | Entry::Poison | Entry::Swap(_) => {
                    let to_slot = self.reserved(writer, to, slot.level, reserve);
                    to_slot.set_private(seen.entry);
                    slot.set_private(Entry::None);
                    return Next::GoOn;
                }
                Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => self.vm.machine.relax(),
                Entry::Table(_) => return Next::Again,
                Entry::None => return Next::GoOn,
            }
        }
    }

    /// Returns the entry of the destination for an entry of the source that this call owns.
    fn reserved(
        &self,
        writer: &Writer<'_, M>,
        to: Vpn,
        level: u8,
        reserve: &mut TableReserve<'vm, M>,
    ) -> Slot<'vm, M::Format> {
        self.assert_writer(writer);
        let slot = match level {
            0 => reserve.entry_for(self.root, self.frame, to, writer, &mut |_| ()),
            _ => reserve.pmd_for(self.root, self.frame, (to, level), writer).map(|pmd| pmd.slot),
        };
        slot.expect("I15: the reserve covers what the source holds")
    }

    /// Whether a huge mapping can move to the page as it is: the place is aligned and has no leaf
    /// table.
    fn is_room_for_huge(&self, writer: &Writer<'_, M>, to: Vpn, level: u8) -> bool {
        self.assert_writer(writer);
        let is_aligned = to.0.is_multiple_of(span_of::<M::Format>(level));
        is_aligned && matches!(self.walk(writer, to), Walk::Hole(hole) if hole.slot.level >= level)
    }

    /// Moves the deposit of a huge mapping. This call owns both entries.
    fn carry_deposit(&self, writer: &Writer<'_, M>, from: Vpn, to: Vpn) {
        self.assert_writer(writer);
        let (machine, frames) = (&self.vm.machine, &self.vm.frames);
        let pmd_table = |vpn| walk::pmd_table(machine, self.root, vpn, writer);
        let tables = (pmd_table(from), pmd_table(to));
        if let (Some(from_table), Some(to_table)) = tables
            && let Some(leaf_table) = pmd::withdraw::<M>(machine, frames, from_table, from)
        {
            pmd::deposit::<M>(machine, frames, to_table, to, leaf_table);
        }
    }
}
