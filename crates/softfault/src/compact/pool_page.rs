//! Moves a page of a pool of huge pages, whatever it is at present, to another page of its size.
//!
//! ```text
//! target      free memory                                                           frame/pool_target.rs
//! object's    mark ─▶ grace ─▶ unmap │ pins? copy ─▶ the target's descriptor ─▶ word           as in object.rs
//! private     subscribers told ─▶ all entries Busy ─▶ shootdown, grace │ pins? copied? copy ─▶ each entry   withdraw.rs
//! free        the target is free in the pool ─▶ this page is taken
//! then        the page that nobody names goes to free memory
//! ```
//! No count of the pool changes, and no claim: see `frame/pool_target.rs`. A private page that a fault copies has one entry less than
//! it has readers; that fault is not waited for.
//!
//! Compaction leaves these pages in place, since a move makes no block free.
//!
//! Locks on entry: none, no section.

use super::MigrateRefusal;
use super::moves::Move;
use super::withdraw::Tell;
use crate::account::Event;
use crate::addr::{BlockId, Order, Pfn};
use crate::frame::{FrameKind, PoolId, PoolTarget};
use crate::machine::Machine;
use crate::notify::notice::Why;
use crate::source::slot::PageFrame;
use crate::space::Vm;
use crate::space::reclaim::FrameRefusal;

/// A page of a pool, as it looks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PageIs {
    Free,
    Used,
}

/// Blocks made in a row that others took first, after which the page stays.
const MOST_LOST: u32 = 4;

impl<M: Machine> Vm<M> {
    /// Moves the page of the pool with that frame. Returns the frame that has its place.
    pub(super) fn migrate_pool_page(&self, pfn: Pfn) -> Result<Pfn, MigrateRefusal> {
        let pool = self.pool_of(pfn).ok_or(MigrateRefusal::Raced)?;
        let order = pool.order();
        let from = Pfn(pfn.0 & !(order.nr_pages() as u32 - 1));
        let looks = self.look_at_pool_page(from, order)?;
        let target = self.obtain_pool_target(pool)?;
        let this = Move { from, to: target.first, order };
        let (left, moved) = match looks {
            PageIs::Free => {
                let left = self.exchange_free(&target, from);
                (left, if left == from { Ok(()) } else { Err(MigrateRefusal::Raced) })
            }
            PageIs::Used => {
                let moved = self.move_used_of_pool(this, &target);
                (if moved.is_ok() { from } else { target.first }, moved)
            }
        };
        // Whoever has found descriptors of the target's tails is over.
        self.grace_everywhere();
        self.finish_target(target, left);
        let event = if moved.is_ok() { Event::PgmigrateSuccess } else { Event::PgmigrateFail };
        self.count(event, order.nr_pages());
        moved.map(|()| Pfn(this.to.0 + (pfn.0 - from.0)))
    }

    /// Looks whether the page may move, before a target is obtained. The move decides.
    pub(super) fn look_at_pool_page(&self, from: Pfn, order: Order) -> Result<PageIs, MigrateRefusal> {
        if self.frames.blocks.at(BlockId::of(from)).is_free_in_pool() {
            return Ok(PageIs::Free);
        }
        let state = self.state_of(from).ok_or(MigrateRefusal::Raced)?;
        match state.kind() {
            FrameKind::Anon | FrameKind::Shared if state.pins() > 0 => Err(MigrateRefusal::Pinned),
            FrameKind::Anon => self.nr_entries_to_take(PageFrame { pfn: from, order }).map(|_| PageIs::Used),
            FrameKind::Shared => Ok(PageIs::Used),
            // On its way between two of them.
            _ => Err(MigrateRefusal::NotInUse),
        }
    }

    fn obtain_pool_target(&self, pool: PoolId) -> Result<PoolTarget<'_>, MigrateRefusal> {
        for _ in 0..MOST_LOST {
            match self.pool_target(pool) {
                Ok(target) => return Ok(target),
                Err(_) if pool.order() == Order::PMD && self.make_huge_for_collapse().is_ok() => {}
                // Not a page that is free in the pool: those who want one meanwhile would be refused.
                Err(refused) => return Err(MigrateRefusal::of(refused)),
            }
        }
        Err(MigrateRefusal::NoTarget)
    }

    fn move_used_of_pool(&self, this: Move, target: &PoolTarget<'_>) -> Result<(), MigrateRefusal> {
        match self.frames.desc(this.from).state().kind() {
            FrameKind::Anon => self.move_private_of_pool(this, target),
            FrameKind::Shared => self.move_shared_of_pool(this, target),
            _ => Err(MigrateRefusal::Raced),
        }
    }

    fn move_shared_of_pool(&self, this: Move, target: &PoolTarget<'_>) -> Result<(), MigrateRefusal> {
        let Move { from, to, order } = this;
        let (object, page) = self.object_of(from).ok_or(MigrateRefusal::Raced)?;
        let in_folio = |pfn| PageFrame { pfn, order };
        let mut moving = [Some(self.mark_page_of(PoolId::of(order), this, (&object, page), u64::MAX)?)];
        self.grace_everywhere();
        self.unmap_moving(&mut moving, Why::Migrate);
        // Final: it has no entry, and nobody makes one.
        let is_pinned = self.frames.desc(from).state().pins() > 0;
        let copied = if is_pinned { Err(MigrateRefusal::Pinned) } else { self.copy_pages(this) };
        if copied.is_ok() {
            self.become_page_of(target, from);
        }
        self.object_end_move(&object, page, in_folio(if copied.is_ok() { to } else { from }));
        if copied.is_ok() {
            self.page_is_left(from, order);
        }
        copied
    }

    fn move_private_of_pool(&self, this: Move, target: &PoolTarget<'_>) -> Result<(), MigrateRefusal> {
        let Move { from, to, order } = this;
        let taken = self.withdraw_private(this.page(), Why::Migrate, Tell::Subscribers)?;
        self.copy_pages(this)?;
        self.become_page_of(target, from);
        taken.move_to(to);
        self.page_is_left(from, order);
        Ok(())
    }
}

#[cfg(all(test, feature = "hugetlb"))]
#[path = "pool_page_tests.rs"]
mod tests;
