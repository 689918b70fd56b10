//! Injected allocation failures; empty without the feature `hooks`.

use super::{Frames, OutOfFrames};
#[cfg(any(test, feature = "hooks"))]
use crate::sync::{Ordering, Word};

/// Allocations left before an injected failure; `u64::MAX` is off. Looked at on the
/// slow path only: arming it empties the frame caches.
#[cfg(any(test, feature = "hooks"))]
pub(crate) struct Injection(Word);

#[cfg(any(test, feature = "hooks"))]
impl Injection {
    pub(crate) fn off() -> Injection {
        Injection(Word::new(u64::MAX))
    }

    pub(crate) fn arm(&self, nr_left: Option<u64>) {
        self.0.store(nr_left.unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    fn count_down(&self, wanted: OutOfFrames) -> Result<(), OutOfFrames> {
        let left = self.0.load(Ordering::Relaxed);
        if left == u64::MAX {
            return Ok(());
        }
        if left == 0 {
            return Err(wanted);
        }
        self.0.store(left - 1, Ordering::Relaxed);
        Ok(())
    }
}

impl Frames {
    /// One allocation of what is wanted; fails if an injected failure says so.
    #[inline(always)]
    pub(super) fn count_down(&self, _wanted: OutOfFrames) -> Result<(), OutOfFrames> {
        #[cfg(any(test, feature = "hooks"))]
        self.injection.count_down(_wanted)?;
        Ok(())
    }
}
