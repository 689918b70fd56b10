//! Splits a folio of an object in place: no page is copied.
//!
//! ```text
//! descriptors of its tails                                         may fail: they come back first
//! the object's `resize`
//! nodes if the folio is one word: 2 of 1 GiB                       may fail
//! mark, grace, unmap                                               as for a move: object.rs
//! is a pin left? does it lie beyond the end?                       else: as it was
//! heads of the parts ─▶ words, or the nodes                        source/part.rs
//! ```
//! A failure of memory, a swap-out, and a move without frames for the whole folio (`part.rs`) need one page as a folio
//! of its own. The other pages become folios as large as possible, so that later splits of its neighbours are
//! smaller. Programs fault again.
//!
//! `resize` is held so that no remover finds a word that is being replaced by a node. It is taken before nodes are
//! obtained: its holder may wait for all holders of frames (I28). Nothing is marked while nodes are obtained.
//!
//! Locks on entry: none, no section, no frames held. Takes the object's `resize`, where a function says so.

use super::MigrateRefusal;
use super::moves::Move;
use crate::account::Event;
use crate::addr::{BlockId, Order, Pfn};
use crate::lock::lock_word;
use crate::machine::{LockKind, Machine};
use crate::notify::notice::Why;
use crate::source::keep::KeptObject;
use crate::source::part::{Goes, Part};
use crate::source::slot::PageFrame;
use crate::space::Vm;
use crate::space::ops::TailDescsRefusal;
use crate::space::reclaim::FrameRefusal;

impl<M: Machine> Vm<M> {
    /// Splits a page off a larger folio. `first` is the folio's first page. Takes `resize`.
    pub(super) fn split_off(
        &self,
        (object, first): (&KeptObject<'_, M>, u64),
        page: PageFrame,
        why: Why,
    ) -> Result<(), MigrateRefusal> {
        let head = PageFrame { pfn: page.head(), ..page };
        if self.object_orders(object.id).least() > Order::BASE {
            return Err(MigrateRefusal::CannotSplit);
        }
        self.restore_to_split(head)?;
        let _resize = lock_word(LockKind::ObjectResize, &self.object(object.id).resize, &self.machine);
        let mut nodes = self.object_split_nodes(object.id, head.order, Order::BASE).map_err(MigrateRefusal::of)?;
        self.mark_and_unmap((object, first), head, u64::MAX, why)?;
        let part = Part { page: first + u64::from(page.pfn.0 - head.pfn.0), order: Order::BASE, to: Goes::Nowhere };
        self.object_end_part(object, first, head, part, &mut nodes);
        self.count(Event::FoliosSplit, 1);
        Ok(())
    }

    /// Takes a frame whose memory failed out of use, and marks the aligned part of the object's least size around
    /// its page POISONED (`source/fail.rs`). `head` is the folio's. Takes `resize` if the folio has 2 MiB or more.
    pub(super) fn poison_object_page(&self, pfn: Pfn, head: PageFrame) -> Result<(), MigrateRefusal> {
        self.restore_to_split(head)?;
        let (object, first) = self.object_of(head.pfn).ok_or(MigrateRefusal::Raced)?;
        let least = self.object_orders(object.id).least();
        let data = self.object(object.id);
        let _resize =
            (head.order >= Order::PMD).then(|| lock_word(LockKind::ObjectResize, &data.resize, &self.machine));
        let mut nodes = self.object_split_nodes(object.id, head.order, least).map_err(MigrateRefusal::of)?;
        self.mark_and_unmap((&object, first), head, u64::MAX, Why::Poison)?;
        self.object_end_failed(&object, first, head, first + u64::from(pfn.0 - head.pfn.0), &mut nodes);
        self.count(Event::FoliosSplit, u64::from(head.order > least));
        Ok(())
    }

    /// Marks the folio as moving and removes its entries. It has no pins then. On failure the folio is unmarked.
    pub(super) fn mark_and_unmap(
        &self,
        (object, first): (&KeptObject<'_, M>, u64),
        head: PageFrame,
        nr_mappings_max: u64,
        why: Why,
    ) -> Result<(), MigrateRefusal> {
        let all = Move { from: head.pfn, to: head.pfn, order: head.order };
        let mut moving = [Some(self.mark_as_moving(all, (object, first), nr_mappings_max)?)];
        self.grace_everywhere();
        self.unmap_moving(&mut moving, why);
        let refused = self.why_it_stays(head.pfn, head.order).or_else(|| {
            // The rest would become folios of their own, beyond the end of the object.
            (!self.can_lose_a_page(object, first, head.order)).then_some(MigrateRefusal::CannotSplit)
        });
        let Some(refusal) = refused else { return Ok(()) };
        self.object_end_move(object, first, head);
        Err(refusal)
    }

    /// Restores the descriptors of a folio's tails, before anything is marked. They may be freed again
    /// before the folio is marked; `why_it_stays` checks that.
    pub(super) fn restore_to_split(&self, head: PageFrame) -> Result<(), MigrateRefusal> {
        if head.order < Order::PMD || !self.frames.lacks_tail_descs(BlockId::of(head.pfn)) {
            return Ok(());
        }
        let (object, page) = self.object_of(head.pfn).ok_or(MigrateRefusal::Raced)?;
        match self.restore_tail_descs_if_free(object.id, page, head.order) {
            Err(TailDescsRefusal::NoFrames) => Err(MigrateRefusal::NoTarget),
            // The folio has changed; the caller checks the words of the object.
            _ => Ok(()),
        }
    }
}
