//! Foreign memory: frames that belong to the embedder, which programs read.
//!
//! ```text
//! descriptor   kind Shared, up to date, mapped, referenced, dirty; owner: FOREIGN; index: its own number
//! section      the first descriptor's link: foreign objects that name frames of it
//! ```
//! The flags that a fault or a removal would set are set, so that mapping a foreign frame writes nothing but the entry, and
//! no scan for clean pages takes it. No slot names it, so that nobody moves, drops or swaps it; blocks say that it is in use, so that nobody gets it. Pins
//! are counted as for any frame.
//!
//! Locks on entry: none, no section. Takes the lock of resizes.

use super::{AddMemoryRefusal, RemoveMemoryRefusal, sections_of};
use crate::addr::Pfn;
use crate::frame::desc::{DIRTY, MAPPED, REFERENCED, TOUCHED, UPTODATE};
use crate::frame::lay_out::{REMOVED, first_desc_of};
use crate::frame::mem_sections::{MEM_SECTION_SHIFT, frames_of};
use crate::frame::{FrameDesc, FrameKind, Frames, Memory};
use crate::lock::lock_word;
use crate::machine::{FrameRange, LockKind, Machine, ask};
use crate::pace::Pace;
use crate::sync::Ordering;

/// The owner, which no object's number is.
const FOREIGN: u64 = u64::MAX;

impl<M: Machine> Memory<M> {
    /// Gives descriptors to foreign frames: whole sections of 128 MiB that are not there, of which the machine
    /// says that they can be read ([`Machine::foreign_frames`]). Objects may then name them
    /// ([`Vm::new_foreign_object`](crate::Vm::new_foreign_object)). Takes 1.03 MiB for each section that was never there, and time for each frame.
    ///
    /// # Errors
    ///
    /// [`AddMemoryRefusal`]; nothing has changed then.
    #[cfg(feature = "files")]
    pub fn add_foreign_memory(&self, range: FrameRange) -> Result<(), AddMemoryRefusal> {
        self.assert_outside();
        self.call();
        let added = self.try_add_foreign(&range);
        added.inspect_err(|refusal| self.count(refusal.event(), 1))
    }

    fn try_add_foreign(&self, range: &FrameRange) -> Result<(), AddMemoryRefusal> {
        let sections = sections_of(range).ok_or(AddMemoryRefusal::NotSections)?;
        let _lock = lock_word(LockKind::MemoryResize, &self.frames.resizes, &self.machine);
        self.lay_out_all(range, &sections, &|| ask::foreign_frames(&self.machine, range).then_some(()))?;
        let mut pace = Pace::new(&self.machine);
        for section in sections {
            // The first one last: it says what the section is.
            for frame in (frames_of(section).0..frames_of(section).1).rev() {
                pace.step();
                self.frames.desc(Pfn(frame as u32)).assign_foreign(frame);
            }
        }
        Ok(())
    }

    /// Takes descriptors from foreign frames. Their owner may use them as it likes afterwards.
    ///
    /// # Errors
    ///
    /// [`RemoveMemoryRefusal`]; nothing has changed then. `InUse`: an object names some of them, or a pin.
    #[cfg(feature = "files")]
    pub fn remove_foreign_memory(&self, range: FrameRange) -> Result<(), RemoveMemoryRefusal> {
        self.assert_outside();
        self.call();
        let removed = self.try_remove_foreign(&range);
        removed.inspect_err(|refusal| self.count(refusal.event(), 1))
    }

    fn try_remove_foreign(&self, range: &FrameRange) -> Result<(), RemoveMemoryRefusal> {
        let sections = sections_of(range).ok_or(RemoveMemoryRefusal::NotSections)?;
        let _lock = lock_word(LockKind::MemoryResize, &self.frames.resizes, &self.machine);
        if range.end() > self.nr_frames() || !sections.clone().all(|section| self.frames.is_foreign_section(section)) {
            return Err(RemoveMemoryRefusal::NotThere);
        }
        // Acquire: an object that has ended has no entries left. Pins came through these.
        let nr_objects = |section: usize| self.frames.desc(first_desc_of(section)).link.load(Ordering::Acquire);
        if sections.clone().any(|section| nr_objects(section) != 0) {
            return Err(RemoveMemoryRefusal::InUse);
        }
        let frames = || (range.first.0..).take(range.nr_frames as usize).map(Pfn);
        let mut pace = Pace::new(&self.machine);
        for pfn in frames() {
            pace.step();
            if self.frames.desc(pfn).state().pins() > 0 {
                return Err(RemoveMemoryRefusal::InUse);
            }
        }
        for pfn in frames() {
            pace.step();
            self.reserve_frame(pfn, 0);
        }
        drop(pace);
        sections.for_each(|section| self.reserve_frame(first_desc_of(section), REMOVED));
        Ok(())
    }

    /// Counts an object that names these frames. `false` if some are not foreign.
    pub(crate) fn name_foreign(&self, range: &FrameRange) -> bool {
        let _lock = lock_word(LockKind::MemoryResize, &self.frames.resizes, &self.machine);
        let is_inside = (1..=self.nr_frames()).contains(&range.nr_frames) && range.end() <= self.nr_frames();
        if !is_inside || !sections_around(range).all(|section| self.frames.is_foreign_section(section)) {
            return false;
        }
        sections_around(range).for_each(|section| _ = self.nr_naming(section).fetch_add(1, Ordering::Relaxed));
        true
    }

    /// The object has ended: no entry names a frame for it.
    pub(crate) fn forget_foreign(&self, range: &FrameRange) {
        sections_around(range).for_each(|section| _ = self.nr_naming(section).fetch_sub(1, Ordering::Release));
    }

    fn nr_naming(&self, section: usize) -> &crate::sync::Word {
        &self.frames.desc(first_desc_of(section)).link
    }
}

fn sections_around(range: &FrameRange) -> core::ops::Range<usize> {
    let end = range.end().next_multiple_of(1 << MEM_SECTION_SHIFT);
    (u64::from(range.first.0) >> MEM_SECTION_SHIFT) as usize..(end >> MEM_SECTION_SHIFT) as usize
}

impl FrameDesc {
    /// Makes it that of a foreign frame, which nothing names yet. Dirty: it must not be dropped.
    fn assign_foreign(&self, number: u64) {
        self.owner.set(FOREIGN);
        self.index.set(number);
        self.link.set(0);
        self.state.set(FrameKind::Shared as u64 | UPTODATE | MAPPED | REFERENCED | TOUCHED | DIRTY);
    }

    /// Whether it is that of a foreign frame.
    pub(crate) fn is_foreign(&self) -> bool {
        self.state().kind() == FrameKind::Shared && self.owner.get() == FOREIGN
    }
}

impl Frames {
    /// Under the lock of resizes.
    fn is_foreign_section(&self, section: usize) -> bool {
        self.find_desc_at_rest(first_desc_of(section)).is_some_and(|desc| desc.is_foreign())
    }
}
