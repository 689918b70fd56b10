//! Table frames that prepare sets aside, so that commit cannot fail.
//!
//! The frames are linked through their descriptors. Unused ones are freed.

use super::entry::Slot;
use super::format::{Entry, Format, span_of};
use super::place::PmdSlot;
use super::take::{At, for_each_slot};
use super::walk::{self, Walk};
use crate::addr::{OptPfn, PageRange, Pfn, Vpn};
use crate::frame::Memory;
use crate::frame::{Fill, FrameKind, Held, OutOfFrames, Source};
use crate::machine::Machine;
use crate::pace::Pace;
use crate::section::KeepsTables;

/// Fewer than this many are allocated without asking first.
const SMALL: u64 = 64;

/// Zeroed frames, owned by the caller alone.
pub(crate) struct TableReserve<'vm, M: Machine> {
    vm: &'vm Memory<M>,
    first: OptPfn,
    nr_left: u64,
    nr_used: u64,
    /// Held until all are in use or freed.
    held: Option<Held<'vm>>,
}

impl<'vm, M: Machine> TableReserve<'vm, M> {
    pub(crate) fn new(vm: &'vm Memory<M>) -> Self {
        TableReserve { vm, first: OptPfn::NONE, nr_left: 0, nr_used: 0, held: None }
    }

    /// Sets frames aside. First checks whether there can be so many: zeroing all frames of the
    /// machine to find out would starve all others.
    pub(crate) fn add(&mut self, nr_tables: u64) -> Result<(), OutOfFrames> {
        if nr_tables == 0 {
            return Ok(());
        }
        let vm = self.vm;
        let nr_all = self.nr_left + nr_tables;
        Self::can_ever_be(vm, nr_all)?;
        if !vm.frames.is_frozen() {
            self.held.get_or_insert_with(|| vm.hold());
            if self.fill_up_to(nr_all, &vm.source()).is_ok() {
                return Ok(());
            }
        }
        // As in `obtain_all`, including what was reserved so far.
        self.give_back();
        let turn = vm.last_resort();
        self.held = Some(vm.hold());
        self.fill_up_to(nr_all, &turn.source()).inspect_err(|_| self.give_back())
    }

    /// Like [`add`](Self::add), if the frames can be had at once; returns whether they can. Does
    /// not count free frames first, which reads each block: the caller expects to use all of them.
    pub(crate) fn add_if_free(&mut self, nr_tables: u64) -> bool {
        let vm = self.vm;
        if nr_tables == 0 || vm.frames.is_frozen() {
            return nr_tables == 0;
        }
        self.held.get_or_insert_with(|| vm.hold());
        let mut pace = Pace::new(&vm.machine);
        for _ in 0..nr_tables {
            pace.page();
            let Ok(pfn) = vm.source().frame(Fill::Fixed) else {
                self.give_back();
                return false;
            };
            self.push(pfn);
        }
        true
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Like [`add`](Self::add), for a caller that counts as a holder until this returns. `source`
    /// is its source.
    pub(crate) fn add_from(&mut self, nr_tables: u64, source: &Source<'_, M>) -> Result<(), OutOfFrames> {
        self.fill_up_to(self.nr_left + nr_tables, source).inspect_err(|_| self.give_back())?;
        // Not earlier: a last-resort turn works only while its owner counts as one holder.
        self.held.get_or_insert_with(|| self.vm.hold());
        Ok(())
    }

    /// Whether there can ever be so many, whatever others free: nobody waits for more.
    pub(crate) fn can_ever_be(vm: &Memory<M>, nr_tables: u64) -> Result<(), OutOfFrames> {
        if nr_tables > vm.nr_total_pages.get() { Err(OutOfFrames::frames(nr_tables)) } else { Ok(()) }
    }

    fn fill_up_to(&mut self, nr_tables: u64, source: &Source<'_, M>) -> Result<(), OutOfFrames> {
        let nr_more = nr_tables - self.nr_left;
        if nr_more > SMALL {
            source.look_for(nr_more).map_err(|_| OutOfFrames::frames(nr_tables))?;
        }
        let mut pace = Pace::new(&self.vm.machine);
        while self.nr_left < nr_tables {
            pace.page();
            let pfn = source.frame(Fill::Fixed).map_err(|_| OutOfFrames::frames(nr_tables))?;
            self.push(pfn);
        }
        Ok(())
    }

    /// Ends the hold and frees what was not taken.
    pub(crate) fn give_back(&mut self) {
        let mut pace = Pace::new(&self.vm.machine);
        while let Some(pfn) = self.pop() {
            pace.step();
            self.vm.give_back(pfn, Fill::Fixed);
        }
        self.held = None;
    }

    /// A frame of the reserve, which counts as held until [`give_back`](Self::give_back).
    pub(crate) fn pop(&mut self) -> Option<Pfn> {
        let pfn = self.first.get()?;
        let link = &self.vm.frames.desc(pfn).link;
        self.first = OptPfn::from_word(link.get());
        link.set(0);
        self.nr_left -= 1;
        Some(pfn)
    }

    /// Tables that were put in so far.
    pub(crate) fn nr_used(&self) -> u64 {
        self.nr_used
    }

    /// The entry of `vpn`, after installing missing tables above it. Faults may do the same; the
    /// loser of a race keeps its frame. `None` if the reserve is too small.
    pub(crate) fn entry_for(
        &mut self,
        root: Pfn,
        space: Pfn,
        vpn: Vpn,
        kept: impl KeepsTables,
        split: &mut dyn FnMut(PmdSlot<'_, M::Format>),
    ) -> Option<Slot<'vm, M::Format>> {
        loop {
            match walk::walk(&self.vm.machine, root, vpn, kept) {
                Walk::Leaf(slot) => return Some(slot),
                Walk::Owned => self.vm.machine.relax(),
                Walk::Huge(pmd) => split(pmd),
                Walk::Hole(hole) => self.fill_hole(space, hole.slot)?,
            }
        }
    }

    /// The entry of that level, above 0, over `vpn`, for a huge mapping that moves there: of level 1 in a table that has a
    /// twin. `None` if the reserve is too small or the entry is not empty.
    pub(crate) fn pmd_for(
        &mut self,
        root: Pfn,
        space: Pfn,
        (vpn, level): (Vpn, u8),
        kept: impl KeepsTables,
    ) -> Option<PmdSlot<'vm, M::Format>> {
        loop {
            match walk::walk(&self.vm.machine, root, vpn, kept) {
                Walk::Owned => self.vm.machine.relax(),
                Walk::Leaf(_) | Walk::Huge(_) => return None,
                Walk::Hole(hole) if hole.slot.level > level => self.fill_hole(space, hole.slot)?,
                Walk::Hole(hole) if level > 1 => {
                    debug_assert_eq!(hole.slot.level, level, "I58: no table is below a mapping of such pages");
                    return Some(hole);
                }
                Walk::Hole(hole) => {
                    if self.vm.frames.twin(hole.table).is_some() {
                        return Some(hole);
                    }
                    let twin = self.pop()?;
                    if self.vm.frames.put_twin(hole.table, twin) {
                        self.nr_used += 1;
                    } else {
                        self.push(twin);
                    }
                }
            }
        }
    }

    fn fill_hole(&mut self, space: Pfn, hole: Slot<'_, M::Format>) -> Option<()> {
        let table = self.pop()?;
        let level = u64::from(hole.level) - 1;
        self.vm.frames.desc(table).assign(FrameKind::Table, 0, u64::from(space.0), level);
        if hole.fill(Entry::Table(table)).is_ok() {
            self.nr_used += 1;
        } else {
            self.push(table);
        }
        Some(())
    }

    fn push(&mut self, pfn: Pfn) {
        let desc = self.vm.frames.desc(pfn);
        desc.clear();
        desc.link.set(self.first.to_word());
        self.first = OptPfn::some(pfn);
        self.nr_left += 1;
    }
}

impl<M: Machine> Drop for TableReserve<'_, M> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Upper bound of the tables that are missing for entries in all of `range`: faults only add
/// tables.
pub(crate) fn tables_for<M: Machine>(machine: &M, root: Pfn, range: PageRange) -> u64 {
    let range = range.intersect(&PageRange::new(Vpn(0), Vpn(M::Format::USER_PAGES)));
    missing_below(machine, At::root::<M::Format>(root), range)
}

fn missing_below<M: Machine>(machine: &M, at: At, range: PageRange) -> u64 {
    if at.level == 0 {
        return 0;
    }
    let mut nr = 0;
    for_each_slot(machine, at, range, |slot, span| {
        nr += match slot.table() {
            Some(table) => missing_below(machine, at.below(table, span), range),
            // Empty, or owned for a moment and perhaps empty afterwards.
            None => tables_in::<M::Format>(at.level, span.intersect(&range)),
        };
    });
    nr
}

/// Tables below an empty entry of `level`, for entries in all of `range`.
fn tables_in<F: Format>(level: u8, range: PageRange) -> u64 {
    (1..=level).map(|l| range.end.0.div_ceil(span_of::<F>(l)) - range.start.0 / span_of::<F>(l)).sum()
}

/// Counts the tables for single entries, named in ascending order.
pub(crate) struct TableCount<'a, M> {
    machine: &'a M,
    root: Pfn,
    last: [u64; 8],
    nr: u64,
}

impl<'a, M: Machine> TableCount<'a, M> {
    pub(crate) fn new(machine: &'a M, root: Pfn) -> Self {
        TableCount { machine, root, last: [u64::MAX; 8], nr: 0 }
    }

    pub(crate) fn add(&mut self, vpn: Vpn, kept: impl KeepsTables) {
        let hole = match walk::walk(self.machine, self.root, vpn, kept) {
            // A huge mapping brings its own table when it is split.
            Walk::Leaf(_) | Walk::Huge(_) => return,
            Walk::Hole(hole) => hole.slot.level,
            Walk::Owned => M::Format::LEVELS - 1,
        };
        for level in 1..=hole {
            let index = vpn.0 / span_of::<M::Format>(level);
            if core::mem::replace(&mut self.last[usize::from(level)], index) != index {
                self.nr += 1;
            }
        }
    }

    pub(crate) fn nr(&self) -> u64 {
        self.nr
    }
}
