//! What hangs together through frames: pages of an object, members of a family.

use crate::frame::Memory;
use crate::machine::{CpuSet, Machine};
use crate::section::KeepsTables;
use crate::section::visit::{CpusLine, SpaceSection};
use core::ops::Deref;

/// Memory, and the look-ups of families under way: what `source` and families work on.
pub struct Links<M: Machine> {
    memory: Memory<M>,
    /// CPUs that look a fork family or an object up, from one of its frames.
    lookups: CpusLine,
}

/// A section in which a family or an object is looked up: whoever gives a founder's frame or
/// the header of an object back waits for it (I30).
#[must_use]
pub(crate) struct LookupSection<'vm>(SpaceSection<'vm>);

impl<M: Machine> Deref for Links<M> {
    type Target = Memory<M>;
    #[inline(always)]
    fn deref(&self) -> &Memory<M> {
        &self.memory
    }
}

impl<M: Machine> Links<M> {
    pub(crate) fn new(memory: Memory<M>) -> Links<M> {
        Links { memory, lookups: CpusLine::default() }
    }

    pub(crate) fn into_memory(self) -> Memory<M> {
        self.memory
    }

    /// Enters a section in which a family or an object is looked up (I30).
    pub(crate) fn lookup_section(&self) -> LookupSection<'_> {
        LookupSection(self.visiting_section(&self.lookups))
    }

    /// Panics in debug builds if the section is of another `Vm`.
    pub(crate) fn assert_lookup(&self, lookup: &LookupSection<'_>) {
        lookup.0.inside().assert_of(&self.lookups);
    }

    /// Waits until no section is left that looked a family or an object up before this.
    pub(crate) fn wait_for_lookups(&self) {
        self.grace(&self.cpus_in_lookups());
    }

    /// The CPUs that look a family or an object up.
    pub(crate) fn cpus_in_lookups(&self) -> CpuSet {
        self.cpus_in(&self.lookups)
    }
}
