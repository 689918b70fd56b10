//! The folio that fills a block: one head that a huge fault writes instead of 512 descriptors.
//!
//! ```text
//! state  kind 0..4 (0: no folio) | DERIVED 4 | PINNED 5 | LOCK 6 | maps 8..64
//! owner, index   as in a descriptor, of the first frame
//! ```
//! `maps` counts huge entries. Before the first split the descriptors of the sub-frames only count
//! pins. The first split of an entry *derives* them: from then on each sub-frame counts its own
//! entries, plus one for the folio while there is a huge entry. When the last huge entry is removed
//! the folio dissolves: that one is dropped everywhere, and frames that nobody maps or pins are
//! freed. So no split can fail, whatever is pinned, and unmapped parts of a huge page are freed at
//! once: there is no deferred split queue.
//!
//! | change | by |
//! | --- | --- |
//! | one more huge entry | fork, under the lock bit of one that there is |
//! | one less, the page unmapped | removal, after the grace period |
//! | one less, its frames mapped one by one | the CPU that splits, owning the entry |
//!
//! Locks on entry: none, no section. LOCK is held for a pass over descriptors, and no other lock is
//! taken under it.

use super::desc::{FrameKind, MAP_ONE};
use super::desc_frames::DescFrames;
use crate::addr::Pfn;
use crate::machine::Machine;
use crate::sync::{Ordering, Word};

pub(super) const DERIVED: u64 = 1 << 4;
pub(super) const PINNED: u64 = 1 << 5;
pub(super) const LOCK: u64 = 1 << 6;

/// With the last word of `used`, the second line of a block.
#[repr(C)]
pub(crate) struct FolioData {
    pub(crate) state: Word,
    pub(crate) owner: Word,
    pub(crate) index: Word,
    /// Its first frame: that of the block, unless a format's huge pages are smaller.
    pub(crate) first: Word,
    /// Round of compaction in which the block was tried without success, + 1.
    pub(crate) passed_over: Word,
    /// The frames of the block's descriptors that are not in the memory section's place.
    pub(crate) descs: DescFrames,
}

/// The first word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FolioState(pub(super) u64);

impl FolioState {
    /// The folio's use; `Free` is no folio, `Reserved` one that its allocator still
    /// owns.
    pub(crate) fn kind(self) -> FrameKind {
        FrameKind::of(self.0)
    }
    /// Number of huge entries that name it.
    pub(crate) fn nr_maps(self) -> u64 {
        self.0 / MAP_ONE
    }
    /// Whether the descriptors of its frames count for themselves.
    pub(crate) fn is_derived(self) -> bool {
        self.0 & DERIVED != 0
    }
    /// Whether one of its frames was ever pinned.
    pub(crate) fn was_pinned(self) -> bool {
        self.0 & PINNED != 0
    }
    /// Whether a pass over its descriptors is in progress.
    pub(crate) fn is_locked(self) -> bool {
        self.0 & LOCK != 0
    }
}

impl FolioData {
    /// Makes the data of a block without a folio.
    pub(super) const fn none() -> FolioData {
        let [state, owner, index, first, passed_over] = [const { Word::new(0) }; 5];
        FolioData { state, owner, index, first, passed_over, descs: DescFrames::none() }
    }
    /// Whether nobody has written it.
    pub(super) fn is_none(&self) -> bool {
        [&self.state, &self.owner, &self.index, &self.first, &self.passed_over].iter().all(|word| word.get() == 0)
            && self.descs.is_none()
    }
    pub(crate) fn state(&self) -> FolioState {
        FolioState(self.state.load(Ordering::Acquire))
    }

    /// Reserves the block's folio, for frames that the caller owns alone; `false` if the block has
    /// a folio already (a format whose huge pages are smaller than a block).
    pub(crate) fn reserve(&self, first: Pfn) -> bool {
        let to = FrameKind::Reserved as u64;
        let done = self.state.compare_exchange(0, to, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if done {
            self.first.set(u64::from(first.0));
        }
        done
    }

    /// The first frame.
    pub(crate) fn first(&self) -> Pfn {
        Pfn(self.first.get() as u32)
    }

    /// Gives a folio that the caller owns alone an owner and one huge entry. The store of that
    /// entry publishes this.
    pub(crate) fn assign(&self, kind: FrameKind, owner: u64, index: u64) {
        self.owner.set(owner);
        self.index.set(index);
        self.state.set(kind as u64 | MAP_ONE);
    }

    /// Undoes `assign`: the entry was not made.
    pub(crate) fn unassign(&self) {
        self.state.set(FrameKind::Reserved as u64);
    }

    /// Sets PINNED before the first pin of one of its frames is counted, in the section in which a
    /// huge entry was seen to name it. Not needed if it has dissolved since: its descriptors are
    /// derived by additions.
    pub(crate) fn note_pin(&self) {
        let mut seen = self.state.load(Ordering::Relaxed);
        while seen & PINNED == 0 && FolioState(seen).kind() == FrameKind::Anon {
            match self.state.compare_exchange(seen, seen | PINNED, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    pub(super) fn lock<M: Machine>(&self, machine: &M) -> FolioState {
        loop {
            let seen = self.state.load(Ordering::Relaxed);
            if seen & LOCK == 0
                && self.state.compare_exchange(seen, seen | LOCK, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return FolioState(seen);
            }
            machine.relax();
        }
    }

    /// Lowers the count, sets DERIVED and drops LOCK, by read-modify-writes: a pin may be recorded
    /// meanwhile.
    pub(super) fn unlock_with_one_less(&self) {
        self.state.fetch_or(DERIVED, Ordering::Relaxed);
        self.state.fetch_sub(MAP_ONE + LOCK, Ordering::Release);
    }

    /// Ends the folio; its frames count for themselves from now on. An exchange: a pin may be
    /// recorded at this moment, which loom does not order against a plain store.
    pub(super) fn dissolve(&self) {
        self.state.swap(FrameKind::Free as u64, Ordering::AcqRel);
    }
}
