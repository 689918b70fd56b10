//! The child before it is published: nobody else can reach it, so tables are installed with plain
//! stores.
//!
//! Locks on entry: the parent's writer lock, no section.

use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{Pfn, Vpn};
use crate::frame::{Fill, FrameKind, Held, OutOfFrames};
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::space::lock::Writer;
use crate::sync::Word;
use crate::table::format::Entry;
use crate::table::place::PmdSlot;
use crate::table::pmd::TWIN_LEVEL;
use crate::table::reserve::TableReserve;
use crate::table::walk::{self, Walk};

/// A child that fork has not returned yet.
pub(super) struct Child<'a, 'vm, M: Machine> {
    pub(super) space: &'a AddressSpace<'vm, M>,
    pub(super) writer: Writer<'vm, M>,
    /// For tables; also for copies, if there are no other frames.
    pub(super) reserve: TableReserve<'vm, M>,
}

impl<'a, 'vm, M: Machine> Child<'a, 'vm, M> {
    pub(super) fn of(space: &'a AddressSpace<'vm, M>) -> Child<'a, 'vm, M> {
        Child { space, writer: space.sole_writer(), reserve: TableReserve::new(space.vm) }
    }

    /// Allocates a page table and charges it. It is not installed yet.
    fn new_table(&mut self, level: u64) -> Result<Pfn, OutOfFrames> {
        self.new_table_held(level).map(|(table, _held)| table)
    }

    /// As [`new_table`](Self::new_table), for a caller that may drop it: counted as held.
    pub(super) fn new_table_held(&mut self, level: u64) -> Result<(Pfn, Option<Held<'vm>>), OutOfFrames> {
        let (table, held) = match self.reserve.pop() {
            Some(table) => (table, None),
            None => self.obtain(Fill::Fixed)?,
        };
        self.space.vm.frames.desc(table).assign(FrameKind::Table, 0, u64::from(self.space.frame.0), level);
        self.space.charge(Rss::Tables, 1);
        self.space.vm.count(Event::TableInstall, 1);
        Ok((table, held))
    }

    /// Allocates a frame to copy into, which is counted as held.
    pub(super) fn frame_for_copy(&mut self) -> Result<(Pfn, Option<Held<'vm>>), OutOfFrames> {
        if self.reserve.is_held() {
            let free = self.space.vm.source().frame(Fill::Raw).ok();
            if let Some(pfn) = free.or_else(|| self.reserve.pop()) {
                return Ok((pfn, None));
            }
        }
        self.obtain(Fill::Raw)
    }

    /// Obtains a frame that was not counted in advance. May wait for frames, so the reserve is given
    /// back first (I28).
    #[cold]
    fn obtain(&mut self, fill: Fill) -> Result<(Pfn, Option<Held<'vm>>), OutOfFrames> {
        self.reserve.give_back();
        self.space.vm.obtain_held(fill).map(|(pfn, held)| (pfn, Some(held)))
    }

    pub(super) fn drop_table(&self, table: Pfn) {
        self.space.vm.give_back(table, Fill::Fixed);
        self.space.charge(Rss::Tables, -1);
        self.space.vm.count(Event::TableFree, 1);
    }

    /// Returns the entry of level 1 over a page, in a table that has a twin.
    pub(super) fn pmd_for(&mut self, vpn: Vpn) -> Result<PmdSlot<'vm, M::Format>, OutOfFrames> {
        loop {
            let Walk::Hole(hole) = self.space.walk(&self.writer, vpn) else {
                unreachable!("I17: a child that is not published has in it what fork put there")
            };
            if hole.slot.level > 1 {
                hole.slot.set_private(Entry::Table(self.new_table(u64::from(hole.slot.level) - 1)?));
                continue;
            }
            if self.space.vm.frames.twin(hole.table).is_none() {
                let twin = self.new_table(TWIN_LEVEL)?;
                self.space.vm.frames.put_twin(hole.table, twin);
            }
            return Ok(hole);
        }
    }

    /// Returns the entry of that level over a page, for a page of a pool.
    pub(super) fn entry_of_pool(&mut self, vpn: Vpn, level: u8) -> Result<PmdSlot<'vm, M::Format>, OutOfFrames> {
        loop {
            let Walk::Hole(hole) = self.space.walk(&self.writer, vpn) else {
                unreachable!("I17: a child that is not published has in it what fork put there")
            };
            if hole.slot.level == level {
                return Ok(hole);
            }
            hole.slot.set_private(Entry::Table(self.new_table(u64::from(hole.slot.level) - 1)?));
        }
    }

    /// Returns the entries of the leaf table of a page. Installs the table if it is missing.
    pub(super) fn leaf_table_for(&mut self, vpn: Vpn) -> Result<&'vm [Word; 512], OutOfFrames> {
        let machine = &self.space.vm.machine;
        loop {
            let hole = match walk::leaf_table(machine, self.space.root, vpn, &self.writer) {
                Ok(table) => return Ok(walk::entries(machine, table)),
                Err(Walk::Hole(hole)) => hole,
                Err(_) => unreachable!("I17: a child that is not published has no owned entries"),
            };
            hole.slot.set_private(Entry::Table(self.new_table(u64::from(hole.slot.level) - 1)?));
        }
    }
}
