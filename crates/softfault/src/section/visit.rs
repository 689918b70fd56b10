//! Sections for others: a CPU sets its bit in a line of bits before it enters one.
//!
//! The CPU sets the bit by a read-modify-write with a full fence, then enters the section. A writer
//! publishes, issues a fence, then reads the line. So either the writer sees the bit and waits, or
//! the section sees what was published (I11). Each space has such a line; lookups of families have
//! one (I30).

use super::{InSection, Section};
use crate::base::Base;
use crate::cpu::CpuData;
use crate::machine::{CpuId, CpuSet, MAX_CPUS, Machine};
use crate::sync::{self, Ordering, Word};

/// One bit per CPU.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct CpusLine {
    pub(crate) words: [Word; MAX_CPUS / 64],
}

/// A section of a CPU whose bit is set in a line. Dropping this clears the bit, unless it was set
/// before.
#[must_use]
pub(crate) struct SpaceSection<'vm> {
    // Declared first: the section ends before the bit goes.
    section: Section<'vm>,
    _visit: Option<Visit<'vm>>,
    /// The line in which the CPU's bit is set.
    #[cfg(debug_assertions)]
    cpus: &'vm CpusLine,
}

/// The bit of a CPU that does not run the space.
struct Visit<'vm> {
    word: &'vm Word,
    bit: u64,
}

impl<M: Machine> Base<M> {
    /// The CPUs whose bits are set, read after a fence.
    pub(crate) fn cpus_in(&self, line: &CpusLine) -> CpuSet {
        sync::fence();
        let mut words = [0; MAX_CPUS / 64];
        let nr_words = self.machine.nr_cpus().div_ceil(64);
        for (to, from) in words.iter_mut().zip(&line.words).take(nr_words) {
            *to = from.load(Ordering::SeqCst);
        }
        CpuSet::from_words(words)
    }

    /// Enters a section in which the CPU's bit in the line is set.
    pub(crate) fn visiting_section<'vm>(&'vm self, cpus: &'vm CpusLine) -> SpaceSection<'vm> {
        let id = self.machine.this_cpu();
        let visit = Visit::begin(cpus, id);
        let section = self.section_of(id, self.cpu(id));
        SpaceSection {
            section,
            _visit: Some(visit),
            #[cfg(debug_assertions)]
            cpus,
        }
    }

    /// Enters a section of a space. A CPU that does not run it (a debugger's, F7;
    /// rmap's) sets its bit first, for the time of the section.
    #[inline(always)]
    pub(crate) fn space_section<'vm>(&'vm self, cpus: &'vm CpusLine, space_id: u64) -> SpaceSection<'vm> {
        let id = self.machine.this_cpu();
        let cpu = self.cpu(id);
        let runs_it = cpu.active.get() == space_id;
        let visit = if runs_it { None } else { Some(Visit::begin(cpus, id)) };
        let section = self.section_of(id, cpu);
        SpaceSection {
            section,
            _visit: visit,
            #[cfg(debug_assertions)]
            cpus,
        }
    }
}

impl<'vm> SpaceSection<'vm> {
    /// The CPU that is inside.
    #[inline(always)]
    pub(crate) fn cpu(&self) -> &'vm CpuData {
        self.section.cpu()
    }
    /// Its number.
    #[inline(always)]
    pub(crate) fn id(&self) -> CpuId {
        self.section.id()
    }

    /// A token that the section is open, and of which space.
    #[inline(always)]
    pub(crate) fn inside(&self) -> InSection<'_> {
        InSection {
            #[cfg(debug_assertions)]
            space: Some(self.cpus),
            ..self.section.inside()
        }
    }
}

impl<'vm> Visit<'vm> {
    #[cold]
    fn begin(cpus: &'vm CpusLine, id: CpuId) -> Visit<'vm> {
        let (word, bit) = (&cpus.words[usize::from(id.0) / 64], 1 << (id.0 % 64));
        let was = word.fetch_or(bit, Ordering::SeqCst);
        sync::fence();
        // A bit that was set before stays: the CPU has not left the space yet.
        Visit { word, bit: bit & !was }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.word.fetch_and(!self.bit, Ordering::SeqCst);
    }
}
