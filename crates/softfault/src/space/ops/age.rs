//! Ageing: a walk of page tables that records which pages were used, some entries at a time.
//!
//! ```text
//! some entries of a leaf table   accessed? subscribers asked, too
//! their frames                   ─▶ the generation of now, a word of 32 frames at a time
//! these entries                  accessed ─▶ not accessed, if they have not changed
//! ```
//! The use of a frame is recorded before its accessed bit is cleared, so at each moment one of the
//! two shows it.
//!
//! TLBs are not flushed, as on Linux. A CPU does not set the bit again while it has a translation,
//! so a page in constant use may look idle until the translation is evicted. At worst the page is
//! faulted in again. A shootdown for each walk would cost all programs their translations.
//! `test_and_clear_young` does shoot down.
//!
//! Entries that are locked or `Busy` are passed over; their bits stay for the next walk.
//!
//! Locks on entry: none, no section. Takes the writer lock of the space for one step.

use crate::addr::{PageRange, Pfn, Vpn};
use crate::frame::UsedBatch;
use crate::machine::{Machine, Tick};
use crate::notify::notice::Notice;
use crate::pace::{self, Pace};
use crate::section::InSection;
use crate::space::AddressSpace;
use crate::table::entry::{Slot, Unread};
use crate::table::format::{Entry, Format, Leaf, span_of};
use crate::table::place::PmdSlot;
use crate::table::walk::{self, Walk};

/// Entries that are read between two answers to other CPUs, and recorded together.
const ENTRIES_PER_TURN: u64 = 64;

/// The result of one step of [`age_pages`](AddressSpace::age_pages).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Aged {
    /// Pages that were found used. A huge mapping counts with all of its pages, or with none.
    pub nr_young: u64,
    /// Address of the next step in this space, bytes; `None` at its end.
    pub next: Option<u64>,
}

/// One step.
struct Step<'a, 'vm, M: Machine> {
    space: &'a AddressSpace<'vm, M>,
    tells: bool,
    nr_young: u64,
}

impl<M: Machine> AddressSpace<'_, M> {
    /// Records which pages were used, and clears their accessed bits. A page was used if its entry is
    /// accessed or a subscriber says so; its age becomes 0
    /// ([`idle_pages`](crate::Memory::idle_pages)). Reads up to `nr_entries` entries from address
    /// `from` on. A hole and a huge mapping count as one entry each.
    ///
    /// Use of a huge mapping is recorded for all of its pages. A page that several entries map has
    /// the age of the youngest of them.
    ///
    /// No TLB is flushed: uses through translations that a CPU still has are not seen. Uses that are
    /// recorded here are no longer seen by [`test_young`](Self::test_young).
    ///
    /// # Panics
    ///
    /// In a callback ([`Machine`]).
    pub fn age_pages(&self, from: u64, nr_entries: u64) -> Aged {
        self.vm.call();
        let machine = &self.vm.machine;
        let writer = &self.write_lock();
        let mut step = Step { space: self, tells: self.has_subscribers(), nr_young: 0 };
        let (mut at, end, mut left) = (Vpn::of(from), Self::user_range().end, nr_entries);
        let mut pace = Pace::new(machine);
        while at < end && left > 0 {
            pace.step();
            let above = match walk::leaf_table(machine, self.root, at, writer) {
                Ok(table) => {
                    let next = Vpn((at.0 | (span_of::<M::Format>(1) - 1).min(ENTRIES_PER_TURN - 1)) + 1);
                    let next = next.min(end).min(Vpn(at.0.saturating_add(left)));
                    step.entries(table, PageRange::new(at, next));
                    pace::answer(machine);
                    left -= next.0 - at.0;
                    at = next;
                    continue;
                }
                Err(above) => above,
            };
            left -= 1;
            at = match above {
                Walk::Huge(pmd) => step.huge(&pmd),
                Walk::Hole(pmd) => after(&pmd),
                // Another operation owns the entry for a moment.
                Walk::Owned | Walk::Leaf(_) => Vpn((at.0 | (span_of::<M::Format>(1) - 1)) + 1),
            };
        }
        drop(pace);
        Aged { nr_young: step.nr_young, next: (at < end).then(|| at.addr()) }
    }
}

/// The first page after what the entry covers.
fn after<F: Format>(place: &PmdSlot<'_, F>) -> Vpn {
    Vpn(place.base.0 + span_of::<F>(place.slot.level))
}

impl<M: Machine> Step<'_, '_, M> {
    /// Records the use of at most [`ENTRIES_PER_TURN`] entries of a leaf table.
    fn entries(&mut self, table: Pfn, part: PageRange) {
        let machine = &self.space.vm.machine;
        let slot_of = |i: u64| walk::leaf_slot::<M>(machine, table, Vpn(part.start.0 + i));
        let mut accessed: [Option<Unread>; ENTRIES_PER_TURN as usize] = [None; ENTRIES_PER_TURN as usize];
        let mut used = UsedBatch::new(&self.space.vm.frames);
        for i in 0..part.nr_pages() {
            machine.tick(Tick::Step);
            let slot = slot_of(i);
            let loaded = slot.load();
            if slot.is_none(loaded) {
                continue;
            }
            let Entry::Leaf(leaf) = slot.seen(loaded).entry else { continue };
            let vpn = Vpn(part.start.0 + i);
            if self.is_young(&leaf, PageRange::new(vpn, Vpn(vpn.0 + 1))) {
                used.add(self.space.vm.frames.head(leaf.pfn));
            }
            accessed[i as usize] = leaf.accessed.then_some(loaded);
        }
        drop(used);
        let section = self.space.section();
        for (i, loaded) in accessed.iter().enumerate() {
            if let Some(loaded) = loaded {
                self.forget(section.inside(), slot_of(i as u64), *loaded);
            }
        }
    }

    /// Records the use of a huge mapping; returns the page after it.
    fn huge(&mut self, pmd: &PmdSlot<'_, M::Format>) -> Vpn {
        let vm = self.space.vm;
        let loaded = pmd.slot.load();
        if let Entry::Leaf(leaf) = pmd.slot.seen(loaded).entry {
            if self.is_young(&leaf, pmd.span()) && !vm.is_huge_zero(leaf.pfn) {
                vm.note_entry_used(leaf.pfn, pmd.nr_pages());
            }
            if leaf.accessed {
                self.forget(self.space.section().inside(), pmd.slot, loaded);
            }
        }
        after(pmd)
    }

    /// Whether the mapping was used, by the space's tables or a subscriber's.
    fn is_young(&mut self, leaf: &Leaf, whole: PageRange) -> bool {
        let notice = Notice::Young { range: whole, clear: true };
        // Also if the leaf is accessed: the subscriber has to clear its mark, too.
        let by_others = self.tells && self.space.vm.tell_machine(self.space.tag(), &notice);
        let is_young = leaf.accessed || by_others;
        self.nr_young += if is_young { whole.nr_pages() } else { 0 };
        is_young
    }

    /// Clears the accessed bit, unless the entry has changed: then the page was used again, or the entry
    /// maps another frame, whose use was not recorded.
    fn forget(&self, inside: InSection<'_>, slot: Slot<'_, impl Format>, loaded: Unread) {
        let _ = self.space.forget_accessed(inside, slot, slot.seen(loaded));
    }
}
