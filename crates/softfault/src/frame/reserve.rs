//! The reserve: as many frames as the watermark `min`, which ordinary allocations do not find.
//!
//! A reaction to pressure may need frames to free others. So some are claimed at creation and set
//! aside. The bitmaps and summaries count them as in use, so no search finds them and a refusal is
//! as exact as without them. They are chained by bitmap words, up to 64 frames each: the first
//! frame's descriptor tells which, and where the next word is.
//!
//! Taking and filling needs the [`Pressure`] token, of which each [`Memory`] has one.
//! `space/reclaim.rs` keeps it with the lock of the reaction and lends it to the holder, so the
//! compiler refuses all others. Frames that were taken are freed like any other. The reserve is
//! refilled, from anywhere, when as many frames are free as the watermark `high`. When memory goes, `min` falls: what is
//! more than that is free again. Frames that are set aside in memory that is to go are freed first, and others take their place.
//!
//! Locks on entry: that of the reaction, or none at creation.

use super::class::Class;
use super::desc::{FrameKind, MetaUse};
use super::runs::BLOCK_WORDS;
use super::search::Claim;
use super::summary::Kind;
use super::{Frames, Memory};
use crate::addr::{BlockId, OptPfn, Pfn};
use crate::machine::{FrameRange, Machine};
use crate::pace::Pace;
use crate::sync::{Ordering, Word};

/// The most frames that one reaction sets aside: eight words, which takes less time than reading
/// one huge page.
const FRAMES_PER_REACTION: u64 = 512;

/// The right to take from the reserve, and to fill it.
pub(crate) struct Pressure(());

/// Frames set aside. Only the holder of the [`Pressure`] changes them.
pub(crate) struct Reserve {
    /// First frame of the group that is used next.
    top: Word,
    nr_frames: Word,
    /// How many there should be.
    nr_wanted: Word,
}

impl Reserve {
    pub(crate) fn new(nr_wanted: u64) -> (Reserve, Pressure) {
        (
            Reserve {
                top: Word::new(OptPfn::NONE.to_word()),
                nr_frames: Word::new(0),
                nr_wanted: Word::new(nr_wanted),
            },
            Pressure(()),
        )
    }

    /// Frames in it. Anybody may ask.
    pub(crate) fn nr_frames(&self) -> u64 {
        self.nr_frames.get()
    }

    /// Sets how many there should be. Surplus ones stay until [`free_beyond_min`](Memory::free_beyond_min).
    pub(super) fn want(&self, nr_frames: u64) {
        self.nr_wanted.store(nr_frames, Ordering::Relaxed);
    }

    pub(crate) fn nr_missing(&self) -> u64 {
        self.nr_wanted.load(Ordering::Relaxed).saturating_sub(self.nr_frames())
    }

    fn nr_surplus(&self) -> u64 {
        self.nr_frames().saturating_sub(self.nr_wanted.load(Ordering::Relaxed))
    }
}

impl Frames {
    /// Sets up to `most` of the frames aside that are missing, of one bitmap word; whether
    /// there were any.
    pub(crate) fn set_aside(&self, _: &Pressure, most: u64) -> bool {
        let most = self.reserve.nr_missing().min(most).min(64);
        let Some(Claim { base, mask, .. }) = self.claim_for_reserve(most) else { return false };
        for i in (0..64).filter(|i| mask & 1 << i != 0) {
            self.desc(Pfn((base + i) as u32)).assign(FrameKind::Meta, 0, 0, MetaUse::Reserve as u64);
        }
        let first = Pfn((base + u64::from(mask.trailing_zeros())) as u32);
        self.desc(first).owner.set(mask);
        self.desc(first).link.set(self.reserve.top.get());
        self.reserve.top.set(OptPfn::some(first).to_word());
        self.reserve.nr_frames.set(self.reserve.nr_frames() + u64::from(mask.count_ones()));
        true
    }

    /// Claims frames where other frames stay, from the end of memory.
    fn claim_for_reserve(&self, most: u64) -> Option<Claim> {
        if most == 0 {
            return None;
        }
        let blocks = &self.blocks;
        let mut places =
            [Kind::Fixed, Kind::Room].into_iter().flat_map(|kind| blocks.offering_last(kind, blocks.names()));
        places.find_map(|b| self.claim_marked_in(b, most, Class::Fixed))
    }

    /// Frames in the groups that are chained. For the checker.
    pub(crate) fn nr_in_reserve(&self) -> u64 {
        self.nr_chained(&|_| true)
    }

    /// Frames in those groups whose first frame `is_wanted`.
    pub(crate) fn nr_chained(&self, is_wanted: &dyn Fn(Pfn) -> bool) -> u64 {
        let mut next = OptPfn::from_word(self.reserve.top.get()).get();
        let groups = core::iter::from_fn(|| {
            let first = next?;
            let head = self.desc(first);
            next = OptPfn::from_word(head.link.get()).get();
            Some(if is_wanted(first) { u64::from(head.owner.get().count_ones()) } else { 0 })
        });
        groups.take(1 + self.reserve.nr_frames() as usize).sum()
    }

    /// Takes the frames of a group for which `which` says how many: the highest of them. They are owned by the caller alone, of
    /// the content that their block says. The first group with such frames.
    fn take_some(&self, _: &Pressure, which: &dyn Fn(Pfn, u32) -> u32) -> Option<(Pfn, u64)> {
        let mut before = None;
        let mut next = OptPfn::from_word(self.reserve.top.get()).get();
        while let Some(first) = next {
            let head = self.desc(first);
            let (mask, after) = (head.owner.get(), head.link.get());
            let nr = which(first, mask.count_ones()).min(mask.count_ones());
            if nr == 0 {
                (before, next) = (Some(first), OptPfn::from_word(after).get());
                continue;
            }
            let taken = (nr..mask.count_ones()).fold(mask, |mask, _| mask & mask.wrapping_sub(1));
            if taken == mask {
                let link = before.map_or(&self.reserve.top, |before| &self.desc(before).link);
                link.set(after);
                head.link.set(0);
            } else {
                head.owner.set(mask & !taken);
            }
            let base = Pfn(first.0 & !63);
            (0..64).filter(|i| taken & 1 << i != 0).for_each(|i| self.desc(Pfn(base.0 + i)).clear());
            self.reserve.nr_frames.set(self.reserve.nr_frames() - u64::from(nr));
            return Some((base, taken));
        }
        None
    }

    /// Takes one frame out of the reserve: owned by the caller alone, of any content.
    #[cfg(any(test, feature = "hooks"))] // until the reaction needs frames
    pub(crate) fn take_reserved(&self, pressure: &Pressure) -> Option<Pfn> {
        let (base, taken) = self.take_some(pressure, &|_, _| 1)?;
        Some(Pfn(base.0 + taken.trailing_zeros()))
    }
}

impl<M: Machine> Memory<M> {
    /// Frames set aside for the reaction to pressure. They do not count as free.
    pub fn nr_reserve_pages(&self) -> u64 {
        self.frames.reserve.nr_frames()
    }

    /// Sets some of the frames aside that are missing. Memory does not seem to be short; while
    /// that is not known nothing is set aside.
    pub(crate) fn fill_reserve(&self, pressure: &Pressure) {
        if self.frames.watch.is_recounting() {
            return;
        }
        self.set_aside_again(pressure, self.frames.reserve.nr_missing().min(FRAMES_PER_REACTION));
    }

    /// Sets so many more frames aside, or as many as there are.
    pub(crate) fn set_aside_again(&self, pressure: &Pressure, nr: u64) {
        let most = self.nr_reserve_pages() + nr;
        while self.nr_reserve_pages() < most {
            // Not while an allocation has the last-resort turn: it gets these frames.
            let Some(_held) = self.hold_unless_last_resort() else { return };
            let before = self.nr_reserve_pages();
            if !self.frames.set_aside(pressure, most - before) {
                return;
            }
            self.count_taken(self.nr_reserve_pages() - before);
        }
    }

    /// Frees what is set aside in these frames. Returns how many: as many should be set aside elsewhere
    /// ([`set_aside_again`](Self::set_aside_again)) when nobody gets these any more.
    pub(crate) fn free_set_aside_in(&self, pressure: &Pressure, range: &FrameRange) -> u64 {
        let is_there = |pfn: Pfn| (u64::from(range.first.0)..range.end()).contains(&pfn.0.into());
        self.free_some(pressure, &|first, nr| if is_there(first) { nr } else { 0 })
    }

    /// Frees what is set aside beyond the watermark `min`, which falls when memory goes.
    pub(crate) fn free_beyond_min(&self, pressure: &Pressure) {
        self.free_some(pressure, &|_, _| u32::try_from(self.frames.reserve.nr_surplus()).unwrap_or(u32::MAX));
    }

    fn free_some(&self, pressure: &Pressure, which: &dyn Fn(Pfn, u32) -> u32) -> u64 {
        let mut pace = Pace::new(&self.machine);
        let mut nr_freed = 0;
        while let Some((base, mask)) = self.frames.take_some(pressure, which) {
            pace.step();
            let (b, w) = (BlockId::of(base), base.0 as usize / 64 % BLOCK_WORDS);
            // What is known of their content is what it was.
            self.release_as_known((b, w), mask, self.frames.blocks.at(b).dirty[w].load(Ordering::Relaxed));
            nr_freed += u64::from(mask.count_ones());
        }
        nr_freed
    }
}

#[cfg(test)]
#[path = "reserve_tests.rs"]
mod tests;
