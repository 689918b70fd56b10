//! Copies of frames that fail on command, as where memory is bad and the machine goes on.

use crate::arena::Arena;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use softfault::machine::FrameCopy;
use softfault::{PAGE_SIZE, Pfn};

/// No copy fails.
const OFF: u64 = u64::MAX;
/// No frame has failed.
const NONE: u64 = u64::MAX;
/// The bytes of a target whose source has failed in the middle.
const LEFT: u64 = 0xbad0_bad0_bad0_bad0;

pub(crate) struct Copies {
    /// Copies that still succeed.
    nr_left: AtomicU64,
    failed: AtomicU64,
}

impl Copies {
    pub(crate) fn new() -> Copies {
        Copies { nr_left: AtomicU64::new(OFF), failed: AtomicU64::new(NONE) }
    }

    pub(crate) fn fail_after(&self, nr_left: Option<u64>) {
        self.failed.store(NONE, Relaxed);
        self.nr_left.store(nr_left.unwrap_or(OFF), Relaxed);
    }

    pub(crate) fn failed(&self) -> Option<Pfn> {
        let failed = self.failed.load(Relaxed);
        (failed != NONE).then_some(Pfn(failed as u32))
    }

    #[inline(always)]
    pub(crate) fn copy(&self, arena: &Arena, to: Pfn, from: Pfn) -> FrameCopy {
        if self.nr_left.load(Relaxed) == OFF { FrameCopy::ByCore } else { self.copy_counted(arena, to, from) }
    }

    #[cold]
    fn copy_counted(&self, arena: &Arena, to: Pfn, from: Pfn) -> FrameCopy {
        let count = |nr_left: u64| (nr_left != OFF).then(|| nr_left.saturating_sub(1));
        let was_last = self.nr_left.fetch_update(Relaxed, Relaxed, count) == Ok(0) && self.failed().is_none();
        if was_last {
            self.failed.store(from.0.into(), Relaxed);
        }
        let words = |len: u64| (0..len as usize).step_by(8);
        if self.failed() == Some(from) {
            words(PAGE_SIZE / 2).for_each(|offset| arena.word(to, offset).store(LEFT, Relaxed));
            return FrameCopy::SourceFailed;
        }
        // Programs may store to the source, word by word.
        words(PAGE_SIZE).for_each(|at| arena.word(to, at).store(arena.word(from, at).load(Relaxed), Relaxed));
        FrameCopy::Done
    }
}
