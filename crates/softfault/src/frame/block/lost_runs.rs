//! Which runs of free frames a block has lost: determined after a request for one failed, and when
//! frames come back after that.
//!
//! Locks on entry: none.

use super::Block;
use crate::addr::Order;
use crate::frame::offers::{LOST, LOST_SHIFT, changed};
use crate::frame::runs::{RUN_ORDER, largest_run};
use crate::sync::Ordering;

impl Block<'_> {
    /// Frames came back where runs had been lost: there may be some again. Gives the kinds
    /// that may have changed.
    #[inline(never)]
    pub(super) fn find_runs(&self) -> u32 {
        // A change, so that of two who bring the halves of a run the later one sees both.
        self.state.fetch_add(0, Ordering::AcqRel);
        let largest = self.largest_run();
        self.set_lost(|lost| lost.min(RUN_ORDER.saturating_sub(largest)))
    }

    /// Notes the runs that there are, after no run of the wanted order was found, and looks again.
    /// Frames that come back meanwhile are seen: either the second look, which writes, comes
    /// after their words were written, or the CPU that gave them back sees that runs are lost.
    pub(crate) fn lose_runs(&self) {
        self.lose_runs_above(self.largest_run());
    }

    /// Whether 2^order free frames lie beside each other. If not, it loses runs.
    pub(crate) fn has_run(&self, order: Order) -> bool {
        let largest = self.largest_run();
        let has = largest >= order.0.into();
        if !has {
            self.lose_runs_above(largest);
        }
        has
    }

    fn lose_runs_above(&self, largest: u32) {
        let kinds = self.set_lost(|_| RUN_ORDER.saturating_sub(largest));
        let again = largest_run(core::array::from_fn(|w| !self.used[w].fetch_or(0, Ordering::AcqRel)));
        let more = if again > largest { self.find_runs() } else { 0 };
        self.note(kinds | more);
    }

    fn set_lost(&self, to: impl Fn(u32) -> u32) -> u32 {
        let mut seen = self.state.load(Ordering::Relaxed);
        loop {
            let lost = to(((seen & LOST) >> LOST_SHIFT) as u32);
            let new = seen & !LOST | u64::from(lost) << LOST_SHIFT;
            match self.state.compare_exchange(seen, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return changed(seen, new),
                Err(now) => seen = now,
            }
        }
    }
}
