//! The argument that says which part of an object mmap(2) is to map. `map.rs` checks it.

use crate::machine::Machine;
use crate::source::handle::SharedObject;

/// The part of an object to map, and whether it may be written.
#[non_exhaustive]
pub struct ObjectPart<'a, 'vm, M: Machine> {
    /// The object.
    pub object: &'a SharedObject<'vm, M>,
    /// Where the mapping begins in it; a multiple of the page size.
    pub offset_bytes: u64,
    /// Whether the mapping may be writable, now or by a later mprotect(2).
    pub may_write: bool,
    /// Whether the object becomes as large as the part reaches, once it is mapped: as a file of hugetlbfs does.
    pub grows: bool,
}

impl<'a, 'vm, M: Machine> ObjectPart<'a, 'vm, M> {
    /// The object from its beginning, for mappings that may be writable.
    pub const fn new(object: &'a SharedObject<'vm, M>) -> Self {
        ObjectPart { object, offset_bytes: 0, may_write: true, grows: false }
    }
    /// The same with another [`offset_bytes`](ObjectPart::offset_bytes).
    #[must_use]
    pub const fn with_offset_bytes(self, offset_bytes: u64) -> Self {
        ObjectPart { offset_bytes, ..self }
    }
    /// The same with another [`may_write`](ObjectPart::may_write).
    #[must_use]
    pub const fn with_may_write(self, may_write: bool) -> Self {
        ObjectPart { may_write, ..self }
    }
    /// The same with another [`grows`](ObjectPart::grows). A refused mapping leaves the size as it was. Others that touch the
    /// new pages before mmap(2) returns may still find them beyond the end.
    #[must_use]
    pub const fn with_grows(self, grows: bool) -> Self {
        ObjectPart { grows, ..self }
    }
}
