//! The counts of a folio and of its frames.
//!
//! Locks on entry: none, no section, unless a function says so.

use super::desc::{FrameKind, MAP_ONE, MAPS_LIMIT, MapsFull};
use super::folio::{FolioState, LOCK};
use super::{Content, FrameDesc, FreeBatch, Memory};
use crate::addr::Pfn;
use crate::machine::{Machine, Tick};
use crate::sync::Ordering;

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
    /// Answers no other CPU: most users have LOCK, an entry's lock bit or a section. Two
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

    /// Returns a bit for each of its frames that is pinned. The caller owns the only entry, and
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

    /// Counts another huge entry that names it. The caller has the lock bit of an entry
    /// that does, so that the folio stays one.
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

    /// Drops a huge entry, after every section that saw it has ended. Frames without an
    /// owner go to `batch`, or back as a whole.
    pub(crate) fn folio_map_drop(&self, first: Pfn, batch: &mut FreeBatch<'_, M>) {
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
                    self.give_back_huge(first, Content::Unknown);
                }
                return;
            }
        }
    }

    /// The last huge entry is gone, and some frames have entries or pins of their
    /// own. `false` if there are other huge entries after all.
    fn folio_dissolve(&self, first: Pfn, batch: &mut FreeBatch<'_, M>) -> bool {
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
    /// Limit of the mappings of a page: at the limit fork copies the page, and a fault on a page of
    /// an object fails.
    pub const MAX_MAPPINGS: u64 = MAPS_LIMIT;

    /// Whether the frame lies in the folio of its block, if there is one.
    pub(crate) fn is_part(&self, pfn: Pfn) -> bool {
        u64::from(pfn.0.wrapping_sub(self.frames.folio(pfn).first().0)) < Self::NR_SUB_FRAMES
    }
}
