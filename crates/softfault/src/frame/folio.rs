//! The folio that fills a block: what a huge fault writes in place of 512
//! descriptors.
//!
//! ```text
//! state  kind 0..4 (0: no folio) | DERIVED 4 | PINNED 5 | LOCK 6 | maps 8..64
//! owner, index   as in a descriptor, of the first frame
//! ```
//! `maps` counts huge entries. While there is one, the descriptors of the
//! sub-frames say nothing but pins. The first split of an entry *derives* them:
//! from then on each sub-frame counts its own entries, and one for the folio as
//! long as a huge entry is left. When the last one goes the folio dissolves, its
//! one is dropped everywhere, and what nobody maps or pins is free. So no split
//! can fail, whatever pins are held, and part of a huge page that is unmapped is
//! free at once: there is no queue of splits to come.
//!
//! | change | by |
//! | --- | --- |
//! | one more huge entry | fork, under the lock bit of one that there is |
//! | one less, the page unmapped | removal, after the grace period |
//! | one less, its frames mapped one by one | whoever splits, owning the entry |
//!
//! Locks on entry: none, no section. LOCK is held for a pass over descriptors,
//! and nothing is taken under it.

use super::desc::{FrameKind, MAP_ONE, MAPS_LIMIT, MapsFull};
use super::{FrameDesc, Frames, FreeBatch, Memory};
use crate::addr::Pfn;
use crate::machine::{Machine, Tick};
use crate::sync::{Ordering, Word};
use crate::table::format::huge_order;

const DERIVED: u64 = 1 << 4;
const PINNED: u64 = 1 << 5;
const LOCK: u64 = 1 << 6;

/// In the first line of a block.
#[repr(C)]
pub(crate) struct FolioData {
    pub(crate) state: Word,
    pub(crate) owner: Word,
    pub(crate) index: Word,
    /// Its first frame: that of the block, unless a format's huge pages are smaller.
    pub(crate) first: Word,
    /// Round of compaction in which the block was tried in vain, + 1.
    pub(crate) passed_over: Word,
    pub(crate) pad: [Word; 2],
}

/// The first word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FolioState(u64);

impl FolioState {
    /// What the folio is used for; `Free` is no folio, `Reserved` one that is in
    /// somebody's hand.
    pub(crate) fn kind(self) -> FrameKind {
        FrameKind::of(self.0)
    }
    /// Number of huge entries that name it.
    pub(crate) fn nr_maps(self) -> u64 {
        self.0 / MAP_ONE
    }
    /// Whether the descriptors of its frames speak for themselves.
    pub(crate) fn is_derived(self) -> bool {
        self.0 & DERIVED != 0
    }
    /// Whether one of its frames was ever pinned.
    pub(crate) fn was_pinned(self) -> bool {
        self.0 & PINNED != 0
    }
    /// Whether a pass over its descriptors is under way.
    pub(crate) fn is_locked(self) -> bool {
        self.0 & LOCK != 0
    }
}

impl FolioData {
    pub(crate) fn state(&self) -> FolioState {
        FolioState(self.state.load(Ordering::Acquire))
    }

    /// In the block of frames that are the caller's alone; `false` where the block
    /// has a folio already (a format whose huge pages are smaller than a block).
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

    /// Makes one that is the caller's alone into something with one huge entry;
    /// visible with that entry, whose store releases.
    pub(crate) fn assign(&self, kind: FrameKind, owner: u64, index: u64) {
        self.owner.set(owner);
        self.index.set(index);
        self.state.set(kind as u64 | MAP_ONE);
    }

    /// The same back: the entry was not made.
    pub(crate) fn unassign(&self) {
        self.state.set(FrameKind::Reserved as u64);
    }

    /// Before the first pin of one of its frames is counted, in the section in
    /// which a huge entry was seen to name it. Nothing to say of one that has
    /// dissolved since: its descriptors are derived by additions.
    pub(crate) fn note_pin(&self) {
        let mut seen = self.state.load(Ordering::Relaxed);
        while seen & PINNED == 0 && FolioState(seen).kind() == FrameKind::Anon {
            match self.state.compare_exchange(seen, seen | PINNED, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    fn lock<M: Machine>(&self, machine: &M) -> FolioState {
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

    /// One entry less, the descriptors derived, the lock dropped. A pin may be
    /// noted meanwhile, so nothing is stored blindly.
    fn unlock_with_one_less(&self) {
        self.state.fetch_or(DERIVED, Ordering::Relaxed);
        self.state.fetch_sub(MAP_ONE + LOCK, Ordering::Release);
    }

    /// No folio any more; its frames are for themselves from now on. An exchange:
    /// a pin may be noted at this very moment, which loom does not order against a
    /// plain store.
    fn dissolve(&self) {
        self.state.swap(FrameKind::Free as u64, Ordering::AcqRel);
    }
}

impl FrameDesc {
    /// Makes the descriptor of a sub-frame speak for itself. Pins come and go
    /// meanwhile, so the word is added to.
    fn derive(&self, owner: u64, index: u64, maps: u64) {
        self.owner.set(owner);
        self.index.set(index);
        self.state.fetch_add(FrameKind::Anon as u64 + maps * MAP_ONE, Ordering::AcqRel);
    }
}

impl<M: Machine> Memory<M> {
    /// Frames that a huge entry maps.
    pub(crate) const NR_SUB_FRAMES: u64 = huge_order::<M::Format>().nr_pages();

    /// Answers nobody: most users have LOCK, an entry's lock bit or a section. Two
    /// descriptors, a line, are one step.
    fn sub_frames(&self, first: Pfn) -> impl Iterator<Item = (u64, Pfn)> {
        (0..Self::NR_SUB_FRAMES).map(move |i| {
            if i.is_multiple_of(2) {
                self.machine.tick(Tick::Step);
            }
            (i, Pfn(first.0 + i as u32))
        })
    }

    /// Whether exactly one entry, a huge one, maps anything of it. Decided under
    /// the lock bit of that entry, without which no other can come.
    pub(crate) fn folio_is_exclusive(&self, first: Pfn) -> bool {
        let state = self.frames.folio(first).state();
        if state.kind() != FrameKind::Anon || state.nr_maps() != 1 || state.is_locked() {
            return false;
        }
        // Others may have split theirs and gone: then nothing but the folio's own
        // one is left of it.
        !state.is_derived() || self.sub_frames(first).all(|(_, pfn)| self.frames.desc(pfn).state().nr_maps() == 1)
    }

    /// Whether a frame of it is pinned. The caller has the lock bit of the only
    /// entry, as the one who pins has (or will find its entry changed): both change
    /// the words that they look at, so one of them comes second and sees the other
    /// (I23).
    pub(crate) fn folio_has_pins(&self, first: Pfn) -> bool {
        FolioState(self.frames.folio(first).state.fetch_or(0, Ordering::AcqRel)).was_pinned()
            && self.sub_frames(first).any(|(_, pfn)| self.frames.desc(pfn).has_pins_now())
    }

    /// Which of its frames are pinned, a bit each. The caller owns the only entry, and
    /// every section that saw it has ended, so that no pin comes. Each word is read by
    /// a read-modify-write: what was written through a pin that is not counted any
    /// more is seen afterwards (I23).
    pub(crate) fn folio_pins(&self, first: Pfn) -> [u64; 8] {
        let mut pinned = [0; 8];
        let folio = self.frames.folio(first);
        let noted = FolioState(folio.state.fetch_or(0, Ordering::AcqRel));
        if noted.was_pinned() {
            for (i, pfn) in self.sub_frames(first) {
                pinned[i as usize / 64] |= u64::from(self.frames.desc(pfn).has_pins_now()) << (i % 64);
            }
        }
        pinned
    }

    /// One more huge entry names it. The caller has the lock bit of an entry that
    /// does, so that the folio stays one.
    pub(crate) fn folio_map_raise(&self, first: Pfn) -> Result<(), MapsFull> {
        let folio = self.frames.folio(first);
        loop {
            let seen = folio.state();
            if seen.nr_maps() >= MAPS_LIMIT {
                return Err(MapsFull);
            }
            if seen.is_locked() {
                self.machine.relax();
            } else if folio
                .state
                .compare_exchange(seen.0, seen.0 + MAP_ONE, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return Ok(());
            }
        }
    }

    /// A huge entry is gone, and every section that saw it has ended. Frames that
    /// nobody has any more go to `batch`, or back as a whole.
    pub(crate) fn folio_map_drop(&self, first: Pfn, batch: &mut FreeBatch<'_>) {
        let folio = self.frames.folio(first);
        loop {
            let seen = folio.state();
            debug_assert!(seen.nr_maps() > 0, "I26: a folio is mapped as long as it is one");
            if seen.is_locked() {
                self.machine.relax();
                continue;
            }
            if seen.nr_maps() == 1 && (seen.is_derived() || seen.was_pinned()) {
                if self.folio_dissolve(first, batch) {
                    return;
                }
                continue;
            }
            let last = seen.nr_maps() == 1;
            let to = if last { FrameKind::Reserved as u64 } else { seen.0 - MAP_ONE };
            if folio.state.compare_exchange(seen.0, to, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                if last {
                    self.give_back_huge(first, false);
                }
                return;
            }
        }
    }

    /// The last huge entry is gone, and some frames have entries or pins of their
    /// own. `false` if there are other huge entries after all.
    fn folio_dissolve(&self, first: Pfn, batch: &mut FreeBatch<'_>) -> bool {
        let folio = self.frames.folio(first);
        let state = folio.lock(&self.machine);
        if state.nr_maps() != 1 {
            folio.state.fetch_and(!LOCK, Ordering::Release);
            return false;
        }
        if !state.is_derived() {
            let (owner, index) = (folio.owner.get(), folio.index.get());
            self.sub_frames(first).for_each(|(i, pfn)| self.frames.desc(pfn).derive(owner, index + i, 1));
        }
        // Before the first frame can go (I26): it may be a small page of somebody else
        // next, and a block that is all free must take a new folio.
        folio.dissolve();
        crate::pace::answer(&self.machine);
        for (_, pfn) in self.sub_frames(first) {
            if self.frames.desc(pfn).map_drop() {
                batch.add(pfn);
            }
        }
        true
    }

    /// The counts of a split of one huge entry, which the caller owns: each frame
    /// gets an entry of its own for it. Whether the folio has dissolved
    /// (`folio_split`). Neither fails nor allocates.
    pub(crate) fn folio_deal_out(&self, first: Pfn) -> bool {
        let folio = self.frames.folio(first);
        let state = folio.lock(&self.machine);
        let last = state.nr_maps() == 1;
        // The folio's one of each frame becomes the entry's, if this is the last.
        let nr_more = u64::from(!last);
        if !state.is_derived() {
            let (owner, index) = (folio.owner.get(), folio.index.get());
            self.sub_frames(first).for_each(|(i, pfn)| self.frames.desc(pfn).derive(owner, index + i, 1 + nr_more));
        } else if !last {
            self.sub_frames(first).for_each(|(_, pfn)| self.frames.desc(pfn).map_raise_split());
        }
        if last {
            folio.dissolve();
        } else {
            folio.unlock_with_one_less();
        }
        last
    }
}

impl<M: Machine> Memory<M> {
    /// Mappings of a page above which no more are made: fork copies the page, and a
    /// fault on a page of an object fails.
    pub const MAX_MAPPINGS: u64 = MAPS_LIMIT;

    /// Whether the frame lies in the folio of its block, if there is one.
    pub(crate) fn is_part(&self, pfn: Pfn) -> bool {
        u64::from(pfn.0.wrapping_sub(self.frames.folio(pfn).first().0)) < Self::NR_SUB_FRAMES
    }
}

impl Frames {
    /// The folio of the block that the frame lies in.
    #[inline]
    pub(crate) fn folio(&self, pfn: Pfn) -> &FolioData {
        &self.blocks.at((u64::from(pfn.0) / super::BLOCK_FRAMES) as usize).folio
    }
}
