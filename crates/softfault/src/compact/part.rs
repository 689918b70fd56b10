//! Moves a part of a folio of an object, if there are no frames for the whole folio.
//!
//! ```text
//! the object's `resize`
//! nodes if the folio is one word; frames for a smaller folio       may fail
//! mark, grace, unmap; pins are final                               as for a split: split.rs
//! copy the part ─▶ heads of what stays, in place, and of the part ─▶ words     source/part.rs
//! ```
//! The frame becomes free, and the folio becomes several. Compaction does not do this: it makes large pages,
//! and would gain nothing by cutting others.
//!
//! `resize` is held so that no remover finds a word that is being replaced by a node. It is taken before frames
//! are obtained: its holder may wait for all holders of frames (I28). Nothing is marked while frames are obtained.
//!
//! Locks on entry: none, no section, no frames held. Takes the object's `resize`.

use super::MigrateRefusal;
use super::moves::Move;
use crate::account::Event;
use crate::addr::{Order, Pfn};
use crate::frame::{Content, Fill, Held};
use crate::lock::lock_word;
use crate::machine::{LockKind, Machine};
use crate::notify::notice::Why;
use crate::source::part::{Goes, Part};
use crate::source::slot::PageFrame;
use crate::space::Vm;
use crate::space::reclaim::FrameRefusal;

impl<M: Machine> Vm<M> {
    /// Moves the largest part of the folio that contains `pfn` and for which there are frames. Returns the new
    /// frame of that page.
    pub(super) fn migrate_part(
        &self,
        pfn: Pfn,
        head: PageFrame,
        fill: Fill,
        nr_mappings_max: u64,
    ) -> Result<Pfn, MigrateRefusal> {
        let (object, page) = self.object_of(head.pfn).ok_or(MigrateRefusal::Raced)?;
        let least = self.object_orders(object.id).least();
        if least >= head.order {
            // One of 1 GiB was not to move as a whole.
            let is_movable = head.order <= Order::PMD;
            return Err(if is_movable { MigrateRefusal::NoTarget } else { MigrateRefusal::CannotSplit });
        }
        let _resize = lock_word(LockKind::ObjectResize, &self.object(object.id).resize, &self.machine);
        let mut nodes = self.object_split_nodes(object.id, head.order, least).map_err(MigrateRefusal::of)?;
        let (PageFrame { pfn: to, order }, _held) = self.obtain_part(head.order, least, fill)?;
        let from = PageFrame { pfn, order }.head();
        let part = Move { from, to, order };
        let moved = self.mark_and_unmap((&object, page), head, nr_mappings_max, Why::Migrate).and_then(|()| {
            self.copy_pages(part).inspect_err(|_| self.object_end_move(&object, page, head))?;
            let part = Part { page: page + u64::from(from.0 - head.pfn.0), order, to: Goes::To(to) };
            self.object_end_part(&object, page, head, part, &mut nodes);
            Ok(())
        });
        let event = if moved.is_ok() { Event::PgmigrateSuccess } else { Event::PgmigrateFail };
        self.count(event, order.nr_pages());
        let (left, fill) = if moved.is_ok() { (from, Fill::Raw) } else { (to, fill) };
        match order {
            Order::BASE => self.give_back(left, fill),
            order => self.release_run(left, order.nr_pages(), Content::Unknown),
        }
        moved?;
        self.count(Event::FolioMovedInPart, 1);
        Ok(Pfn(to.0 + (pfn.0 - from.0)))
    }

    /// Obtains frames for the largest possible part of a folio, of the least order or more. Waits for frames of
    /// the least order only.
    fn obtain_part(&self, whole: Order, least: Order, fill: Fill) -> Result<(PageFrame, Held<'_>), MigrateRefusal> {
        let mut refusal = MigrateRefusal::NoTarget;
        for order in (least.0..whole.0.min(Order::PMD.0 + 1)).rev().map(Order) {
            let found = match (order, fill) {
                (Order::BASE, fill) => self.obtain_held(fill),
                (order, Fill::Pinned) => self.obtain_folio_set_apart(order),
                (order, _) if order == least => self.obtain_folio_to_fill(order),
                (order, _) => self.obtain_folio_to_fill_if_found(order),
            };
            match found {
                Ok((pfn, held)) => return Ok((PageFrame { pfn, order }, held)),
                Err(refused) => refusal = MigrateRefusal::of(refused),
            }
        }
        Err(refusal)
    }
}
