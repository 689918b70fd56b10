//! A page of a pool that takes the place of another one: `compact/pool_page.rs` moves pages to it.
//!
//! ```text
//! obtain   free memory ─▶ in the pool, not counted, without descriptors of its tails
//! ...      the caller: the page is copied, and what named it names the target            or it stays
//! finish   of the two, the one that nobody names: its descriptors come back ─▶ free memory
//! ```
//! One page comes as another one goes, so no count of the pool changes: not the size, not the surplus, no claim, and no subpool.
//! Nor does it take a frame more than the target: its own frames of descriptors become those of the page that goes. Where they
//! cannot (they lie in frames without descriptors), others are obtained before anything has changed. So the end cannot fail.
//!
//! Meanwhile the caller counts as a holder: an allocation that finds too few frames waits for the page that goes. A reservation of
//! surplus pages does not wait, and may miss that memory, as any that is in use.
//!
//! A page that is free in the pool is no target: others who want a page would be refused until it is replaced.
//!
//! Locks on entry: none, no section.

use super::desc::FrameKind;
use super::held::Held;
use super::tail_descs::nr_frames_of_tails;
use super::{FrameList, Memory, OutOfFrames, PoolId};
use crate::addr::{BlockId, Order, Pfn};
use crate::machine::Machine;

/// Where the descriptors of the page that goes come from.
enum Descs {
    /// They were the target's. Open sections may have found them.
    OfTarget(FrameList),
    /// Frames of zeroes.
    Spare(FrameList),
}

/// A page that the caller owns alone. It has to be finished.
#[must_use]
pub(crate) struct PoolTarget<'m> {
    pub(crate) first: Pfn,
    pool: PoolId,
    descs: Descs,
    _held: Held<'m>,
}

impl<M: Machine> Memory<M> {
    /// Obtains a page of free memory. Waits as for one frame.
    ///
    /// # Errors
    ///
    /// There is none, or there are no frames for the descriptors of the page that goes.
    pub(crate) fn pool_target(&self, pool: PoolId) -> Result<PoolTarget<'_>, OutOfFrames> {
        let order = pool.order();
        let (first, _held) = self.pool_bring_held(pool)?;
        let mut former = FrameList::EMPTY;
        let descs = if self.drop_tail_descs_into(first, order, &mut former) {
            Descs::OfTarget(former)
        } else {
            match self.desc_spares_if_free(nr_frames_of_tails(order)) {
                Ok(spares) => Descs::Spare(spares),
                Err(refused) => {
                    let is_gone = self.pool_release(pool, first);
                    debug_assert!(is_gone.is_ok(), "it has its descriptors");
                    return Err(refused);
                }
            }
        };
        Ok(PoolTarget { first, pool, descs, _held })
    }

    /// Makes the target what the page at `from` is: of the same object, or private with so many entries, and of the same subpool.
    /// Nobody names the target yet, and nobody changes the page.
    pub(crate) fn become_page_of(&self, target: &PoolTarget<'_>, from: Pfn) {
        let (old, new) = (self.frames.desc(from), self.frames.desc(target.first));
        self.set_tails(target.first, target.pool.order());
        new.link.set(old.link.get());
        let state = old.state();
        match state.kind() {
            FrameKind::Anon => new.assign(FrameKind::Anon, state.nr_maps(), old.owner.get(), old.index.get()),
            _ => new.assign_moved(old),
        }
        self.frames.carry_age(from, target.first);
    }

    /// Nobody names the page at `from` any more, but the target in its place. Ends what it was.
    pub(crate) fn page_is_left(&self, from: Pfn, order: Order) {
        let desc = self.frames.desc(from);
        desc.link.set(0);
        desc.clear();
        self.for_each_block(from, order, &mut |b| self.frames.blocks.at(b).tails.clear_all());
    }

    /// Puts the target into the pool, free. The caller then owns the page at `wanted`, if that was free, or else some
    /// free one.
    pub(crate) fn exchange_free(&self, target: &PoolTarget<'_>, wanted: Pfn) -> Pfn {
        self.pool_put(target.pool, target.first);
        // There is one more than there are claims, so a page is found.
        if self.pool_take_at(target.pool, wanted) { wanted } else { self.pool_take(target.pool) }
    }

    /// The page that goes is the caller's alone: it was left, or it is the target. The pool has as many pages, and claims,
    /// as before.
    pub(crate) fn finish_target(&self, target: PoolTarget<'_>, left: Pfn) {
        let PoolTarget { pool, descs, _held, .. } = target;
        self.pool_soil(pool, left);
        match descs {
            Descs::OfTarget(former) => self.hand_over_descs(former, left, pool.order()),
            Descs::Spare(mut spares) => {
                if self.frames.lacks_tail_descs(BlockId::of(left)) {
                    self.make_whole(left, pool.order(), &mut spares);
                }
                self.give_back_spares(spares);
            }
        }
        let is_gone = self.pool_release(pool, left);
        debug_assert!(is_gone.is_ok(), "I51: it has its descriptors");
    }
}
