//! The kinds of operations that meet each other, and which calls of the core each
//! one makes.

use crate::random::Random;

macro_rules! deeds {
    ($($deed:ident: $($call:literal),+;)+) => {
        /// One kind of operation. Where it happens the actor decides.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(missing_docs)] // named after what they do
        pub enum Deed {
            $($deed,)+
        }

        impl Deed {
            /// All of them.
            pub const ALL: &[Deed] = &[$(Deed::$deed,)+];

            /// The functions of the core that it calls.
            pub fn calls(self) -> &'static [&'static str] {
                match self {
                    $(Deed::$deed => &[$($call),+],)+
                }
            }
        }
    };
}

// The first five are what programs do most.
deeds! {
    Store: "handle_fault";
    Look: "handle_fault";
    Pin: "pin_page_mut";
    Fork: "fork", "read", "write";
    StoreByCall: "write", "write_forced";
    Discard: "madvise";
    Unmap: "munmap", "mmap";
    MapOver: "mmap";
    Protect: "mprotect";
    Free: "madvise";
    Guard: "madvise";
    Collapse: "madvise";
    Scan: "khugepaged_scan";
    Move: "mremap";
    MoveAndKeep: "mremap", "munmap";
    Lock: "mlock", "munlock";
    LockAll: "mlockall", "munlockall";
    Break: "brk";
    DiscardObject: "discard";
    ResizeObject: "set_size_bytes";
    Split: "split_folio";
    Compact: "compact_step";
    Migrate: "migrate_frame";
    Shrink: "shrink_underused";
    Ahead: "zero_ahead";
    Drop: "drop_clean";
    SwapOut: "swap_out_frame";
    Fail: "poison_frame";
    FailSoon: "soft_offline_frame";
    Lookup: "subscribe", "lookup", "is_current", "unsubscribe";
    Young: "test_young", "test_and_clear_young", "age_pages", "advance_generation";
    Report: "mincore", "maps", "smaps";
    Touched: "mark_untouched", "touched";
}

impl Deed {
    /// Each operation meets each of these at its first waits.
    pub const AGAINST: [Deed; 7] =
        [Deed::Look, Deed::Store, Deed::Pin, Deed::Fork, Deed::Unmap, Deed::Discard, Deed::DiscardObject];

    /// Whether it may wait for a read of a file: it wants a page. Nobody else may.
    pub(super) fn may_want_a_page(self) -> bool {
        use Deed::*;
        matches!(self, Store | Look | Pin | Fork | StoreByCall | Lock | LockAll | Fail | Lookup)
    }

    /// Some of them; every second is one that programs do most.
    pub(super) fn some(random: &mut Random) -> Vec<Deed> {
        let nr = 3 + random.below(5);
        let (often, rarely) = Deed::ALL.split_at(5);
        (0..nr).map(|_| if random.chance(50) { random.pick(often) } else { random.pick(rarely) }).collect()
    }
}
