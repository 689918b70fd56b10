//! Fills a folio of several pages into an object that may have some of them.
//!
//! ```text
//! order    by what is missing around the page, and what frames there are    policy/folio.rs
//! nodes    down to the level of that order: for 2 MiB one less than for a smaller page
//! claim    the word of each of its pages, the lowest first: all or none
//! head     tails, then the descriptor of the head; nobody sees them yet
//! put      the word of each page
//! ```
//! A fault that finds a claimed word waits with nothing held. It also waits if its own word is
//! empty and another one of the least size is not: a remover has not emptied that yet, or the words
//! are being claimed. The loser of a claim starts over, sees the word that was not empty, and waits
//! or takes a smaller size. A claim is made in a section by a caller that has the frames already,
//! and it never waits.
//!
//! Locks on entry: a section.

use super::object_slot::ObjectSlot;
use super::slot::{LostFill, PageFrame, PageSlot};
use crate::addr::Order;
use crate::links::Links;
use crate::machine::Machine;
use crate::policy::folio::{FolioQuestion, around, largest};
use crate::space::vma::ObjectId;

impl<M: Machine> Links<M> {
    /// Chooses the size of a missing page; there are frames up to `most_there`, and a folio larger than the least does
    /// not go beyond page `end`. Only a look: the state when the page is put in decides. `None`: wait with nothing held.
    pub(crate) fn folio_order(
        &self,
        id: ObjectId,
        index: u64,
        place: &ObjectSlot<'_>,
        most_there: Order,
        end: u64,
    ) -> Option<Order> {
        let (orders, nr_pages) = (self.object_orders(id), self.object_nr_pages(id).min(end));
        let most_there = most_there.min(place.most_order());
        let question = FolioQuestion { index, nr_pages, orders, most_there };
        largest(&question, &mut |pages| place.are_missing(index, pages))
    }

    /// Puts a folio of zeroes, owned by the caller alone, around the page whose lookup found
    /// nothing; `frame` is its head. After a look at the size in the section of the lookup.
    pub(crate) fn object_fill_folio(
        &self,
        id: ObjectId,
        index: u64,
        slot: PageSlot<'_>,
        head: PageFrame,
    ) -> Result<(), LostFill> {
        slot.claim(head.order)?;
        self.make_folio(head.pfn, head.order, id.0, around(index, head.order).start);
        slot.put(head.pfn, head.order);
        Ok(())
    }
}

#[cfg(test)]
#[path = "fill_tests.rs"]
mod tests;
