//! Frames of zeroes for what is no private page: tables, and pages of objects.
//!
//! Locks on entry: none; inside a section.

use super::Kit;
use crate::addr::Pfn;
use crate::cpu::CpuData;
use crate::machine::Machine;
use crate::section::InSection;
use crate::sync::Ordering;

impl<M: Machine> Kit<'_, M> {
    /// A frame of zeroes for a table, as [`zeroed`](Self::zeroed).
    pub(crate) fn table(&mut self, inside: InSection<'_>, cpu: &CpuData) -> Option<Pfn> {
        self.vm.assert_inside(inside);
        if let Some(pfn) = self.table.take() {
            return Some(pfn);
        }
        if cpu.attention.load(Ordering::Acquire) != 0 {
            return None;
        }
        cpu.fixed.pop()
    }

    /// Back into the hand, untouched.
    pub(crate) fn keep_table(&mut self, pfn: Pfn) {
        self.vm.frames.desc(pfn).clear();
        debug_assert!(self.table.is_none());
        self.hold();
        self.table = Some(pfn);
    }

    /// A frame of zeroes for a page of an object, as [`zeroed`](Self::zeroed).
    pub(crate) fn shared(&mut self, inside: InSection<'_>, cpu: &CpuData) -> Option<Pfn> {
        self.vm.assert_inside(inside);
        if let Some(pfn) = self.shared.take() {
            return Some(pfn);
        }
        if cpu.attention.load(Ordering::Acquire) != 0 {
            return None;
        }
        cpu.shared.pop()
    }

    /// Back into the hand, untouched.
    #[cold]
    pub(crate) fn keep_shared(&mut self, pfn: Pfn) {
        self.vm.frames.desc(pfn).clear();
        debug_assert!(self.shared.is_none());
        self.hold();
        self.shared = Some(pfn);
    }
}
