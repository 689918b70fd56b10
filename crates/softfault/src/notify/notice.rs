//! The notices that subscribers get.

use crate::addr::PageRange;

/// A message to a subscriber. Ranges are exact, of whole mappings where only a
/// whole mapping can change. There may be more kinds. A subscriber that does not know
/// one drops everything that it derived from the space, and says that pages were used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// Entries of the range are about to change: drop what was derived from them,
    /// before this returns.
    Start {
        /// The pages.
        range: PageRange,
        /// Why the entries change.
        why: Why,
    },
    /// They have changed, and may be looked up again.
    End {
        /// As in the notice of the start.
        range: PageRange,
        /// As above.
        why: Why,
    },
    /// Whether the pages of one mapping, all of which are named, were used through
    /// the subscriber's tables: the answer is [`Machine::notify`](crate::Machine::notify)'s.
    Young {
        /// One mapping, whole.
        range: PageRange,
        /// Whether that is to be forgotten at the same time.
        clear: bool,
    },
    /// The space ends: drop everything. The last notice.
    Release,
}

/// Why entries change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Why {
    /// The mapping goes.
    Unmap,
    /// The mapping stays, its pages go: MADV_DONTNEED, guards, pages that their
    /// object has lost.
    Discard,
    /// The mapping loses rights.
    Protect,
    /// The pages move to another address.
    Move,
    /// The pages are shared with a child: not writable any more.
    Fork,
    /// A page gets a frame of its own.
    Copy,
    /// The pages get other frames, with the same content: compaction.
    Migrate,
    /// The memory of a page has failed: each touch is refused from now on.
    Poison,
    /// A page goes out to the swap area; a fault brings it back.
    SwapOut,
    /// Small pages become a huge one.
    Collapse,
    /// The pages count as unwritten from now on: MADV_FREE, and pages that are written to their file, which lose the
    /// right to be written.
    Clean,
}
