//! A folio of 2 MiB or 1 GiB comes to an object: one word, and more to zero than fits in a section.
//!
//! ```text
//! claim    section: the word says FILLING; the object is kept
//! frames   as they were found; refused: the word is empty again
//! zero     with answers: tails and head, too; nobody sees them yet
//! put      section: the word names the folio if it still lies in the object, else it is empty again
//! ```
//! The place comes before the frames. So of those who want the page one looks for memory and zeroes it. The others
//! wait with nothing held, as for a page that is leaving; they do not find the last GiB taken, and take small
//! pages in its place. Whoever fills holds no frames while it waits for some, and does not sleep: a refusal is
//! returned, and memory is reclaimed when the word is empty. A remover passes over such a word, and what is put in
//! comes after it. Whoever makes the object smaller stores the size, and waits for sections: the last look at the
//! size has seen it, or the folio is there when the remover comes.
//!
//! Locks on entry: none, no section, unless a function says so.

use super::keep::KeptObject;
use super::slot::{LostFill, PageSlot};
use crate::addr::Order;
use crate::frame::OutOfFrames;
use crate::links::Links;
use crate::machine::Machine;
use crate::policy::folio::around;
use crate::section::InSection;
use crate::space::vma::ObjectId;

/// Whether a folio of that order comes in this way.
pub(crate) fn is_large(order: Order) -> bool {
    order >= Order::PMD
}

/// A place of a folio that is claimed, in an object that is kept. Has to be finished.
#[must_use]
pub(crate) struct LargeFill<'vm, M: Machine> {
    object: KeptObject<'vm, M>,
    /// The page that is wanted.
    index: u64,
    order: Order,
}

/// Why no folio came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FillRefusal {
    /// There is none of that order. A smaller one will do.
    Smaller(Order),
    /// There is none of the least order.
    OutOfFrames(OutOfFrames),
}

impl<M: Machine> Links<M> {
    /// Claims the place of a folio around the page whose lookup found nothing. In the section of the lookup, after
    /// a look at the size.
    ///
    /// # Errors
    ///
    /// Somebody was quicker.
    pub(crate) fn begin_to_fill<'vm>(
        &'vm self,
        inside: InSection<'_>,
        (id, index): (ObjectId, u64),
        slot: PageSlot<'_>,
        order: Order,
    ) -> Result<LargeFill<'vm, M>, LostFill> {
        slot.claim(order)?;
        Ok(LargeFill { object: self.object_keep_found(inside, id), index, order })
    }

    /// Whether a folio around that page may be put in. In a section the answer stays good.
    fn has_room(&self, id: ObjectId, index: u64, order: Order) -> bool {
        let nr_pages = self.object_nr_pages(id);
        let is_least = order == self.object_orders(id).least();
        index < nr_pages && (is_least || around(index, order).end <= nr_pages)
    }
}

impl<M: Machine> LargeFill<'_, M> {
    /// Obtains frames of zeroes, and puts them in; they go back if the object has become too small.
    ///
    /// # Errors
    ///
    /// [`FillRefusal`]; the place is empty.
    pub(crate) fn finish(self) -> Result<(), FillRefusal> {
        let LargeFill { object, index, order } = &self;
        let (links, order) = (object.links(), *order);
        let first = around(*index, order).start;
        let sub_page = (index - first) as u32;
        let found = if order > links.object_orders(object.id).least() {
            links.obtain_folio_if_found(order, sub_page).map_err(|_| FillRefusal::Smaller(order))
        } else {
            links.obtain_folio(order, sub_page).map_err(FillRefusal::OutOfFrames)
        };
        let (pfn, held) = found.inspect_err(|_| self.empty())?;
        // In use: nobody waits for frames until this page is zero.
        drop(held);
        links.zero_blocks(pfn, order, sub_page.into());
        links.make_folio(pfn, order, object.id.0, first);
        let is_in = links.with_slot(object, *index, |slot| {
            let has_room = links.has_room(object.id, *index, order);
            if has_room {
                slot.put(pfn, order)
            } else {
                slot.empty_all(order)
            }
            has_room
        });
        debug_assert!(is_in.is_some(), "I45: a word that is claimed stays what it is");
        if is_in != Some(true) {
            // Nobody has seen it.
            links.give_back_page(pfn);
        }
        Ok(())
    }

    fn empty(&self) {
        let emptied = self.object.links().with_slot(&self.object, self.index, |slot| slot.empty_all(self.order));
        debug_assert!(emptied.is_some(), "I45: a word that is claimed stays what it is");
    }
}

#[cfg(test)]
#[path = "fill_large_tests.rs"]
mod tests;
