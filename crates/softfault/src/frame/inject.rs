//! Injected allocation failures; empty without the feature `hooks`.

use super::{Frames, OutOfFrames};
#[cfg(any(test, feature = "hooks"))]
use crate::addr::Order;
#[cfg(any(test, feature = "hooks"))]
use crate::sync::{Ordering, Word};

/// Allocations left before an injected failure; `u64::MAX` is off. Looked at on the
/// slow path only: arming it empties the frame caches. And the smallest run that is refused.
#[cfg(any(test, feature = "hooks"))]
pub(crate) struct Injection(Word, Word);

#[cfg(any(test, feature = "hooks"))]
impl Injection {
    pub(crate) fn off() -> Injection {
        Injection(Word::new(u64::MAX), Word::new(u64::MAX))
    }

    pub(crate) fn arm(&self, nr_left: Option<u64>) {
        self.0.store(nr_left.unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    pub(crate) fn arm_runs(&self, least: Option<Order>) {
        self.1.store(least.map_or(u64::MAX, |order| order.0.into()), Ordering::SeqCst);
    }

    fn count_down(&self, wanted: OutOfFrames) -> Result<(), OutOfFrames> {
        if matches!(wanted, OutOfFrames::Block(order) if u64::from(order.0) >= self.1.load(Ordering::Relaxed)) {
            return Err(wanted);
        }
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
    /// Counts an allocation; fails if an injected failure says so.
    #[inline(always)]
    pub(super) fn count_down(&self, _wanted: OutOfFrames) -> Result<(), OutOfFrames> {
        #[cfg(any(test, feature = "hooks"))]
        self.injection.count_down(_wanted)?;
        Ok(())
    }
}
