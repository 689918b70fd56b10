//! Sections: the read side of everything that changes under a fault.
//!
//! A fault's lookup, walk and install run inside a section of its CPU. Entering is a plain store to
//! the CPU's own slot. A CPU that removes something issues the machine's heavy barrier and waits for
//! the CPUs that were inside. So a fault writes no line that another CPU writes, and holds nothing.
//!
//! Rules (I8): code in a section does nothing slow, allocates nothing, clears nothing and waits for
//! nobody. Sections do not nest. No reference into a tree, a table or a VMA survives the guard;
//! only values do.
//!
//! Functions that need a section take [`InSection`], which is borrowed from the guard.
//!
//! `visit` opens sections for a space that the CPU does not run, and for lookups of families: the
//! CPU first sets its bit in a line of bits.

pub(crate) mod visit;

use crate::base::Base;
use crate::cpu::CpuData;
use crate::machine::{CpuId, CpuSet, Machine, Tick};
use crate::sync;
use core::marker::PhantomData;
use visit::CpusLine;

/// An open section: the CPU is inside until this is dropped.
#[must_use]
pub(crate) struct Section<'vm> {
    cpu: &'vm CpuData,
    id: CpuId,
    odd: u64,
}

impl<'vm> Section<'vm> {
    /// Its number.
    #[inline(always)]
    pub(crate) fn id(&self) -> CpuId {
        self.id
    }

    /// The CPU that is inside.
    #[inline(always)]
    pub(crate) fn cpu(&self) -> &'vm CpuData {
        self.cpu
    }

    /// A token that the section is open, where the space does not matter.
    #[inline(always)]
    pub(crate) fn inside(&self) -> InSection<'_> {
        InSection {
            #[cfg(debug_assertions)]
            cpu: (self.id, self.cpu),
            #[cfg(debug_assertions)]
            space: None,
            borrowed: PhantomData,
        }
    }
}

/// A token that proves that a section is open. VMAs and slots of objects that were found with it do
/// not outlive the section. The types of table entries allow them to: the CPU that made an entry
/// `Busy` keeps it, and nothing else uses an entry afterwards (I8).
///
/// It has no size and is passed by value. So the fault's guard stays in registers, because nothing
/// takes its address. Builds with debug assertions also record which section it belongs to.
#[derive(Clone, Copy)]
pub(crate) struct InSection<'s> {
    #[cfg(debug_assertions)]
    cpu: (CpuId, &'s CpuData),
    /// The line of the space; `None` if the section is of no particular one.
    #[cfg(debug_assertions)]
    space: Option<&'s CpusLine>,
    borrowed: PhantomData<&'s ()>,
}

#[cfg(not(debug_assertions))]
const _: () = assert!(size_of::<InSection<'_>>() == 0);

/// A token that proves that the tables of a space stay in place: a section of the space, or its
/// writer lock.
pub(crate) trait KeepsTables: Copy {
    /// Panics in debug builds if it belongs to another space than the one with this line.
    fn assert_of(self, cpus: &CpusLine);
}

impl KeepsTables for InSection<'_> {
    #[inline(always)]
    fn assert_of(self, cpus: &CpusLine) {
        #[cfg(debug_assertions)]
        assert!(self.space.is_some_and(|of| core::ptr::eq(of, cpus)), "I8: a section of another space");
        let _ = cpus;
    }
}

impl Drop for Section<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        sync::leave(&self.cpu.slot, self.odd.wrapping_add(1));
    }
}

impl<M: Machine> Base<M> {
    /// Enters a section of this CPU.
    #[inline(always)]
    pub(crate) fn section(&self) -> Section<'_> {
        let id = self.machine.this_cpu();
        self.section_of(id, self.cpu(id))
    }

    /// The same when the caller already knows the CPU.
    #[inline(always)]
    pub(crate) fn section_of<'vm>(&self, id: CpuId, cpu: &'vm CpuData) -> Section<'vm> {
        let even = cpu.slot.get();
        assert!(even.is_multiple_of(2), "I8: sections do not nest: a closure or policy called back");
        self.machine.entered(&cpu.slot);
        sync::enter(&cpu.slot, even.wrapping_add(1));
        Section { cpu, id, odd: even.wrapping_add(1) }
    }

    /// Panics in debug builds if the section belongs to another `Vm`.
    #[inline(always)]
    pub(crate) fn assert_inside(&self, inside: InSection<'_>) {
        #[cfg(debug_assertions)]
        assert!(core::ptr::eq(self.cpu(inside.cpu.0), inside.cpu.1), "I8: a section of another Vm");
        let _ = inside;
    }

    /// Panics if this CPU is in a section or is telling a subscriber: a call that may wait would
    /// wait for itself (I8).
    pub(crate) fn assert_outside(&self) {
        let cpu = self.cpu(self.machine.this_cpu());
        assert!(cpu.slot.get().is_multiple_of(2), "I8: called back from a section");
        assert!(!cpu.is_telling(), "I8: called back from Machine::notify");
    }

    /// Waits until every section has ended that was open on a CPU of the set when this was called.
    /// The calling CPU is outside sections and is not waited for.
    pub(crate) fn grace(&self, cpus: &CpuSet) {
        self.assert_outside();
        let mut others = *cpus;
        others.remove(self.machine.this_cpu());
        if others.is_empty() {
            return;
        }
        sync::fence();
        self.machine.heavy_barrier(&others);
        for id in others.iter().filter(|id| usize::from(id.0) < self.machine.nr_cpus()) {
            self.machine.tick(Tick::Step);
            let slot = &self.cpu(id).slot;
            let seen = sync::probe(slot);
            if seen.is_multiple_of(2) {
                continue;
            }
            while sync::probe(slot) == seen {
                self.machine.relax();
            }
        }
    }

    /// Starts a call of the embedder: steps of the previous call no longer count.
    ///
    /// # Panics
    ///
    /// In a section and in [`Machine::notify`], because such a call may wait. This check comes
    /// first in each call, before anything is changed or taken (M1).
    #[inline]
    pub(crate) fn call(&self) {
        self.call_anywhere();
        self.assert_outside();
    }
}

#[cfg(test)]
mod tests;
