//! A folio of 2 MiB or 1 GiB comes to an object: one word, and more to zero than fits in a section.
//!
//! ```text
//! claim    section: the word says FILLING, and keeps the object
//! frames   as they were found; refused: the word is empty again
//! zero     with answers: tails and head, too; nobody sees them yet
//! put      section: the word names the folio if it still lies in the object, else it is empty again
//! ```
//! The place comes before the frames. So of those who want the page one looks for memory and zeroes it. The others
//! wait with nothing held, as for a page that is leaving; they do not find the last GiB taken, and take small
//! pages in its place. The CPU that fills holds no frames while it waits for some, and does not sleep: a refusal is
//! returned, and memory is reclaimed when the word is empty. A remover passes over such a word, and what is put in
//! comes after it. A CPU that makes the object smaller stores the size, and waits for sections: the last look at the
//! size has seen it, or the folio is there when the remover comes.
//!
//! Where the object's pages come from a pool, the claim of the word is the claim of the reservation, too (`reserved.rs`). Such a
//! fill waits for nobody, so the end of the object waits for it, and finds it by the word (`refs.rs`). Others count: they may wait
//! for frames, which those may hold who end the object.
//!
//! Locks on entry: none, no section, unless a function says so.

use super::keep::KeptObject;
use super::slot::{LostFill, PageSlot};
use crate::addr::{Order, Pfn};
use crate::frame::{Claim, OutOfFrames, PoolId, PoolRefusal};
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
    links: &'vm Links<M>,
    id: ObjectId,
    /// `None` of a pool: the word keeps the object, until it says something else.
    _kept: Option<KeptObject<'vm, M>>,
    /// The page that is wanted.
    index: u64,
    order: Order,
    /// The object's claim to a page of its pool.
    claim: Claim,
}

/// Why no folio came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FillRefusal {
    /// There is none of that order. A smaller one will do.
    Smaller(Order),
    /// There is none of the least order.
    OutOfFrames(OutOfFrames),
    /// Nor does the pool, or the subpool, give one without a claim.
    Pool(PoolRefusal),
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
        let claim = slot.claim_reserved()?;
        let is_kept_by_word = self.object_pool(id).is_some();
        let _kept = (!is_kept_by_word).then(|| self.object_keep_found(inside, id));
        Ok(LargeFill { links: self, id, _kept, index, order, claim })
    }

    /// Whether a folio around that page may be put in. In a section the answer stays good.
    fn has_room(&self, id: ObjectId, index: u64, order: Order) -> bool {
        let nr_pages = self.object_nr_pages(id);
        let is_least = order == self.object_orders(id).least();
        index < nr_pages && (is_least || around(index, order).end <= nr_pages)
    }
}

impl<M: Machine> LargeFill<'_, M> {
    /// The pool that the page comes from.
    pub(super) fn pool(&self) -> Option<PoolId> {
        self.links.object_pool(self.id)
    }

    /// Obtains frames of zeroes, and puts them in; they go back if the object has become too small.
    ///
    /// # Errors
    ///
    /// [`FillRefusal`]; the place is empty.
    pub(crate) fn finish(self) -> Result<(), FillRefusal> {
        let LargeFill { links, id, index, order, .. } = self;
        let first = around(index, order).start;
        let pfn = self.obtain((index - first) as u32).inspect_err(|_| self.empty(self.claim))?;
        links.make_folio(pfn, order, id.0, first);
        // The store to the word comes last: the object may end then.
        let is_in = links.with_slot_of(id, index, |slot| {
            let has_room = links.has_room(id, index, order);
            if has_room {
                slot.put(pfn, order);
            }
            has_room
        });
        if is_in != Some(true) {
            // Nobody has seen it. The frames first: a CPU that finds the word empty may want them.
            links.give_back_page(pfn);
            self.empty(Claim::Nothing);
        }
        Ok(())
    }

    /// Frames of zeroes, of which `sub_page` is used first.
    fn obtain(&self, sub_page: u32) -> Result<Pfn, FillRefusal> {
        let LargeFill { links, id, order, .. } = *self;
        if let Some(pool) = links.object_pool(id) {
            let taken = links.take_in(links.object_subpool(id), pool, self.claim);
            let pfn = taken.map_err(FillRefusal::Pool)?;
            links.zero_blocks(pfn, order, sub_page.into());
            return Ok(pfn);
        }
        let found = if order > links.object_orders(id).least() {
            links.obtain_folio_if_found(order, sub_page).map_err(|_| FillRefusal::Smaller(order))
        } else {
            links.obtain_folio(order, sub_page).map_err(FillRefusal::OutOfFrames)
        };
        let (pfn, held) = found?;
        // In use: nobody waits for frames until this page is zero.
        drop(held);
        links.zero_blocks(pfn, order, sub_page.into());
        Ok(pfn)
    }

    fn empty(&self, claim: Claim) {
        let emptied = self.links.with_slot_of(self.id, self.index, |slot| slot.unclaim(claim));
        debug_assert!(emptied.is_some(), "I45: a word that is claimed stays what it is");
    }
}

#[cfg(test)]
#[path = "fill_large_tests.rs"]
mod tests;
