//! A page of a pool that is private memory: its head's descriptor counts entries and pins, as that of a small page.
//!
//! ```text
//! n entries   n - 1 claims to pages of the pool: each entry but the last can be given a page of its own
//! share       a claim, then one entry more; no claim, no entry; pinned: the claim is the copy's   fork
//! copy        one entry less, COPIED set: the claim is the copier's    ─▶ ... ─▶ COPIED clear
//! drop        one entry less: its claim ends, or stays with the mapping; the last one frees
//! ```
//! So a store to a shared page is never refused its page. While a fault reads the frames for its copy (COPIED), it has no entry
//! of them any more: the owner of the last one neither drops it nor stores through it until then.
//!
//! | change | by | from |
//! | --- | --- | --- |
//! | one entry | the fault that owns the entry, which is `Busy` | a page of the pool, the caller's alone |
//! | one more | fork, under the lock bit of an entry that there is | one or more |
//! | one less, and COPIED | a fault that owns an entry | two or more, not COPIED |
//! | not COPIED | that fault | COPIED |
//! | one more, then not COPIED | that fault, if the page cannot be read | COPIED |
//! | one less | a removal, after the grace period | one or more |
//!
//! Locks on entry: none, no section, unless a function says so.

use super::desc::{FrameKind, FrameState, MAP_ONE, MAPPED, MapsFull};
use super::{Claim, FrameDesc, Memory, PoolId};
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
    /// Another fault copies it.
    UnderWay,
}

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

    /// A fault that owns an entry gives it up for a copy: the frames stay until [`end_copy_of`](Memory::end_copy_of), and
    /// the claim of the entry is the caller's.
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

    /// One entry more. The caller has a claim to a page for it, and the lock bit of an entry.
    ///
    /// # Errors
    ///
    /// [`NoShare`]; the claim is still the caller's, for a copy.
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
    pub(crate) fn drop_pool_page(&self, first: Pfn, then: Claim) -> bool {
        let (desc, subpool) = (self.frames.desc(first), self.subpool_of(first));
        let pool = self.pool_of_page(first);
        let mut seen = desc.state();
        loop {
            debug_assert!(seen.nr_maps() > 0, "I59: an entry is counted");
            if seen.nr_maps() == 1 && seen.is_copied() {
                // The copier waits for sections only.
                self.machine.relax();
                seen = desc.state();
                continue;
            }
            match desc.state.compare_exchange(seen.0, seen.0 - MAP_ONE, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => seen = FrameState(now),
            }
        }
        if seen.nr_maps() > 1 {
            // One of the claims of the page becomes that of the place, or nobody's.
            if then == Claim::Nothing {
                self.unreserve_in(subpool, pool, 1);
            }
            return true;
        }
        if seen.pins() > 0 {
            // The last pin frees it.
            return then == Claim::Nothing || self.reserve_in(subpool, pool, 1).is_ok();
        }
        self.free_pool_page(first, then);
        true
    }

    /// The copy is made: other entries of the page may be dropped, or be stored through, again.
    pub(crate) fn end_copy_of(&self, first: Pfn) {
        self.frames.desc(first).state.fetch_and(!COPIED, Ordering::AcqRel);
    }

    /// The copy is not made: the entry that the fault gave up is one again, and the claim is that of its place.
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
