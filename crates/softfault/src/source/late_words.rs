//! The words of an object about calls of the machine that write a folio which has left it. `late_calls.rs` has their changes.
//!
//! Locks on entry: none.

use crate::sync::{Ordering, Word};

/// Calls that write folios which have left an object.
#[repr(C)]
pub(crate) struct LateCalls {
    /// The number of those that last, or may be made yet; above [`TIMES`], how often there was none any more. Who waits sleeps at it.
    pub(super) calls: Word,
    /// The pages of these and those between: the first, and the end. Under `resize`.
    pub(super) first_page: Word,
    pub(super) end_page: Word,
}

pub(super) const TIMES: u32 = 32;
pub(super) const NUMBER: u64 = (1 << TIMES) - 1;

impl LateCalls {
    /// How many there are. Zero at rest.
    pub(crate) fn nr(&self) -> u64 {
        self.calls.load(Ordering::Acquire) & NUMBER
    }
}
