//! The top of an object's tree, and where a lookup in it ended (`object.rs` looks up).
//!
//! Locks on entry: none; a slot is of the section of its lookup.

use super::slot::{INDEX_BITS, ObjectPage, PageSlot, level_of};
use super::spread::Spread;
use crate::addr::{OptPfn, Order, Pfn};
use crate::sync::{Ordering, Word};
use core::ops::Range;

/// The top node and its height in one word, so that no reader sees one of them
/// without the other, and whether its pages are [`Spread`]. Without a node it is an empty object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Top(pub(super) u64);

impl Top {
    const HEIGHT_SHIFT: u32 = 40;
    /// The order of pages that are spread, and that they are.
    const SPREAD_SHIFT: u32 = 34;
    const IS_SPREAD: u64 = 1 << 39;

    /// Makes the word of an object without pages.
    pub(super) fn empty(spread: Spread) -> Top {
        Top(Top::IS_SPREAD | u64::from(spread.0.0) << Top::SPREAD_SHIFT)
    }
    #[inline]
    pub(super) fn of(word: &Word) -> Top {
        Top(word.load(Ordering::Acquire))
    }
    /// A higher one of the same object.
    pub(super) fn with(self, node: Pfn, height: u32) -> Top {
        let spread = self.0 & (Top::IS_SPREAD | (Top::IS_SPREAD - 1) >> Top::SPREAD_SHIFT << Top::SPREAD_SHIFT);
        Top(spread | OptPfn::some(node).to_word() | (u64::from(height) << Top::HEIGHT_SHIFT))
    }
    /// Which of its pages have a cache line for each word.
    #[inline(always)]
    pub(super) fn spread(self) -> Option<Spread> {
        let order = self.0 >> Top::SPREAD_SHIFT & 31;
        (self.0 & Top::IS_SPREAD != 0).then_some(Spread(Order(order as u8)))
    }
    /// The number of a page in the tree.
    #[inline(always)]
    pub(super) fn in_tree(self, index: u64) -> u64 {
        self.spread().map_or(index, |spread| spread.to_tree(index))
    }
    /// Levels of nodes; 0 without any.
    pub(super) fn height(self) -> u32 {
        (self.0 >> Top::HEIGHT_SHIFT) as u32
    }
    pub(super) fn node(self) -> Option<Pfn> {
        OptPfn::from_word(self.0 & ((1 << Top::SPREAD_SHIFT) - 1)).get()
    }
    /// Whether the tree is high enough for a page of this number in it.
    pub(super) fn reaches(self, index: u64) -> bool {
        index >> (INDEX_BITS * self.height()) == 0
    }
}

/// Where a lookup ended.
#[derive(Clone, Copy)]
pub(crate) enum ObjectSlot<'a> {
    /// The place of the page, or of the folio of 2 MiB that it is in: see [`ObjectPage`].
    Page(PageSlot<'a>),
    /// An upper word of which neither node nor folio is there.
    Hole(PageSlot<'a>),
    /// The tree is too low for the page, or has no node at all.
    Low(Top),
}

impl<'a> ObjectSlot<'a> {
    /// In the same section, where the lookup of `index` would end, if that follows from this one of `last`.
    pub(crate) fn beside(self, last: u64, index: u64) -> Option<ObjectSlot<'a>> {
        if last >> INDEX_BITS != index >> INDEX_BITS {
            return None;
        }
        Some(match self {
            ObjectSlot::Page(slot) => ObjectSlot::Page(slot.beside(index)),
            // Nothing was there of all 512.
            ObjectSlot::Hole(_) | ObjectSlot::Low(_) => self,
        })
    }

    /// The state of the page.
    #[inline]
    pub(crate) fn page(&self) -> ObjectPage {
        match self {
            ObjectSlot::Page(slot) => slot.page(),
            ObjectSlot::Hole(_) | ObjectSlot::Low(_) => ObjectPage::Absent,
        }
    }

    /// Where a page of that order is put in, if the lookup has come so far. Else a node is missing.
    pub(crate) fn place_of(&self, order: Order) -> Option<PageSlot<'_>> {
        match self {
            ObjectSlot::Page(slot) | ObjectSlot::Hole(slot) if slot.level == level_of(order) => Some(*slot),
            _ => None,
        }
    }

    /// Where the node that has the words of pages of that order is missing, if it is all that is missing.
    pub(super) fn place_above(&self, order: Order) -> Option<PageSlot<'_>> {
        match self {
            ObjectSlot::Hole(slot) if slot.level == level_of(order) + 1 => Some(*slot),
            _ => None,
        }
    }

    /// Whether the lookup ended at a node of which pages are being reserved.
    pub(super) fn is_under_way(&self) -> bool {
        matches!(self, ObjectSlot::Page(slot) if slot.node_under_way().is_some())
    }

    /// The largest page for which there may be room around the one that was looked up: a node that is
    /// there stays.
    pub(super) fn most_order(&self) -> Order {
        match self {
            ObjectSlot::Page(slot) | ObjectSlot::Hole(slot) if slot.level == 0 => Order(INDEX_BITS as u8 - 1),
            ObjectSlot::Page(slot) | ObjectSlot::Hole(slot) => Order((INDEX_BITS * slot.level) as u8),
            ObjectSlot::Low(_) => Order::MAX,
        }
    }

    /// Whether some pages around `index`, which was looked up and is missing, are missing, as far as a look
    /// goes: as many as the word that was found stands for at most.
    pub(super) fn are_missing(&self, index: u64, pages: Range<u64>) -> bool {
        match self {
            ObjectSlot::Page(slot) if slot.level == 0 => slot.are_missing(index, pages),
            ObjectSlot::Page(_) | ObjectSlot::Hole(_) => true,
            ObjectSlot::Low(top) => top.height() == 0 || !top.reaches(top.in_tree(pages.start)),
        }
    }
}
