//! A machine's view of an address space and of a shootdown.

use crate::addr::{PageRange, Pfn};

/// Identifies an address space to the machine. Exhaustive: machines use it as a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SpaceTag {
    /// Never reused.
    pub id: u64,
    /// The root page table: what the machine loads into its base register.
    pub root: Pfn,
}

/// The translations that a shootdown invalidates. There may be more kinds. For an unknown kind a
/// machine invalidates all translations of the space, paging-structure caches included, as for
/// `Space`. Invalidating more than requested is always sound (I4) and costs only time.
///
/// It says nothing of instructions: see [`Machine`](super::Machine) on instruction caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Flush {
    /// Those of leaf entries in the range.
    Pages(PageRange),
    /// All of the address space, paging-structure caches included: tables are
    /// about to be freed.
    Space,
}
