//! What is done about a shortage of frames, by those who were refused.
//!
//! The allocator refuses and does nothing else. Two callers react, with no lock, no
//! entry and no section held: a fault between two turns, and an operation that has
//! dropped the writer lock and starts again. What can reclaim memory lies above
//! (`compact`, `shrink`), and is given to the subsystem when it is made.
//!
//! Locks on entry: none, no section. Takes the lock `reclaiming`.

use super::Vm;
#[cfg(any(test, feature = "hooks"))]
use crate::addr::Pfn;
use crate::frame::{HugeFrame, OutOfFrames};
use crate::machine::Machine;
use crate::policy::huge::{Effort, HugeAdvice};
use crate::sync::Ordering;

pub(super) mod reclaiming;

/// How often a fault or an operation may start again before it is refused.
const NR_RETRIES: u32 = 3;

/// How often it still may.
pub(crate) struct Retries(u32);

impl Default for Retries {
    fn default() -> Retries {
        Retries(NR_RETRIES)
    }
}

/// An error that may say that frames were refused.
pub(crate) trait FrameRefusal {
    /// That this was refused.
    fn of(refused: OutOfFrames) -> Self;

    /// What was asked for, if that is the reason.
    fn refused_frames(&self) -> Option<OutOfFrames>;
}

impl FrameRefusal for OutOfFrames {
    fn of(refused: OutOfFrames) -> OutOfFrames {
        refused
    }

    fn refused_frames(&self) -> Option<OutOfFrames> {
        Some(*self)
    }
}

/// For the error of an operation that has the variant `OutOfFrames`.
macro_rules! frame_refusal {
    ($name:ident) => {
        impl From<$crate::frame::OutOfFrames> for $name {
            fn from(refused: $crate::frame::OutOfFrames) -> $name {
                $name::OutOfFrames(refused)
            }
        }
        impl From<$crate::space::tree::OutOfNodes> for $name {
            fn from(refused: $crate::space::tree::OutOfNodes) -> $name {
                $name::OutOfFrames(refused.into())
            }
        }
        impl $crate::space::reclaim::FrameRefusal for $name {
            fn of(refused: $crate::frame::OutOfFrames) -> $name {
                $name::OutOfFrames(refused)
            }
            fn refused_frames(&self) -> Option<$crate::frame::OutOfFrames> {
                match self {
                    $name::OutOfFrames(refused) => Some(*refused),
                    #[allow(unreachable_patterns)] // of an error with no other reason
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use frame_refusal;

impl<M: Machine> Vm<M> {
    /// Attempts something that may be refused for want of frames, and attempts it again
    /// as long as memory can be reclaimed, a few times. A refused attempt has kept
    /// nothing; what a successful one gives holds nothing. Like a fault that allocated,
    /// an operation then reacts to memory that is low.
    pub(crate) fn with_reclaim<T, E: FrameRefusal>(&self, attempt: &mut dyn FnMut() -> Result<T, E>) -> Result<T, E> {
        let done = self.until_reclaimed(attempt)?;
        self.reclaim_if_low();
        Ok(done)
    }

    /// The same for what is held afterwards (I28): the caller reacts to memory that is low
    /// when it holds nothing any more.
    pub(crate) fn until_reclaimed<T, E: FrameRefusal>(
        &self,
        attempt: &mut dyn FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut retries = Retries::default();
        loop {
            let before = self.nr_reclaimed();
            let done = attempt();
            match done.as_ref().err().and_then(FrameRefusal::refused_frames) {
                Some(refused) if self.reclaim(&mut retries, before, refused) => {}
                _ => return done,
            }
        }
    }

    /// How often frames were given back; read before an attempt that may be refused.
    pub(crate) fn nr_reclaimed(&self) -> u64 {
        self.nr_reclaimed.load(Ordering::Acquire)
    }

    /// Whether frames were given back since there were `before` reclaims, by the caller or
    /// by another CPU, so that the caller may start again. It was refused and holds
    /// nothing.
    ///
    /// One CPU at a time reclaims. Another one that was refused as well waits for it: it
    /// would mostly find no huge page that is left to split, and frames all the same. If it
    /// is refused again the reclaim was too small for it, and it looks for itself.
    #[cold]
    pub(crate) fn reclaim(&self, retries: &mut Retries, before: u64, refused: OutOfFrames) -> bool {
        self.assert_outside();
        let Some(nr_left) = retries.0.checked_sub(1) else { return false };
        retries.0 = nr_left;
        let Some(nr_frames) = nr_to_free(refused, self.nr_total_pages.get()) else { return false };
        let _reaction = self.reclaiming.lock(&self.machine);
        let by_another = self.nr_reclaimed.get() != before;
        let is_first = nr_left + 1 == NR_RETRIES;
        if by_another && is_first {
            return true;
        }
        self.shrink(self.tunables.shrink_blocks_direct, nr_frames) || by_another
    }

    /// Under the lock. Whether frames were given back.
    fn shrink(&self, nr_blocks: u64, nr_frames: u64) -> bool {
        let has_freed = (self.reclaim.shrink)(self, nr_blocks, nr_frames) > 0;
        if has_freed {
            // Release: whoever reads the count finds the frames.
            self.nr_reclaimed.fetch_add(1, Ordering::Release);
        }
        has_freed
    }

    /// At the end of a fault or an operation that allocated: gives some frames back before
    /// the last one is gone, if memory is short and no other CPU does so. The next one goes
    /// on, until as many are free as the watermark `high`, or there is nothing to be found
    /// here: then whoever begins the next block sets the flag. The caller holds nothing.
    #[inline]
    pub(crate) fn reclaim_if_low(&self) {
        let is_low = &self.frames.is_low;
        if is_low.load(Ordering::Relaxed) != 0 && self.reclaiming.is_free() && is_low.swap(0, Ordering::Relaxed) != 0 {
            self.react();
        }
    }

    #[cold]
    fn react(&self) {
        let reaction = self.reclaiming.lock(&self.machine);
        let nr_frames = self.nr_to_high();
        if nr_frames == 0 {
            self.fill_reserve(reaction.pressure);
            return;
        }
        let has_freed = self.shrink(self.tunables.shrink_blocks, nr_frames);
        if self.nr_to_high() > 0 && has_freed {
            self.frames.is_low.store(1, Ordering::Relaxed);
        }
    }

    /// Takes a frame as a reaction would.
    #[cfg(any(test, feature = "hooks"))]
    pub(crate) fn take_reserved(&self) -> Option<Pfn> {
        self.frames.take_reserved(self.reclaiming.lock(&self.machine).pressure)
    }

    /// A huge frame for a fault, which has not much time. The caller may be counted as a
    /// holder: nothing here waits for frames.
    pub(crate) fn obtain_huge_for_fault(&self, advice: HugeAdvice) -> Result<HugeFrame, OutOfFrames> {
        // An injected failure is one: nothing is made in its place.
        if let Some(huge) = self.obtain_huge_if_free()? {
            return Ok(huge);
        }
        let effort = self.huge_now().defrag().effort(advice);
        (self.reclaim.compact)(self, effort, &self.tunables.compact_fault).ok_or(OutOfFrames::huge::<M::Format>())
    }

    /// Makes one for a collapse, which has time, and leaves it to whoever comes
    /// first. With no lock held: compaction takes long.
    pub(crate) fn make_huge_for_collapse(&self) -> Result<(), OutOfFrames> {
        // Free for all that others know, until it is.
        let _held = self.hold_unless_last_resort().ok_or(OutOfFrames::huge::<M::Format>())?;
        let made = (self.reclaim.compact)(self, Effort::Direct, &self.tunables.compact_background);
        let huge = made.ok_or(OutOfFrames::huge::<M::Format>())?;
        self.give_back_huge(huge.first, huge.content);
        Ok(())
    }
}

/// Frames after which a reclaim may end; `None` if there can never be enough.
fn nr_to_free(refused: OutOfFrames, nr_total: u64) -> Option<u64> {
    match refused {
        // How many come after it is not known.
        OutOfFrames::Frame => Some(u64::MAX),
        OutOfFrames::Frames(nr_frames) => Some(u64::from(nr_frames)).filter(|nr| *nr <= nr_total),
        // Any frame may be the one that is missing between others.
        OutOfFrames::Block(order) => Some(u64::MAX).filter(|_| order.nr_pages() <= nr_total),
    }
}

#[cfg(test)]
#[path = "reclaim_tests.rs"]
mod tests;
