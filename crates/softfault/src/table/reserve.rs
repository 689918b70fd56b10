//! Table frames set aside in prepare, so that commit cannot fail.
//!
//! The frames are linked through their descriptors; what is not used goes back.

use super::entry::Slot;
use super::format::{Entry, Format, span_of};
use super::walk::{self, Walk};
use crate::addr::{PageRange, Pfn, Vpn};
use crate::frame::{Fill, FrameKind, OutOfFrames};
use crate::machine::Machine;
use crate::vm::Vm;

/// Zeroed frames, the caller's alone.
pub(crate) struct TableReserve<'vm, M: Machine> {
    vm: &'vm Vm<M>,
    first: Option<Pfn>,
    nr_used: u64,
}

impl<'vm, M: Machine> TableReserve<'vm, M> {
    pub(crate) fn new(vm: &'vm Vm<M>) -> Self {
        TableReserve { vm, first: None, nr_used: 0 }
    }

    /// Sets aside what [`tables_for`] counts, or nothing.
    pub(crate) fn add(&mut self, nr_tables: u64) -> Result<(), OutOfFrames> {
        for _ in 0..nr_tables {
            let pfn = self.vm.obtain(Fill::Zeroed)?;
            self.vm.frames.desc(pfn).link.set(self.first.map_or(0, |p| u64::from(p.0) + 1));
            self.first = Some(pfn);
        }
        Ok(())
    }

    fn take(&mut self) -> Option<Pfn> {
        let pfn = self.first?;
        let link = &self.vm.frames.desc(pfn).link;
        self.first = link.get().checked_sub(1).map(|p| Pfn(p as u32));
        link.set(0);
        Some(pfn)
    }

    /// Tables that were put in so far.
    pub(crate) fn nr_used(&self) -> u64 {
        self.nr_used
    }

    /// The entry of `vpn`, with the tables above it put in as needed. Faults may
    /// be doing the same; whoever loses keeps its frame.
    pub(crate) fn entry_for(&mut self, root: Pfn, space: Pfn, vpn: Vpn) -> Slot<'vm, M::Format> {
        loop {
            match walk::walk(&self.vm.machine, root, vpn) {
                Walk::Leaf(slot) => return slot,
                Walk::Owned => self.vm.machine.relax(),
                Walk::Hole(hole) => {
                    let table = self.take().expect("I15: the reserve covers what was counted");
                    let level = u64::from(hole.level) - 1;
                    self.vm.frames.desc(table).assign(FrameKind::Table, 0, u64::from(space.0), level);
                    if hole.fill(Entry::Table(table)).is_ok() {
                        self.nr_used += 1;
                    } else {
                        self.put(table);
                    }
                }
            }
        }
    }

    fn put(&mut self, pfn: Pfn) {
        let desc = self.vm.frames.desc(pfn);
        desc.clear();
        desc.link.set(self.first.map_or(0, |p| u64::from(p.0) + 1));
        self.first = Some(pfn);
    }
}

impl<M: Machine> Drop for TableReserve<'_, M> {
    fn drop(&mut self) {
        while let Some(pfn) = self.take() {
            self.vm.give_back(pfn, Fill::Zeroed);
        }
    }
}

/// Tables that would have to be put in for entries in all of `range`.
pub(crate) fn tables_for<M: Machine>(machine: &M, root: Pfn, range: PageRange) -> u64 {
    if range.is_empty() {
        return 0;
    }
    let mut nr = 0;
    for level in 1..M::Format::LEVELS {
        let span = span_of::<M::Format>(level);
        let mut at = range.start.0 / span * span;
        while at < range.end.0 {
            // Missing exactly if the walk towards it ends in a hole at this
            // level or above; what is above is counted in its own turn.
            if matches!(walk::walk(machine, root, Vpn(at.max(range.start.0))), Walk::Hole(slot) if slot.level >= level)
            {
                nr += 1;
            }
            at += span;
        }
    }
    nr
}
