//! Structures that are linked through frames: pages of an object, members of a fork family.

use crate::addr::Pfn;
use crate::frame::{Fill, FolioWaits, FrameKind, Memory, MetaUse};
use crate::machine::{CpuSet, Machine};
use crate::section::visit::{CpusLine, SpaceSection};
use crate::section::{InSection, KeepsTables};
use crate::sync::{self, Ordering, Word};
use core::ops::Deref;

/// Memory, plus the lookups of families in progress. `source` and `rmap/family` work on it.
pub struct Links<M: Machine> {
    memory: Memory<M>,
    /// The CPUs that are looking up a fork family or an object from one of its frames.
    lookups: CpusLine,
    /// The queue of waiters for locked folios.
    pub(crate) folio_waits: FolioWaits,
    pub(crate) under_way: UnderWay,
    /// Whether there has been an object of a file. Never goes back.
    pub(crate) has_files: Word,
    /// No other `Vm` of the process has it.
    pub(crate) number: u64,
}

/// Number of pages whose reads are under way at the machine, which cannot be dropped: of those that their own call has not ended.
/// The call adds them, and whoever ends the read takes them off, perhaps before: for a moment the sum is below zero. A line of
/// its own: every such read writes it, and every fault reads its neighbours.
#[repr(C, align(64))]
pub(crate) struct UnderWay(pub(crate) Word);

/// A section in which a family or an object is looked up. Freeing a founder's frame or an object's
/// header waits for it (I30).
#[must_use]
pub(crate) struct LookupSection<'vm>(SpaceSection<'vm>);

impl LookupSection<'_> {
    /// A token that the section is open.
    pub(crate) fn inside(&self) -> InSection<'_> {
        self.0.inside()
    }
}

impl<M: Machine> Deref for Links<M> {
    type Target = Memory<M>;
    #[inline(always)]
    fn deref(&self) -> &Memory<M> {
        &self.memory
    }
}

impl<M: Machine> Links<M> {
    pub(crate) fn new(memory: Memory<M>) -> Links<M> {
        Links {
            memory,
            lookups: CpusLine::default(),
            folio_waits: FolioWaits::default(),
            under_way: UnderWay(Word::new(0)),
            has_files: Word::new(0),
            number: sync::fresh_number(),
        }
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

    /// Waits until all sections have ended that were looking up a family or an object when this was
    /// called.
    pub(crate) fn wait_for_lookups(&self) {
        self.grace(&self.cpus_in_lookups());
    }

    /// The CPUs that look a family or an object up.
    pub(crate) fn cpus_in_lookups(&self) -> CpuSet {
        self.cpus_in(&self.lookups)
    }

    /// Whether the frame is that header. It stays one until the section ends. Reads the descriptor
    /// alone: any other frame may be being zeroed by plain stores for its next use (I6).
    pub(crate) fn is_header(&self, lookup: &LookupSection<'_>, frame: Pfn, of: MetaUse) -> bool {
        self.assert_lookup(lookup);
        self.frames.find_desc(lookup.inside(), frame).is_some_and(|desc| {
            desc.state().kind() == FrameKind::Meta && desc.index.load(Ordering::Acquire) == of as u64
        })
    }

    /// Takes one more reference through a word of the header, if the count is not zero. Called in
    /// the section in which the frame was seen to be that header.
    pub(crate) fn raise_from_one(&self, lookup: &LookupSection<'_>, header: Pfn, of: MetaUse, nr: &Word) -> bool {
        let mut seen = nr.load(Ordering::Relaxed);
        while seen > 0 {
            // Acquire: sees the header as the last CPU left it that raised the count.
            match nr.compare_exchange(seen, seen + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    debug_assert!(self.is_header(lookup, header, of), "I30: a header stays under a lookup");
                    return true;
                }
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Frees the frame of a header whose last reference was dropped.
    ///
    /// Locks on entry: none, no section.
    pub(crate) fn retire_header(&self, header: Pfn) {
        // Later lookups see no header. Earlier ones are waited for, because their compare-and-swap
        // may still come.
        self.frames.desc(header).index.store(MetaUse::Former as u64, Ordering::Release);
        self.wait_for_lookups();
        self.give_back(header, Fill::Raw);
    }
}
