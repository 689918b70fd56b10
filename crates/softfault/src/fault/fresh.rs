//! The leaf table that a fault of this CPU installed last: what fault-around does not have to look for in it.
//!
//! Advice, in the CPU's hint: the table may be gone, or be another's by now. Then a fault maps fewer neighbours than it could.
//!
//! Locks on entry: none.

use crate::addr::{OptPfn, Pfn};
use crate::cpu::CpuData;

/// The bit of a table to which the fault has added the entries of its window.
const WINDOW: u64 = 1 << 63;

/// A table as the hint has it.
pub(super) struct FreshTable(u64);

impl FreshTable {
    pub(super) fn new(table: Pfn) -> FreshTable {
        FreshTable(OptPfn::some(table).to_word())
    }

    /// The same, with entries for the fault's window.
    pub(super) fn with_window(self) -> FreshTable {
        FreshTable(self.0 | WINDOW)
    }

    /// Writes it into the hint.
    pub(super) fn note(self, cpu: &CpuData) {
        cpu.hint.fresh_table.set(self.0);
    }
}

/// Whether the table was installed with the window of the fault that is looking. Says so once.
#[inline]
pub(super) fn take_window(cpu: &CpuData, table: Pfn) -> bool {
    let fresh = &cpu.hint.fresh_table;
    let new = FreshTable::new(table);
    let has_window = fresh.get() == new.0 | WINDOW;
    if has_window {
        fresh.set(new.0);
    }
    has_window
}

/// Whether this is the first fault in a leaf table that the CPU has installed, so that there is nothing near
/// it. That is every fault of a program that touches single pages far apart. Says so once.
pub(super) fn take_first(cpu: &CpuData, table: Pfn) -> bool {
    let fresh = &cpu.hint.fresh_table;
    let is_first = fresh.get() == FreshTable::new(table).0;
    if is_first {
        fresh.set(0);
    }
    is_first
}
