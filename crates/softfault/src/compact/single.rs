//! Moves one page of any kind.
//!
//! Locks on entry: none, no section.

use super::MigrateRefusal;
use super::migrate::Migration;
use super::moves::{Movable, Move, nobody_is_told};
use super::object::ObjectMoves;
use super::subscribed::SubscribedMoves;
use crate::addr::{Order, Pfn};
use crate::frame::{Content, Fill};
use crate::machine::Machine;
use crate::pace::Steps;
use crate::source::slot::PageFrame;
use crate::space::Vm;
use crate::space::reclaim::FrameRefusal;

/// Most mappings of an object whose page is moved for a long-term pin. A guess: all of them lose their
/// entries of the page.
const MOST_MAPPINGS_TO_PIN: u64 = 16;

impl<M: Machine> Vm<M> {
    /// Moves one page to another frame and returns the new frame. Any space may map the page; programs
    /// do not notice the move. A page of a larger folio of an object moves with the folio, to adjacent
    /// frames. If there are no frames for the whole folio, or it is of 1 GiB, it is split, unless it has the
    /// least size of its object: the largest part for which there are frames moves, and the others stay in place.
    ///
    /// A page of a pool of huge pages moves as a whole, also while it is free in the pool, and no count of the pool changes: the
    /// other one comes from free memory, and the page goes there.
    ///
    /// For taking a frame out of service, and for tests. Memory is reclaimed for the new frame, since
    /// the caller wants this page moved. Compaction does not use this: it reclaims nothing and finds its
    /// own frames (`Targets`).
    ///
    /// # Errors
    ///
    /// [`MigrateRefusal`]; the page has not moved.
    pub fn migrate_frame(&self, pfn: Pfn) -> Result<Pfn, MigrateRefusal> {
        self.assert_outside();
        self.call();
        let moved = self.with_reclaim(&mut || self.try_migrate_frame(pfn, Fill::Raw, u64::MAX));
        if let Err(refusal) = moved {
            self.count(refusal.event(), 1);
        }
        moved
    }

    /// Moves the page of a frame to a block of pages with long-term pins: see
    /// [`Reclaim`](crate::space::vm::Reclaim). Memory is not reclaimed for it, since the page can be
    /// pinned in place.
    pub(crate) fn set_apart(&self, pfn: Pfn) -> bool {
        let moved = self.try_migrate_frame(pfn, Fill::Pinned, MOST_MAPPINGS_TO_PIN);
        if let Err(refusal) = moved {
            self.count(refusal.event(), 1);
        }
        moved.is_ok()
    }

    /// Does so without a reclaim. Counts no refusal.
    pub(super) fn try_migrate_frame(&self, pfn: Pfn, fill: Fill, most_mappings: u64) -> Result<Pfn, MigrateRefusal> {
        let kind = match self.check_movable(pfn) {
            // A pinned page of a pool keeps no block from becoming a huge page.
            Err(MigrateRefusal::Hugetlb) if fill == Fill::Raw => return self.migrate_pool_page(pfn),
            kind => kind?,
        };
        if let Movable::OfObject { head, order } = kind
            && order > Order::BASE
        {
            return self.migrate_folio(pfn, PageFrame { pfn: head, order }, fill, most_mappings);
        }
        // The frame first: no waiting for frames while entries are Busy or a slot is marked.
        let (to, _held) = self.obtain_held(fill).map_err(MigrateRefusal::of)?;
        let this = Move { from: pfn, to, order: Order::BASE };
        let mut result = Ok(());
        match kind {
            Movable::Private(_) => {
                let (mut migration, mut steps) = (Migration::new(self), Steps::unbounded());
                match migration.add(this, &mut steps, &nobody_is_told) {
                    Ok(()) => migration.finish(&mut |_, done| result = done),
                    Err(MigrateRefusal::Subscribed) => {
                        let mut moves = SubscribedMoves::new(self);
                        moves.waiting.add(this);
                        moves.run(&mut migration, &mut steps, &mut |_, done| result = done);
                    }
                    Err(refusal) => result = Err(refusal),
                }
            }
            Movable::OfObject { .. } => result = self.move_of_object(this, most_mappings),
        }
        if result.is_ok() {
            self.give_back(pfn, Fill::Raw)
        } else {
            self.give_back(to, fill)
        }
        result.map(|()| to)
    }

    /// Moves a folio of several pages of an object, or the part around `pfn` for which there are frames.
    /// Returns the new frame of that page.
    fn migrate_folio(&self, pfn: Pfn, head: PageFrame, fill: Fill, most: u64) -> Result<Pfn, MigrateRefusal> {
        self.restore_to_split(head)?;
        if head.order > Order::PMD {
            return self.migrate_part(pfn, head, fill, most);
        }
        let whole = match (head.order, fill) {
            (order, Fill::Pinned) => self.obtain_folio_set_apart(order),
            (order, _) => self.obtain_folio_to_fill(order),
        };
        let Ok((to, _held)) = whole else { return self.migrate_part(pfn, head, fill, most) };
        let moved = self.move_of_object(Move { from: head.pfn, to, order: head.order }, most);
        let left = if moved.is_ok() { head.pfn } else { to };
        self.release_run(left, head.order.nr_pages(), Content::Unknown);
        moved.map(|()| Pfn(to.0 + (pfn.0 - head.pfn.0)))
    }

    fn move_of_object(&self, this: Move, most_mappings: u64) -> Result<(), MigrateRefusal> {
        let mut moves = ObjectMoves::new(self, most_mappings);
        moves.waiting.add(this);
        let mut result = Ok(());
        moves.run(&mut Steps::unbounded(), &mut |_, done| result = done);
        result
    }
}
