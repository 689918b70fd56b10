//! A page of a pool that is private memory: its head's descriptor counts entries and pins, as that of a small page.
//!
//! ```text
//! share       one entry more, and no claim; pinned: the child needs a copy                         fork
//! copy        one entry less, COPIED set ─▶ a page that is unreserved ─▶ ... ─▶ COPIED clear
//!             none: COPIED clear, one entry more; the *owner* takes the page from the others: `rmap/pool_owner.rs`
//! drop        one entry less; the last one frees
//!             its place keeps a claim: one entry less, COPIED set ─▶ a claim to another page ─▶ COPIED clear; none: as for a copy
//! ```
//! The *owner* of a page is the entry in the mapping that reserves: one at most, since a child's mapping has no reservations. It
//! has used its claim for this page. While a fault reads the frames for its copy (COPIED), it has no entry
//! of them any more: the owner of the last one neither drops it nor stores through it until then.
//!
//! | change | by | from |
//! | --- | --- | --- |
//! | one entry | the fault that owns the entry, which is `Busy` | a page of the pool, the caller's alone |
//! | one more | fork, under the lock bit of an entry that there is | one or more |
//! | one less, and COPIED | a fault that owns an entry, or a removal whose place keeps a claim | two or more, not COPIED |
//! | not COPIED | the same | COPIED |
//! | one more, then not COPIED | the same, if the pool has no page for the copy, or the page cannot be read | COPIED |
//! | one less | a removal, after the grace period | one or more |
//!
//! Locks on entry: none, no section, unless a function says so.

use super::desc::{FrameKind, FrameState, MAP_ONE, MAPPED, MapsFull};
use super::{Claim, FrameDesc, Memory, PoolId, SubpoolId};
use crate::addr::Pfn;
use crate::machine::Machine;
use crate::sync::Ordering;

/// Of a private page of a pool: a fault is reading it, for a copy.
const COPIED: u64 = MAPPED;

/// Why a fault does not copy a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoCopy {
    /// It has the only entry.
    Alone,
    /// Another fault copies it, or a removal looks for a page in its place.
    UnderWay,
}

/// The pool has no page for a place that keeps a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoClaim;

/// Why fork does not share a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoShare {
    /// It is pinned.
    Pinned,
    /// It has as many entries as can be counted.
    MapsFull,
}

impl FrameState {
    /// Whether a fault reads the private page of a pool to copy it.
    pub(crate) fn is_copied(self) -> bool {
        self.0 & COPIED != 0
    }
}

impl FrameDesc {
    /// Whether one entry names the private page, and no fault copies it. Decided under that entry's lock bit.
    pub(crate) fn is_sole_of_pool(&self) -> bool {
        let state = self.state();
        state.kind() == FrameKind::Anon && state.nr_maps() == 1 && !state.is_copied()
    }

    /// A fault that owns an entry gives it up for a copy: the frames stay until [`end_copy_of`](Memory::end_copy_of).
    pub(crate) fn begin_copy(&self) -> Result<(), NoCopy> {
        let mut seen = self.state();
        loop {
            match () {
                () if seen.is_copied() => return Err(NoCopy::UnderWay),
                () if seen.nr_maps() == 1 => return Err(NoCopy::Alone),
                () => {}
            }
            let to = (seen.0 - MAP_ONE) | COPIED;
            match self.state.compare_exchange(seen.0, to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(()),
                Err(now) => seen = FrameState(now),
            }
        }
    }
}

impl<M: Machine> Memory<M> {
    /// Makes a page of the pool that the caller owns alone private, with one entry. The store of that entry publishes this.
    pub(crate) fn make_pool_page(&self, pool: PoolId, first: Pfn, family: u64, index: u64) {
        self.set_tails(first, pool.order());
        self.frames.desc(first).assign(FrameKind::Anon, 1, family, index);
    }

    /// One entry more. The caller has the lock bit of an entry.
    ///
    /// # Errors
    ///
    /// [`NoShare`]; nothing has changed.
    pub(crate) fn share_pool_page(&self, first: Pfn) -> Result<(), NoShare> {
        let desc = self.frames.desc(first);
        // A pin changes the word by a read-modify-write, too (I23).
        match desc.map_raise() {
            Ok(before) if before.pins() == 0 => Ok(()),
            Ok(_) => {
                desc.state.fetch_sub(MAP_ONE, Ordering::AcqRel);
                Err(NoShare::Pinned)
            }
            Err(MapsFull) => Err(NoShare::MapsFull),
        }
    }

    /// An entry is gone, and every section that saw it has ended. With `Claim::Reserved` its place keeps a claim to a page;
    /// `false` if it has none: the page stays with its pins, and the pool has no other.
    ///
    /// # Errors
    ///
    /// [`NoClaim`]: the page stays with its other entries, and the pool has no other for the place. Nothing has changed. Never
    /// without a claim.
    pub(crate) fn drop_pool_page(&self, first: Pfn, then: Claim) -> Result<bool, NoClaim> {
        let (desc, subpool) = (self.frames.desc(first), self.subpool_of(first));
        let pool = self.pool_of_page(first);
        let mut seen = desc.state();
        loop {
            debug_assert!(seen.nr_maps() > 0, "I59: an entry is counted");
            match () {
                () if seen.nr_maps() == 1 && seen.is_copied() => {
                    // The copier waits for sections only.
                    self.machine.relax();
                    seen = desc.state();
                    continue;
                }
                () if seen.nr_maps() > 1 && then == Claim::Reserved => {
                    // As for a copy: nobody else asks for a page meanwhile, for want of this one.
                    if desc.begin_copy().is_ok() {
                        return self.claim_in_place_of(first, subpool, pool);
                    }
                    self.machine.relax();
                    seen = desc.state();
                    continue;
                }
                () => {}
            }
            match desc.state.compare_exchange(seen.0, seen.0 - MAP_ONE, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => seen = FrameState(now),
            }
        }
        if seen.nr_maps() > 1 {
            return Ok(true);
        }
        if seen.pins() > 0 {
            // The last pin frees it.
            return Ok(then == Claim::Nothing || self.reserve_in(subpool, pool, 1).is_ok());
        }
        self.free_pool_page(first, then);
        Ok(true)
    }

    /// The caller has given an entry up, as for a copy: its place gets a claim to another page, or the entry is one again.
    fn claim_in_place_of(&self, first: Pfn, subpool: Option<SubpoolId>, pool: PoolId) -> Result<bool, NoClaim> {
        if self.reserve_in(subpool, pool, 1).is_err() {
            self.abandon_copy_of(first);
            return Err(NoClaim);
        }
        self.end_copy_of(first);
        Ok(true)
    }

    /// The copy is made: other entries of the page may be dropped, or be stored through, again.
    pub(crate) fn end_copy_of(&self, first: Pfn) {
        self.frames.desc(first).state.fetch_and(!COPIED, Ordering::AcqRel);
    }

    /// The copy is not made: the entry that the fault gave up is one again.
    pub(crate) fn abandon_copy_of(&self, first: Pfn) {
        // Counted before COPIED goes: the owner of another entry is not alone.
        self.frames.desc(first).state.fetch_add(MAP_ONE, Ordering::AcqRel);
        self.end_copy_of(first);
    }

    /// A private page of a pool that the caller owns alone is free in the pool, with a claim to it or without.
    pub(crate) fn free_pool_page(&self, first: Pfn, then: Claim) {
        let pool = self.pool_of_page(first);
        self.frames.desc(first).clear();
        self.for_each_block(first, pool.order(), &mut |b| self.frames.blocks.at(b).tails.clear_all());
        if then == Claim::Nothing {
            return self.put_in(pool, first);
        }
        // The claim stays counted in it.
        self.forget_subpool(first);
        self.pool_soil(pool, first);
        self.pool_put(pool, first);
    }
}
