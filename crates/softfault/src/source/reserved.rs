//! Reservations of an object of huge pages: which of its missing pages have a claim to a page of the pool.
//!
//! ```text
//! mark      the words of missing pages, or the word of their missing node: FILLING and RESERVED; nodes may be refused
//! claim     as many pages of the pool; may be refused
//! end       RESERVED; or, if something was refused, the words are empty again
//! ```
//! The claim is in the word of the page, or in that of a node which came for this (`node.rs`): a new file has one word to write for 64
//! pages. So a CPU that claims the word for a fault has the reservation, and two mappings
//! of the same page reserve it once. A fault that finds a word that is being reserved waits, as for one that is being
//! filled: otherwise it would need a page of its own, and be refused one that is about to be promised. A reservation that finds
//! a word that is being filled waits, too: the pool may have no page for that fill, and then the page is missing, without a claim.
//!
//! A reservation ends with the page's place: when the object gets smaller, or ends. A hole removes pages that are there, and the
//! claim of such a page was the page. A missing page keeps its claim: a mapping was promised it, and nobody had anything of it to remove.
//!
//! Source: the reserve map of a hugetlbfs file in Linux (Documentation/mm/hugetlbfs_reserv.rst), there a list of ranges.
//!
//! Nodes are obtained before `reserving` is taken: nobody waits for frames under it. So callers that hold frames may wait for it.
//!
//! Locks on entry: none, no section. Takes `reserving`, also under a writer lock, or `resize`.

use super::reserved_nodes::nr_in_node;
use super::reserved_slot::Reserving;
use super::slot::PageSlot;
use crate::addr::{ObjectPages, OptPfn, Pfn};
use crate::frame::{Claim, FrameList, OutOfFrames, PoolId, PoolRefusal, SubpoolId};
use crate::links::Links;
use crate::lock::lock_word;
use crate::machine::{LockKind, Machine};
use crate::pace::Pace;
use crate::policy::folio::around;
use crate::space::vma::ObjectId;
use core::ops::ControlFlow;

/// Why nothing was reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReserveRefusal {
    Pool(PoolRefusal),
    OutOfFrames(OutOfFrames),
}

impl<M: Machine> Links<M> {
    /// The pool that the object's pages come from.
    #[inline]
    pub(crate) fn object_pool(&self, id: ObjectId) -> Option<PoolId> {
        self.object(id).is_hugetlb().then(|| PoolId::of(self.object_orders(id).least()))?
    }

    /// Returns the subpool of an object of huge pages.
    pub(crate) fn object_subpool(&self, id: ObjectId) -> Option<SubpoolId> {
        let data = self.object(id);
        let word = if data.is_hugetlb() { data.file.get() } else { 0 };
        OptPfn::from_word(word).get().map(SubpoolId)
    }

    /// Reserves the missing ones of these pages of an object of huge pages. `frame` obtains frames of zeroes for nodes.
    ///
    /// # Errors
    ///
    /// [`ReserveRefusal`]; no further page is reserved.
    pub(crate) fn reserve_pages(
        &self,
        (id, pool): (ObjectId, PoolId),
        pages: ObjectPages,
        frame: &mut dyn FnMut() -> Result<Pfn, OutOfFrames>,
    ) -> Result<(), ReserveRefusal> {
        let subpool = self.object_subpool(id);
        // Nodes stay, also if the pool has too few pages then.
        let nr_all =
            pages.end.saturating_sub(around(pages.start, pool.order()).start).div_ceil(pool.order().nr_pages());
        self.can_have(subpool, pool, nr_all).map_err(ReserveRefusal::Pool)?;
        let mut spare = self.bring_nodes((id, pool), pages, frame).map_err(ReserveRefusal::OutOfFrames)?;
        let reserving = lock_word(LockKind::Reserving, &self.object(id).reserving, &self.machine);
        self.begin_to_reserve((id, pool), pages, &mut spare);
        let nr = self.nr_reserving((id, pool), pages);
        let claimed = self.reserve_in(subpool, pool, nr).map_err(ReserveRefusal::Pool);
        let claim = if claimed.is_ok() { Claim::Reserved } else { Claim::Nothing };
        self.for_each_word(id, pages, &mut |slot| match slot.node_under_way() {
            Some(pfn) => self.end_reserving_node(slot, pfn, claim),
            None => slot.end_reserving(claim),
        });
        drop(reserving);
        self.give_nodes_back(spare);
        claimed
    }

    /// Marks the words of missing pages, or of their missing nodes. All nodes above those are there, and `spare` has enough of them.
    fn begin_to_reserve(&self, (id, pool): (ObjectId, PoolId), pages: ObjectPages, spare: &mut FrameList) {
        let mut pace = Pace::new(&self.machine);
        let mut index = around(pages.start, pool.order()).start;
        while index < pages.end {
            pace.step();
            let begun = {
                let section = self.section();
                let place = self.object_slot(section.inside(), id, index);
                place.place_of(pool.order()).map(|at| at.begin_reserving())
            };
            index += match begun {
                Some(true) => pool.order().nr_pages(),
                // A fill waits for no CPU.
                Some(false) => {
                    self.machine.relax();
                    0
                }
                None => {
                    let Some(node) = spare.pop(&self.frames) else {
                        debug_assert!(false, "nodes stay: as many are missing as were counted, or fewer");
                        return;
                    };
                    self.add_node((id, pool), index..pages.end, node, spare) * pool.order().nr_pages()
                }
            };
        }
    }

    /// Counts the pages that are being reserved: only by the caller, which holds `reserving`.
    fn nr_reserving(&self, (id, pool): (ObjectId, PoolId), pages: ObjectPages) -> u64 {
        let mut nr = 0;
        let _ = self.for_each_page(id, pages, &mut |index, slot| {
            nr += match slot.node_under_way() {
                Some(_) => nr_in_node(pool.order(), index, pages.end),
                None => u64::from(slot.reserving() == Reserving::UnderWay),
            };
            ControlFlow::Continue(())
        });
        nr
    }

    /// Counts the huge pages there for which a reservation would need a claim: those that are missing, and have none.
    pub(crate) fn nr_unclaimed(&self, (id, pool): (ObjectId, PoolId), pages: ObjectPages) -> u64 {
        if pages.is_empty() {
            return 0;
        }
        // No node is under way then, so that each word is a page.
        let _reserving = lock_word(LockKind::Reserving, &self.object(id).reserving, &self.machine);
        let (start, step) = (around(pages.start, pool.order()).start, pool.order().nr_pages());
        let mut nr = (pages.end - start).div_ceil(step);
        self.for_each_word(id, ObjectPages { start, ..pages }, &mut |_| nr = nr.saturating_sub(1));
        nr
    }

    /// Ends the reservations of these pages, which lie beyond a smaller size, or are of an object that ends.
    pub(crate) fn unreserve_pages(&self, id: ObjectId, pages: ObjectPages) {
        let Some(pool) = self.object_pool(id) else { return };
        // Pages that stay in part keep their reservation.
        let whole = |page: u64| page.checked_next_multiple_of(pool.order().nr_pages()).unwrap_or(u64::MAX);
        let end = if pages.end == ObjectPages::ALL.end { pages.end } else { around(pages.end, pool.order()).start };
        let pages = ObjectPages { start: whole(pages.start), end };
        let _reserving = lock_word(LockKind::Reserving, &self.object(id).reserving, &self.machine);
        let mut nr = 0;
        self.for_each_word(id, pages, &mut |slot| nr += u64::from(slot.begin_unreserving()));
        // Before the words are empty: a fault that finds one so may want the page.
        self.unreserve_in(self.object_subpool(id), pool, nr);
        self.for_each_word(id, pages, &mut |slot| slot.end_reserving(Claim::Nothing));
    }

    /// Counts the reservations of the object. For the checker.
    pub(crate) fn nr_reserved_of(&self, id: ObjectId) -> u64 {
        let mut nr = 0;
        self.for_each_word(id, ObjectPages::ALL, &mut |slot| nr += u64::from(slot.reserving() == Reserving::Done));
        nr
    }

    fn for_each_word(&self, id: ObjectId, pages: ObjectPages, f: &mut dyn FnMut(PageSlot<'_>)) {
        let _ = self.for_each_page(id, pages, &mut |_, slot| {
            f(slot);
            ControlFlow::Continue(())
        });
    }
}
