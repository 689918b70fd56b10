//! Long-term pins: their pages are in blocks of their own, because one of them in any other block
//! keeps it from ever becoming a huge page.
//!
//! ```text
//! pinned  as any page: present, and the space's alone if it is private
//! moved   unpinned again, to a frame of a block with such pages      compact/single.rs
//! pinned  where it is then; if it has not moved, its block says so
//! ```
//! Others may pin, unmap or write the page between the two pins, as before the first. The move may
//! fail for any reason for which compaction leaves a page in place. Huge pages stay: they have
//! blocks of their own. A page of a larger folio of an object moves with the folio, or with a part of it
//! (`compact/single.rs`). A folio of 2 MiB stays: nothing else is in its block, which has the class of long-term
//! pins until the folio has left it. A move would use up a free block to free another one.
//!
//! Locks on entry: none, no section.

use crate::account::Event;
use crate::addr::{BlockId, Order, Pfn};
use crate::frame::{Class, FrameKind};
use crate::machine::Machine;
use crate::space::Vm;
use crate::sync;

impl<M: Machine> Vm<M> {
    /// Whether the page lies in a block that is wanted for huge pages.
    pub(super) fn is_among_others(&self, pfn: Pfn, order: Order) -> bool {
        order == Order::BASE
            && self.frames.blocks.at(BlockId::of(pfn)).class() < Class::Pinned
            && !self.is_of_large_folio(pfn)
    }

    /// Whether it belongs to a folio of an object that fills its block. The caller has a pin.
    fn is_of_large_folio(&self, pfn: Pfn) -> bool {
        let state = self.frames.desc(self.frames.head(pfn)).state();
        state.kind() == FrameKind::Shared && state.order() >= Order::PMD
    }

    /// Drops a pin that is not counted as acquired, and moves the page.
    #[cold]
    pub(super) fn unpin_to_move(&self, pfn: Pfn) {
        let head = self.frames.head(pfn);
        if self.frames.desc(head).pin_drop() {
            // The page has gone since.
            return self.give_back_page(head);
        }
        if (self.reclaim.set_apart)(self, pfn) {
            self.count(Event::PinSetApart, 1);
        }
    }

    /// Notes that the page is pinned for long: in its block, if that has other pages, so that
    /// compaction passes it over.
    pub(super) fn mark_pinned(&self, pfn: Pfn, order: Order) {
        // The pin first: compaction takes a mark back, and then looks for pins.
        sync::fence();
        if order == Order::BASE
            && self.frames.blocks.at(BlockId::of(pfn)).raise(Class::Pinned)
            && !self.is_of_large_folio(pfn)
        {
            self.count(Event::PinInPlace, 1);
        }
    }
}
