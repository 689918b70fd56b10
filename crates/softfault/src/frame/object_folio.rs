//! Folios of objects: 2^order adjacent frames, naturally aligned. The descriptor of the first one,
//! the *head*, is that of the folio.
//!
//! The head's descriptor has the order, the owner, the index, the sticky bits and the pins of all of its
//! frames. The descriptors of the others, the *tails*, are not written: they stay all zero, as those of
//! free frames. No other frame that an entry or a slot names has such a descriptor. So only a reader of an
//! all-zero descriptor has to look for the head. A bitmap of each block says where folios begin: a set bit
//! is a tail, so the head is the highest clear bit at or below a frame. The first frame of a block is a
//! tail where a folio of 1 GiB began in another block, and nowhere else: its head follows from its
//! alignment.
//!
//! | step | before it |
//! | --- | --- |
//! | tails are set, the head is assigned | the frames are the caller's alone |
//! | a slot names the folio | both of the above |
//! | tails are cleared | no entry names a frame of it, no section has seen one, no pin is left |
//!
//! Anonymous pages have no head: see `folio.rs`.
//!
//! Tails of a folio of 2 MiB may have no descriptors of their own: see `tail_descs.rs`.
//!
//! Locks on entry: none. A head is looked up in the section in which the entry or slot was read, or
//! with a pin.

use super::tails::Tails;
use super::{Class, FrameDesc, FrameKind, Frames, Memory};
use crate::addr::{BLOCK_FRAMES, BlockId, Order, Pfn};
use crate::machine::Machine;

/// Block and offset in it.
fn place(pfn: Pfn) -> (BlockId, u64) {
    (BlockId::of(pfn), u64::from(pfn.0) % BLOCK_FRAMES)
}

impl Frames {
    /// The head of the folio of an object that the frame belongs to; any other frame is its own.
    pub(crate) fn head(&self, pfn: Pfn) -> Pfn {
        let (b, offset) = place(pfn);
        match self.blocks.at(b).tails.head(offset) {
            Some(head) => Pfn(pfn.0 - (offset - head) as u32),
            None => Pfn(pfn.0 & !(Order::PUD.nr_pages() as u32 - 1)),
        }
    }

    /// The head of a frame that an entry or a slot names. The entry or slot was read in the open
    /// section, or the caller owns the entry. With a pin alone the caller uses [`head`](Self::head).
    #[inline(always)]
    pub(crate) fn head_of_named(&self, pfn: Pfn) -> Pfn {
        if self.desc(pfn).state().kind() == FrameKind::Free { self.head(pfn) } else { pfn }
    }

    /// Returns the descriptor of the head.
    #[inline(always)]
    pub(crate) fn head_desc(&self, pfn: Pfn) -> &FrameDesc {
        self.desc(self.head_of_named(pfn))
    }

    /// Whether the frame belongs to a folio and is not its head.
    pub(crate) fn is_tail(&self, pfn: Pfn) -> bool {
        let (b, offset) = place(pfn);
        self.blocks.at(b).tails.is_tail(offset)
    }
}

impl<M: Machine> Memory<M> {
    /// Makes frames that the caller owns alone one folio of an object: its pages from `index` on. The slot that
    /// names it publishes this: its store releases. Outside sections if the folio is larger than a block:
    /// answers other CPUs.
    pub(crate) fn make_folio(&self, first: Pfn, order: Order, object: u64, index: u64) {
        debug_assert!(index.is_multiple_of(order.nr_pages()));
        self.mark_run(first, order);
        self.set_tails(first, order);
        self.frames.desc(first).assign_folio(order, object, index);
    }

    /// Marks the block of a run as one with folios of objects. The run may have come for a batch of private pages, whose place another
    /// CPU has mapped to an object meanwhile.
    fn mark_run(&self, first: Pfn, order: Order) {
        if order != Order::BASE && order < Order::PMD {
            self.frames.blocks.at(BlockId::of(first)).raise(Class::Shared);
        }
    }

    /// Makes a folio that is going to be read: locked, and not up to date. Smaller than 2 MiB.
    pub(crate) fn make_folio_to_read(&self, first: Pfn, order: Order, object: u64, index: u64) {
        debug_assert!(index.is_multiple_of(order.nr_pages()) && order < Order::PMD);
        self.mark_run(first, order);
        self.set_tails(first, order);
        self.frames.desc(first).assign_reading(order, object, index);
    }

    pub(super) fn set_tails(&self, first: Pfn, order: Order) {
        let (b, offset) = place(first);
        debug_assert!(offset.is_multiple_of(order.nr_pages()));
        if order != Order::BASE {
            self.frames.blocks.at(b).tails.set(offset, order.nr_pages().min(BLOCK_FRAMES));
        }
        if order > Order::PMD {
            self.set_tails_behind(first, order, Tails::set_all);
        }
    }

    /// Makes frames that the caller owns alone a folio of an object that replaces `from`, which no
    /// entry names any more, with the same flags. The slots that name it publish this.
    pub(crate) fn make_moved_folio(&self, from: Pfn, to: Pfn, order: Order) {
        self.set_tails(to, order);
        self.frames.desc(to).assign_moved(self.frames.desc(from));
        self.frames.blocks.at(BlockId::of(to)).raise(Class::Shared);
    }

    /// The frames of a folio are on their own, and the caller's alone: nobody names the folio,
    /// and all sections that saw it have ended. Answers other CPUs if it is larger than a block.
    pub(crate) fn end_folio(&self, first: Pfn, order: Order) {
        let (b, offset) = place(first);
        debug_assert!(!self.frames.lacks_tail_descs(b), "I51: frames on their own have descriptors");
        if order != Order::BASE {
            self.frames.blocks.at(b).tails.clear(offset, order.nr_pages().min(BLOCK_FRAMES));
        }
        if order > Order::PMD {
            self.set_tails_behind(first, order, Tails::clear_all);
        }
        self.frames.desc(first).clear();
    }
}
