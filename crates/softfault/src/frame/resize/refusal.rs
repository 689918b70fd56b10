//! Why memory does not come or go: one variant, one counter, one word.

use crate::account::Event;

/// Why no memory was added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AddMemoryRefusal {
    /// The range is empty, or does not begin and end at multiples of 128 MiB.
    NotSections,
    /// It has frame 0, or goes beyond [`Machine::nr_frames_at_most`](crate::Machine::nr_frames_at_most).
    OutOfRange,
    /// Some of it is there.
    AlreadyThere,
    /// The machine has no memory there.
    NoSuchMemory,
    /// There are no frames for its descriptors.
    NoMetadata,
}

/// Why memory stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RemoveMemoryRefusal {
    /// The range is empty, or does not begin and end at multiples of 128 MiB.
    NotSections,
    /// Some of it is not there.
    NotThere,
    /// A frame of it is in use, is metadata, or is about to be given out.
    InUse,
    /// An allocation is about to be refused.
    LastResort,
}

impl AddMemoryRefusal {
    /// The counter of this refusal.
    pub fn event(self) -> Event {
        match self {
            AddMemoryRefusal::NotSections => Event::AddMemoryNotSections,
            AddMemoryRefusal::OutOfRange => Event::AddMemoryOutOfRange,
            AddMemoryRefusal::AlreadyThere => Event::AddMemoryAlreadyThere,
            AddMemoryRefusal::NoSuchMemory => Event::AddMemoryNoSuchMemory,
            AddMemoryRefusal::NoMetadata => Event::AddMemoryNoMetadata,
        }
    }
}

impl RemoveMemoryRefusal {
    /// The counter of this refusal.
    pub fn event(self) -> Event {
        match self {
            RemoveMemoryRefusal::NotSections => Event::RemoveMemoryNotSections,
            RemoveMemoryRefusal::NotThere => Event::RemoveMemoryNotThere,
            RemoveMemoryRefusal::InUse => Event::RemoveMemoryInUse,
            RemoveMemoryRefusal::LastResort => Event::RemoveMemoryLastResort,
        }
    }
}

impl core::fmt::Display for AddMemoryRefusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            AddMemoryRefusal::NotSections => "memory to add: should begin and end at multiples of 128 MiB",
            AddMemoryRefusal::OutOfRange => "memory to add: should not have frame 0, nor end above the machine's limit",
            AddMemoryRefusal::AlreadyThere => "memory to add: should not be there yet",
            AddMemoryRefusal::NoSuchMemory => "memory to add: the machine has none there",
            AddMemoryRefusal::NoMetadata => "memory to add: there are no frames for its descriptors",
        })
    }
}
impl core::error::Error for AddMemoryRefusal {}

impl core::fmt::Display for RemoveMemoryRefusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            RemoveMemoryRefusal::NotSections => "memory to remove: should begin and end at multiples of 128 MiB",
            RemoveMemoryRefusal::NotThere => "memory to remove: should be there",
            RemoveMemoryRefusal::InUse => "memory to remove: all of its frames should be free",
            RemoveMemoryRefusal::LastResort => "memory to remove: an allocation waits for frames",
        })
    }
}
impl core::error::Error for RemoveMemoryRefusal {}
